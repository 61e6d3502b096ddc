//! Figures about Raft for `/v1/agent/self` and `Status.RaftStats`.

use crate::consensus::types::Peer;
use crate::model::Index;
use std::time::Duration;

/// One server of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The server.
    pub peer: Peer,
    /// Whether it votes.
    pub voter: bool,
    /// Whether it leads, as far as is known here.
    pub leader: bool,
    /// Index of the last log entry it is known to have. A leader knows it of all, others of themselves alone.
    pub last_log: Option<Index>,
}

/// A picture of Raft on this server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaftStats {
    /// `Leader`, `Follower`, `Candidate` or `Shutdown`.
    pub state: &'static str,
    /// The newest term seen.
    pub term: u64,
    /// Index of the last log entry, committed or not.
    pub last_log_index: Index,
    /// Its term.
    pub last_log_term: u64,
    /// Index up to which entries are known to be committed.
    pub commit_index: Index,
    /// Index up to which the state is made.
    pub applied_index: Index,
    /// Index of the newest snapshot, 0 without one.
    pub last_snapshot_index: Index,
    /// Its term.
    pub last_snapshot_term: u64,
    /// Voters other than this server.
    pub num_peers: usize,
    /// All servers.
    pub peers: Vec<PeerStatus>,
    /// Index of the entry that made this membership.
    pub configuration_index: Index,
    /// Since a leader was heard of; zero on the leader, `None` if never.
    pub last_contact: Option<Duration>,
    /// How long the last log transaction took to reach the disk; zero in memory.
    pub last_fsync: Duration,
    /// Why the disk takes no writes, if so.
    pub disk_fault: Option<String>,
}
