//! Snapshot to resources, the xDS session, and its gRPC services.

pub mod resources;
pub mod source;
