//! Snapshot to resources, the xDS session, and its gRPC services.
//!
//! ```text
//!   source.rs     who an Envoy is and what it is to have        <- implemented over the catalog
//!   resources.rs  what it is to have: shared bytes, encoded once
//!   session.rs    the protocol of one stream (pure): sotw.rs, delta.rs, subscription.rs, ledger.rs, order.rs,
//!                 quarantine.rs
//!   life.rs       from registration to the end of a stream (pure)
//!   stream.rs     the shell of one stream; server.rs the services; registry.rs all live streams
//!   csds.rs, status.rs, redact.rs, reflection.rs                for people with grpcurl
//! ```
//!
//! A push goes: source changed -> `Watch::current` -> `Session::offer` -> slices of shared bytes -> HTTP/2. Nothing in
//! between copies or encodes a resource, and there is no lock, task or queue that two streams share.

pub mod admission;
pub mod csds;
pub mod delta;
pub mod frame;
pub mod generate;
pub mod ledger;
pub mod life;
pub mod order;
pub mod quarantine;
mod redact;
mod reflection;
pub mod registry;
pub mod resources;
pub mod server;
pub mod session;
pub mod sotw;
pub mod source;
pub mod status;
pub mod store_source;
mod stream;
pub mod subscription;
pub mod wire;

pub use server::Server;
