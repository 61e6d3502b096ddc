//! A server that does not lead answers as the leader does.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.
#![allow(clippy::disallowed_methods)] // Deadlines are real.

mod leader_loss;
mod methods;
mod pool;
mod reads;
mod snapshots;
mod writes;
