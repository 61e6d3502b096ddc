//! The HTTP API over real TCP against a server in this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
// Test code: a failed step should stop the test.

mod blocking;
pub(crate) mod fixture;
mod garbage;
mod limits;
mod recorded;
mod tls;
