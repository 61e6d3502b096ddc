//! Raft behind one handle: the only writer of the store.
//!
//! ```text
//!  propose(Command) ─┐                                   ┌─> log_store ──> disk (one thread, group commit, fsync)
//!  propose(Command) ─┼─> batch: one entry per round ──> Raft
//!  propose(Command) ─┘                                   └─> machine: State::apply × n, one Store::publish
//!                        each gets its own answer  <────────────┘             └─> snapshots (files)
//! ```
//!
//! - `entry` says how a command and a log record look as bytes (pure).
//! - `batch` folds proposals that wait at the same time into one entry; `verify` folds leadership confirmations.
//! - `disk` owns the database file; `log_store` and `machine` adapt disk and state to openraft.
//! - `transport` is the way between servers: a seam (bytes to a peer, bytes back) and what fills it on the RPC port.
//!
//! Absent on purpose: no forwarding to the leader (the caller knows the peer), no access rules, no clock in the state.

mod batch;
mod config;
mod disk;
mod entry;
mod error;
mod handle;
mod log_store;
mod machine;
mod open;
mod role;
mod snapshots;
mod stats;
mod transport;
mod types;
mod verify;

pub use config::Config;
pub use entry::{CodecError, decode_record_for_fuzzing};
pub use error::{Error, ProposeError};
pub use handle::{Consensus, Written};
pub use role::Role;
pub use stats::{PeerStatus, RaftStats};
pub use transport::{Lane, RaftTransport, Transport, TransportError, serve_raft};
pub use types::Peer;

#[cfg(test)]
mod tests;
