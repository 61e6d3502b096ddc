//! What a pool is set up with.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::gossip::swim::Node;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Versions;
use crate::gossip::wire::packet;
use crate::model::NodeName;

/// How fast a pool probes and gossips. All members must agree roughly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time from one probe to the next. A failing probe lasts that long.
    pub probe_interval: Duration,
    /// Time until a probe without an answer is tried through others.
    pub probe_timeout: Duration,
    /// How many others are asked then.
    pub indirect_checks: usize,
    /// A broadcast is sent this many times for each decimal digit of the number of members.
    pub retransmit_mult: u32,
    /// Probe intervals until a suspect that several members suspect is dead, times the logarithm of the pool's size.
    pub suspicion_mult: u32,
    /// How many times longer that takes when nobody else suspects it.
    pub suspicion_max_timeout_mult: u32,
    /// Time from one full exchange of states to the next, in pools of up to 32 members.
    pub push_pull_interval: Duration,
    /// Time from one packet of broadcasts to the next.
    pub gossip_interval: Duration,
    /// How many members get it.
    pub gossip_nodes: usize,
    /// How long the dead are gossiped to, so that they may refute, and are remembered.
    pub gossip_to_the_dead_time: Duration,
    /// How many times slower a node probes that suspects itself to be the slow one.
    pub awareness_max_multiplier: u32,
    /// Limit of everything that happens on one stream.
    pub tcp_timeout: Duration,
}

impl Timing {
    /// For members in one datacenter: memberlist's figures.
    pub const fn lan() -> Self {
        Self {
            probe_interval: Duration::from_secs(1),
            probe_timeout: Duration::from_millis(500),
            indirect_checks: 3,
            retransmit_mult: 4,
            suspicion_mult: 4,
            suspicion_max_timeout_mult: 6,
            push_pull_interval: Duration::from_secs(30),
            gossip_interval: Duration::from_millis(200),
            gossip_nodes: 3,
            gossip_to_the_dead_time: Duration::from_secs(30),
            awareness_max_multiplier: 8,
            tcp_timeout: Duration::from_secs(10),
        }
    }

    /// For members in many datacenters: memberlist's figures.
    pub const fn wan() -> Self {
        Self {
            probe_interval: Duration::from_secs(5),
            probe_timeout: Duration::from_secs(3),
            suspicion_mult: 6,
            push_pull_interval: Duration::from_secs(60),
            gossip_interval: Duration::from_millis(500),
            gossip_nodes: 4,
            gossip_to_the_dead_time: Duration::from_secs(60),
            tcp_timeout: Duration::from_secs(30),
            ..Self::lan()
        }
    }

    /// For members on one machine: memberlist's figures.
    pub const fn local() -> Self {
        Self {
            probe_timeout: Duration::from_millis(200),
            indirect_checks: 1,
            retransmit_mult: 2,
            suspicion_mult: 3,
            push_pull_interval: Duration::from_secs(15),
            gossip_interval: Duration::from_millis(100),
            gossip_to_the_dead_time: Duration::from_secs(15),
            tcp_timeout: Duration::from_secs(1),
            ..Self::lan()
        }
    }
}

/// Decides whether nodes may be members: one node that is said to be alive, or all nodes of a pool that is joined.
#[derive(Clone)]
pub struct Filter(Arc<Admit>);

type Admit = dyn Fn(&[Node]) -> Result<(), String> + Send + Sync;

impl Filter {
    /// A filter from a function that says why nodes are refused. It is called often and must be quick.
    pub fn new(admit: impl Fn(&[Node]) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(admit))
    }

    /// Why these nodes are refused, if they are.
    ///
    /// # Errors
    /// When they are.
    pub fn admit(&self, nodes: &[Node]) -> Result<(), String> {
        (self.0)(nodes)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

/// What a pool is set up with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Our name: unique in the pool.
    pub name: NodeName,
    /// Where others reach us.
    pub advertise: SocketAddr,
    /// What we say about ourselves: [tags](crate::gossip::Tags), at most 512 bytes.
    pub meta: Blob,
    /// The protocols that we speak.
    pub versions: Versions,
    /// How fast the pool is.
    pub timing: Timing,
    /// After this time another node may take the name of one that died, from another address; `None` is never.
    /// Consul: 30 s.
    pub dead_node_reclaim: Option<Duration>,
    /// Sends to nobody whose name is not known: for pools whose gossip travels through mesh gateways.
    pub require_node_names: bool,
    /// Bytes that the messages of a packet may take: [`packet::room`].
    pub packet_room: usize,
    /// Who may be a member; everybody without it.
    pub filter: Option<Filter>,
}

impl Config {
    /// A pool in one datacenter, as Consul sets it up.
    pub fn new(name: NodeName, advertise: SocketAddr) -> Self {
        Self {
            name,
            advertise,
            meta: Blob::default(),
            versions: Versions::OURS,
            timing: Timing::lan(),
            dead_node_reclaim: Some(Duration::from_secs(30)),
            require_node_names: false,
            packet_room: packet::DEFAULT_SIZE,
            filter: None,
        }
    }
}
