//! The validated configuration as plain data: what `app` hands to each part.

use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

mod network;
mod security;

pub use network::Addresses;
pub use network::Gossip;
pub use network::GossipTuning;
pub use network::Join;
pub use network::ListenAddr;
pub use network::PortRange;
pub use network::Ports;
pub use network::UnixSockets;
pub use security::Acl;
pub use security::AclTokens;
pub use security::Connect;
pub use security::Federation;
pub use security::Tls;
pub use security::TlsVersion;

use crate::config::problem::Origin;
use crate::telemetry::LogOptions;
use crate::telemetry::MetricsOptions;

/// One server's configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Whether `-dev` was given: state in memory, one server, nothing on disk.
    pub dev: bool,
    /// Who this server is.
    pub identity: Identity,
    /// Whether this process is a server (`server`). Crossway has no client agents.
    pub server: bool,
    /// Whether it may elect itself alone (`bootstrap`, `bootstrap_expect = 1`, `-dev`).
    pub bootstrap: bool,
    /// Number of servers to wait for before the first election; 0 when not used.
    pub bootstrap_expect: u32,
    /// Where state is kept; `None` in dev mode without `data_dir`.
    pub data_dir: Option<PathBuf>,
    /// File that receives the process id.
    pub pid_file: Option<PathBuf>,
    /// Addresses to bind and to advertise.
    pub addresses: Addresses,
    /// Ports; `None` is off.
    pub ports: Ports,
    /// Certificates and what they are demanded for.
    pub tls: Tls,
    /// The mesh: CA provider and switches.
    pub connect: Connect,
    /// Federation with other datacenters through mesh gateways.
    pub federation: Federation,
    /// Joining other servers.
    pub join: Join,
    /// Gossip keys and timing.
    pub gossip: Gossip,
    /// Raft's timing and snapshots.
    pub raft: Raft,
    /// Bounds on what clients may do.
    pub limits: Limits,
    /// Access control.
    pub acl: Acl,
    /// DNS answers.
    pub dns: Dns,
    /// HTTP API.
    pub http: Http,
    /// Metrics.
    pub telemetry: Telemetry,
    /// Logs.
    pub log: Log,
    /// Care for dead and new servers.
    pub autopilot: Autopilot,
    /// How checks run.
    pub checks: CheckRules,
    /// Services of the configuration files, in order.
    pub service_definitions: Vec<Definition>,
    /// Checks of the configuration files that belong to no service, in order.
    pub check_definitions: Vec<Definition>,
    /// Configuration entries to write when they do not exist yet (`config_entries.bootstrap`).
    pub bootstrap_entries: Vec<Definition>,
    /// Members that leave on purpose: on SIGTERM (`leave_on_terminate`, default false on servers).
    pub leave_on_terminate: bool,
    /// Whether an interrupt stops without leaving (`skip_leave_on_interrupt`, default true on servers).
    pub skip_leave_on_interrupt: bool,
    /// Whether a server that left joins its known peers at start.
    pub rejoin_after_leave: bool,
}

/// A service, check or configuration entry as a file defines it.
///
/// Names are lower case with underscores, single blocks are objects, lists are arrays, durations are
/// checked Go strings; anything below a free block (`proxy.config`) is as it was written.
#[derive(Clone, PartialEq)]
pub struct Definition {
    /// The definition.
    pub json: Json,
    /// Where it stands.
    pub origin: Origin,
}

/// A definition may hold a token: only its name is shown.
impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.json.get("name").or_else(|| self.json.get("Name"));
        write!(f, "Definition({name:?} at {})", self.origin)
    }
}

/// Who a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name of the node; default the host's name.
    pub node_name: String,
    /// Node id that was configured, lower case. Without one the `node-id` file in the data directory decides.
    pub node_id: Option<String>,
    /// Key-value pairs of the node, within Consul's bounds.
    pub node_meta: BTreeMap<String, String>,
    /// This datacenter, lower case.
    pub datacenter: String,
    /// The datacenter that holds the CA root and replicates to the others, lower case.
    pub primary_datacenter: String,
    /// Domain of DNS and TLS names, lower case, without a final dot.
    pub domain: String,
    /// Second domain for DNS questions, without a final dot.
    pub alt_domain: Option<String>,
    /// Gossip protocol that is spoken (2 or 3).
    pub protocol: u8,
}

impl Identity {
    /// Whether this datacenter is the primary one.
    #[must_use]
    pub fn is_primary(&self) -> bool {
        self.datacenter == self.primary_datacenter
    }
}

/// Raft's timing and snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raft {
    /// Factor on the base heartbeat and election times, 1 to 10.
    pub multiplier: u32,
    /// How often the log is checked for a snapshot.
    pub snapshot_interval: Duration,
    /// Log entries after which a snapshot is due.
    pub snapshot_threshold: u64,
    /// Log entries kept behind a snapshot.
    pub trailing_logs: u64,
    /// Time between leaving and stopping.
    pub leave_drain_time: Duration,
    /// How long a request waits for a leader or a path before it fails.
    pub rpc_hold_timeout: Duration,
}

/// Bounds on what clients may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Requests per second of a client agent; `None` is without limit.
    pub rpc_rate: Option<f64>,
    /// Requests at once above the rate.
    pub rpc_max_burst: u32,
    /// Longest TLS handshake and first byte on the RPC port; zero is without limit.
    pub rpc_handshake_timeout: Duration,
    /// Connections to the RPC port per client address; 0 is without limit.
    pub rpc_max_conns_per_client: u32,
    /// Longest TLS handshake on the HTTPS port; zero is without limit.
    pub https_handshake_timeout: Duration,
    /// Connections to the HTTP ports per client address; 0 is without limit.
    pub http_max_conns_per_client: u32,
    /// Connections to the gRPC ports per client address; 0 is without limit. Our own key: Consul does not bound them.
    pub grpc_max_conns_per_client: u32,
    /// Largest value of one key, in bytes.
    pub kv_max_value_size: u64,
    /// Largest transaction request, in bytes.
    pub txn_max_req_len: u64,
    /// How long a blocking query waits when it does not say.
    pub default_query_time: Duration,
    /// The longest a blocking query may wait.
    pub max_query_time: Duration,
    /// `discovery_max_stale`: how stale reads of catalog and health may be that do not say; zero has the leader answer.
    pub discovery_max_stale: Duration,
}

/// DNS answers (`dns_config`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// Most A records in an answer; 0 is without limit.
    pub a_record_limit: u32,
    /// Whether any server may answer.
    pub allow_stale: bool,
    /// Oldest acceptable answer.
    pub max_stale: Duration,
    /// Longest life of a cached answer.
    pub cache_max_age: Duration,
    /// Whether names are written in full.
    pub disable_compression: bool,
    /// Whether too long answers are marked as truncated.
    pub enable_truncate: bool,
    /// TTL of node answers.
    pub node_ttl: Duration,
    /// TTL of service answers by name, prefix with `*`, or `*`.
    pub service_ttl: BTreeMap<String, Duration>,
    /// Whether instances in warning are left out.
    pub only_passing: bool,
    /// Most records in an answer over UDP.
    pub udp_answer_limit: u32,
    /// Whether node metadata is added as TXT records.
    pub node_meta_txt: bool,
    /// Other DNS servers for other domains.
    pub recursors: Vec<String>,
    /// How long a recursor may take.
    pub recursor_timeout: Duration,
    /// SOA record: expire, minimum TTL, refresh, retry; seconds.
    pub soa: [u32; 4],
}

/// HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Beginnings of paths that answer 403.
    pub block_endpoints: Vec<String>,
    /// Headers added to each answer.
    pub response_headers: BTreeMap<String, String>,
    /// Networks that may write; empty is everybody.
    pub allow_write_from: Vec<ipnet::IpNet>,
    /// Whether keys with unprintable characters are accepted.
    pub allow_unprintable: bool,
    /// Whether `/debug` answers without ACLs.
    pub enable_debug: bool,
}

/// Metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// First part of each metric's name.
    pub prefix: String,
    /// Whether metrics that match no rule are kept.
    pub filter_default: bool,
    /// Name prefixes to keep.
    pub allowed_prefixes: Vec<String>,
    /// Name prefixes to drop.
    pub blocked_prefixes: Vec<String>,
    /// Whether gauges go without the host's name.
    pub disable_hostname: bool,
    /// How long a metric would stay after its last change in Consul, where zero switches Prometheus's form off. Here that
    /// form is always served, and metrics stay.
    pub prometheus_retention: Duration,
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Level, lower case: trace, debug, info, warn or error.
    pub level: String,
    /// Whether each line is a JSON object.
    pub json: bool,
    /// File that is appended to as well as standard output.
    pub file: Option<PathBuf>,
}

/// Care for dead and new servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Autopilot {
    /// Whether a failed server is removed when a new one joins.
    pub cleanup_dead_servers: bool,
    /// Longest silence of a healthy server.
    pub last_contact_threshold: Duration,
    /// Most entries a healthy server may lag.
    pub max_trailing_logs: u64,
    /// Fewest servers that stay.
    pub min_quorum: u32,
    /// How long a new server must be healthy before it votes.
    pub server_stabilization_time: Duration,
}

/// How checks run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRules {
    /// How long a change of output alone may wait before it is written to the catalog; zero writes at once.
    pub update_interval: Duration,
    /// Most bytes of output that are kept.
    pub output_max_size: usize,
    /// Whether output is dropped.
    pub discard_output: bool,
    /// Whether scripts may be registered over HTTP.
    pub enable_script_checks: bool,
    /// Whether scripts of configuration files may run.
    pub enable_local_script_checks: bool,
    /// Whether checks over TLS present the server's certificate.
    pub use_agent_tls: bool,
    /// Shortest time in critical after which a service may be deregistered.
    pub deregister_interval_min: Duration,
    /// How often critical services are looked at.
    pub reap_interval: Duration,
}

impl From<&Log> for LogOptions {
    fn from(log: &Log) -> Self {
        Self {
            level: log.level.clone(),
            json: log.json,
            file: log.file.clone(),
        }
    }
}

impl From<&Telemetry> for MetricsOptions {
    fn from(telemetry: &Telemetry) -> Self {
        Self {
            prefix: telemetry.prefix.clone(),
            filter_default: telemetry.filter_default,
            allowed_prefixes: telemetry.allowed_prefixes.clone(),
            blocked_prefixes: telemetry.blocked_prefixes.clone(),
        }
    }
}
