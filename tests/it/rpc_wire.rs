//! The RPC port over real sockets: recorded bytes, every way in, and everything that must not get in.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.
#![allow(clippy::disallowed_methods)] // Certificates are valid by the real clock; deadlines are real.

mod interop;
mod limits;
mod modes;
mod port;
mod recorded;
mod sessions;
