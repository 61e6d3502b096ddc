//! Snapshot to resources, the xDS session, and its gRPC services.

pub mod delta;
pub mod frame;
pub mod generate;
pub mod ledger;
pub mod order;
pub mod quarantine;
pub mod resources;
pub mod session;
pub mod sotw;
pub mod source;
pub mod status;
pub mod store_source;
pub mod subscription;
pub mod wire;
