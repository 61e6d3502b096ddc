//! The RPC methods of a real server: recorded bytes, the same calls to a real Consul, and what must not be done.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.
#![allow(clippy::disallowed_methods)] // Certificates are valid by the real clock; deadlines are real.

mod blocking;
mod consul;
mod garbage;
mod identity;
mod recorded;
pub(crate) mod wire;
