//! What a pool is set up with.

use std::time::Duration;

use crate::gossip::Tags;
use crate::gossip::serf::Snapshot;
use crate::gossip::swim;
use crate::gossip::wire::Keyring;

/// How long serf remembers, waits and tries. The defaults are those of Consul 1.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time from one attempt to reach a failed member to the next.
    pub reconnect_interval: Duration,
    /// How long failed members are remembered and tried (`reconnect_timeout`).
    pub reconnect_timeout: Duration,
    /// How long members are remembered that left.
    pub tombstone_timeout: Duration,
    /// How long intents are kept about nodes that are not known.
    pub recent_intent_timeout: Duration,
    /// Time from one look at the above to the next.
    pub reap_interval: Duration,
    /// How long a command waits until its broadcast was sent often enough.
    pub broadcast_timeout: Duration,
    /// How long a node that leaves stays to answer, so that its farewell gets around.
    pub leave_propagate_delay: Duration,
    /// A query waits this many gossip intervals for each decimal digit of the number of members.
    pub query_timeout_mult: u32,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            reconnect_interval: Duration::from_secs(30),
            reconnect_timeout: Duration::from_secs(72 * 3600),
            tombstone_timeout: Duration::from_secs(24 * 3600),
            recent_intent_timeout: Duration::from_secs(5 * 60),
            reap_interval: Duration::from_secs(15),
            broadcast_timeout: Duration::from_secs(5),
            leave_propagate_delay: Duration::from_secs(3),
            query_timeout_mult: 16,
        }
    }
}

/// What a pool is set up with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The layer below. Its `meta` is made from `tags`.
    pub swim: swim::Config,
    /// What we say about ourselves: at most 512 bytes when encoded.
    pub tags: Tags,
    /// How long serf remembers, waits and tries.
    pub timing: Timing,
    /// The keys of the pool, if it encrypts. Queries of other members change them.
    pub keyring: Option<Keyring>,
    /// Keeps a snapshot: what it said when the agent stopped, nothing when there was none.
    pub snapshot: Option<Snapshot>,
    /// Joins again after a restart although the agent had left the pool.
    pub rejoin_after_leave: bool,
    /// Lets the majority decide when another node claims our name; the loser shuts down. Consul leaves that off, because
    /// a server that stops is worse than one that complains.
    pub resolve_conflicts: bool,
    /// Keeps network coordinates.
    pub coordinates: bool,
}

impl Config {
    /// What Consul sets up, without encryption and snapshot.
    pub fn new(swim: swim::Config, tags: Tags) -> Self {
        Self {
            swim,
            tags,
            timing: Timing::default(),
            keyring: None,
            snapshot: None,
            rejoin_after_leave: false,
            resolve_conflicts: false,
            coordinates: true,
        }
    }
}
