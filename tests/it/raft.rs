//! Raft between servers over their real RPC ports, with and without TLS.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod elections;
mod form;
mod members;
mod recovery;
mod storm;
mod strangers;
