//! Raft between servers over their real RPC ports, with and without TLS.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // Measurements are printed, and need the clock.

mod elections;
mod form;
mod members;
mod recovery;
mod storm;
mod strangers;
