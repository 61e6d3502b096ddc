//! What consensus is told at start.

use crate::consensus::error::Error;
use crate::consensus::forward::Forward;
use crate::consensus::timing::Timing;
use crate::consensus::transport::Transport;
use crate::consensus::types::Peer;
use crate::model::{NodeId, NodeName};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Below this openraft snapshots so often that nothing is gained.
const MIN_THRESHOLD: u64 = 16;
/// Bytes of a snapshot sent at a time.
const CHUNK: u64 = 1 << 20;

/// Settings of the consensus part.
#[derive(Clone)]
pub struct Config {
    /// Where `raft/` lies; `None` keeps everything in memory, for `-dev`.
    pub data_dir: Option<PathBuf>,
    /// This node's UUID.
    pub node_id: NodeId,
    /// This node's name.
    pub node_name: NodeName,
    /// `host:port` at which the other servers reach this one's RPC port.
    pub address: String,
    /// Whether a server without any Raft state forms a datacenter on its own.
    pub bootstrap: bool,
    /// Scales heartbeat and election timeouts, 1 to 10. At 1 a silent leader is replaced after 550 to 850 ms, one whose
    /// process ended after 300 to 400 ms.
    pub raft_multiplier: u32,
    /// Log entries after which a snapshot is made (`raft_snapshot_threshold`), at least 16.
    pub snapshot_threshold: u64,
    /// Log entries kept after a snapshot, for peers that lag (`raft_trailing_logs`).
    pub trailing_logs: u64,
    /// How long a write may wait for a quorum before its proposer gets an error.
    pub propose_timeout: Duration,
    /// How peers are reached; `None` for a server that is alone.
    pub transport: Option<Arc<dyn Transport>>,
    /// How the leader is asked to write for this server, and how new its state is; `None` for a server that is alone.
    pub forward: Option<Arc<dyn Forward>>,
}

impl Config {
    /// Defaults for a node, in memory.
    pub fn new(node_id: NodeId, node_name: NodeName, address: impl Into<String>) -> Self {
        Self {
            data_dir: None,
            node_id,
            node_name,
            address: address.into(),
            bootstrap: false,
            raft_multiplier: 1,
            snapshot_threshold: 16_384,
            trailing_logs: 10_240,
            propose_timeout: Duration::from_secs(30),
            transport: None,
            forward: None,
        }
    }

    /// This server as its peers see it.
    pub(crate) fn peer(&self) -> Peer {
        Peer {
            id: self.node_id.clone(),
            node: self.node_name.clone(),
            address: self.address.clone(),
        }
    }

    /// Checks the values and turns them into openraft's.
    ///
    /// # Errors
    /// Names the key whose value is out of range.
    pub(crate) fn raft(&self) -> Result<openraft::Config, Error> {
        if !(1..=10).contains(&self.raft_multiplier) {
            let value = self.raft_multiplier;
            return Err(Error::config(
                "raft_multiplier",
                value,
                "use a number from 1 to 10",
            ));
        }
        if self.snapshot_threshold < MIN_THRESHOLD {
            let value = self.snapshot_threshold;
            return Err(Error::config(
                "raft_snapshot_threshold",
                value,
                "use at least 16",
            ));
        }
        let timing = Timing::new(self.raft_multiplier);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        openraft::Config {
            cluster_name: "crossway".to_owned(),
            heartbeat_interval: millis(timing.heartbeat),
            // The longest is the lease, the shortest how long a vote may take to be answered. `elect` stands for election.
            election_timeout_min: millis(timing.lease) - 1,
            election_timeout_max: millis(timing.lease),
            enable_elect: false,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(self.snapshot_threshold),
            max_in_snapshot_log_to_keep: self.trailing_logs,
            // A peer that lags by less is caught up from the log: never ask for entries that were purged.
            replication_lag_threshold: self.trailing_logs.max(1),
            // openraft's 200 ms are too short for a chunk of 3 MiB.
            install_snapshot_timeout: 10_000,
            snapshot_max_chunk_size: CHUNK,
            ..openraft::Config::default()
        }
        .validate()
        .map_err(|error| Error::config("raft", self.raft_multiplier, error.to_string()))
    }
}

/// The Raft id of a node: the first eight bytes of its UUID.
///
/// # Errors
/// If the text is no UUID.
pub(crate) fn raft_id(id: &NodeId) -> Result<u64, Error> {
    let uuid = uuid::Uuid::parse_str(id.as_str())
        .map_err(|error| Error::config("node_id", id, format!("use a UUID: {error}")))?;
    Ok(uuid.as_u64_pair().0)
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("data_dir", &self.data_dir)
            .field("node_id", &self.node_id)
            .field("node_name", &self.node_name)
            .field("address", &self.address)
            .field("bootstrap", &self.bootstrap)
            .field("raft_multiplier", &self.raft_multiplier)
            .field("snapshot_threshold", &self.snapshot_threshold)
            .field("trailing_logs", &self.trailing_logs)
            .finish_non_exhaustive()
    }
}
