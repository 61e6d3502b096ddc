//! Addresses, ports, joining and gossip.

use crate::discovery::Source;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A place to listen on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAddr {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket at a path (`unix:///path`).
    Unix(PathBuf),
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "{addr}"),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Addresses to bind and to advertise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Bound by RPC and gossip unless they have their own.
    pub bind: IpAddr,
    /// Where clients reach this server unless a listener has its own address; Unix sockets excluded.
    pub client: Vec<IpAddr>,
    /// Address of this node for its own datacenter.
    pub advertise: IpAddr,
    /// Address of this node for other datacenters.
    pub advertise_wan: IpAddr,
    /// `lan`, `wan` and their `_ipv4` and `_ipv6` forms, as the catalog shows them.
    pub tagged: BTreeMap<String, String>,
    /// RPC listener.
    pub rpc_bind: SocketAddr,
    /// RPC address that others dial.
    pub rpc_advertise: SocketAddr,
    /// LAN gossip, bound and advertised.
    pub serf_lan_bind: SocketAddr,
    /// LAN gossip as others dial it.
    pub serf_lan_advertise: SocketAddr,
    /// WAN gossip; `None` when `ports.serf_wan` is off.
    pub serf_wan_bind: Option<SocketAddr>,
    /// WAN gossip as others dial it.
    pub serf_wan_advertise: Option<SocketAddr>,
    /// HTTP listeners; empty when the port is off.
    pub http: Vec<ListenAddr>,
    /// HTTPS listeners.
    pub https: Vec<ListenAddr>,
    /// Plain xDS listeners.
    pub grpc: Vec<ListenAddr>,
    /// xDS listeners with TLS.
    pub grpc_tls: Vec<ListenAddr>,
    /// DNS listeners, UDP and TCP.
    pub dns: Vec<SocketAddr>,
    /// Networks whose LAN members are accepted; empty is all.
    pub serf_lan_allowed: Vec<ipnet::IpNet>,
    /// Networks whose WAN members are accepted; empty is all.
    pub serf_wan_allowed: Vec<ipnet::IpNet>,
    /// Whether answers to other datacenters carry WAN addresses.
    pub translate_wan: bool,
    /// Owner and mode of Unix sockets.
    pub unix_sockets: UnixSockets,
}

/// Owner and mode of Unix sockets; empty leaves what the system gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnixSockets {
    /// User name or id.
    pub user: Option<String>,
    /// Group id.
    pub group: Option<String>,
    /// Octal mode.
    pub mode: Option<u32>,
}

/// Ports; `None` is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// DNS.
    pub dns: Option<u16>,
    /// HTTP API.
    pub http: Option<u16>,
    /// HTTP API over TLS.
    pub https: Option<u16>,
    /// xDS without TLS; default 8502 on servers.
    pub grpc: Option<u16>,
    /// xDS over TLS; default 8503 when a certificate and a key are configured.
    pub grpc_tls: Option<u16>,
    /// RPC between servers.
    pub server: u16,
    /// LAN gossip.
    pub serf_lan: u16,
    /// WAN gossip.
    pub serf_wan: Option<u16>,
    /// Ports for managed proxies; kept for compatibility.
    pub proxy: PortRange,
    /// Ports given to sidecars without one.
    pub sidecar: PortRange,
    /// Ports for exposed check paths.
    pub expose: PortRange,
}

/// Ports from `min` to `max`, both included; 0 and 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    /// First port.
    pub min: u16,
    /// Last port.
    pub max: u16,
}

/// Joining other servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Joined once at start; failure stops the server.
    pub start: Vec<Source>,
    /// The same for the WAN.
    pub start_wan: Vec<Source>,
    /// Joined until one answers.
    pub retry: Vec<Source>,
    /// The same for the WAN.
    pub retry_wan: Vec<Source>,
    /// Time between attempts.
    pub retry_interval: Duration,
    /// Time between attempts on the WAN.
    pub retry_interval_wan: Duration,
    /// Attempts before the server stops; 0 is for ever.
    pub retry_max: u32,
    /// Attempts on the WAN before the server stops; 0 is for ever.
    pub retry_max_wan: u32,
    /// How long a failed member is tried, at least 8 hours.
    pub reconnect_timeout: Duration,
    /// The same for the WAN.
    pub reconnect_timeout_wan: Duration,
}

/// Gossip keys and timing.
#[derive(Clone, PartialEq, Eq)]
pub struct Gossip {
    /// Key of 16, 24 or 32 bytes. Never logged.
    pub encrypt: Option<Vec<u8>>,
    /// Whether plain packets are refused.
    pub encrypt_verify_incoming: bool,
    /// Whether packets are sent encrypted.
    pub encrypt_verify_outgoing: bool,
    /// Whether keys stay in memory.
    pub disable_keyring_file: bool,
    /// LAN timing.
    pub lan: GossipTuning,
    /// WAN timing.
    pub wan: GossipTuning,
}

impl fmt::Debug for Gossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gossip")
            .field("encrypt", &self.encrypt.as_ref().map(|_| "hidden"))
            .field("encrypt_verify_incoming", &self.encrypt_verify_incoming)
            .field("encrypt_verify_outgoing", &self.encrypt_verify_outgoing)
            .field("disable_keyring_file", &self.disable_keyring_file)
            .field("lan", &self.lan)
            .field("wan", &self.wan)
            .finish()
    }
}

/// Timing of one gossip pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipTuning {
    /// Members that receive each round, at least 1.
    pub gossip_nodes: u32,
    /// Time between rounds.
    pub gossip_interval: Duration,
    /// Time between probes.
    pub probe_interval: Duration,
    /// How long a probe waits.
    pub probe_timeout: Duration,
    /// Factor on the time a suspected member has to answer, at least 1.
    pub suspicion_mult: u32,
    /// Factor on how often a message is sent, at least 1.
    pub retransmit_mult: u32,
}
