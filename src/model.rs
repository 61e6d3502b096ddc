//! Nouns and ids of the replicated state, parsed and validated in their constructors.
//!
//! The structs here have two readers. Their serde form **is the wire form**: the field names that Go peers use in
//! net/rpc messages, every field present, times as 15 raw bytes where the format is not human readable. The JSON that
//! HTTP clients see (left-out empty fields, durations as text) is made from the same structs by views in `http`.
//!
//! Absent on purpose: no I/O, no clock, no random source, no dependency on any other module.

pub mod ca;
pub mod catalog;
pub mod check;
pub mod config_entry;
pub mod coordinate;
pub mod duration;
pub mod envoy;
pub mod federation_state;
pub mod filter;
pub mod ids;
pub mod kv;
mod multierror;
pub mod query;
mod secret;
pub mod timestamp;

pub use ca::{CaConfiguration, CaProviderState, CaRoot, IssuedCert};
pub use catalog::{
    CheckServiceNode, ConnectProxyConfig, ExposeConfig, ExposePath, MeshGatewayConfig, Node,
    NodeService, ServiceAddress, ServiceConnect, ServiceKind, Upstream, Weights,
};
pub use check::{CheckStatus, HealthCheck, HealthCheckDefinition};
pub use config_entry::{ConfigEntry, ConfigKind, ProxyDefaults, ServiceDefaults, ServiceResolver};
pub use coordinate::Coordinate;
pub use duration::GoDuration;
pub use federation_state::FederationState;
pub use ids::{CheckId, Datacenter, Index, NodeId, NodeName, ServiceId, ServiceName};
pub use kv::KvEntry;
pub use multierror::multierror;
pub use query::{QueryMeta, QueryOptions};
pub use secret::Secret;
pub use timestamp::Timestamp;
