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
//! - `batch` folds proposals that wait at the same time into one entry; `verify` folds questions about how new the state is.
//! - `forward` asks the leader, on a server that does not lead: to write, and how new its state is.
//! - `disk` owns the database file; `log_store` and `machine` adapt disk and state to openraft.
//! - `elect` wants to lead when nobody does, with the waits of `timing`; `follow` tells the role; `transfer` hands
//!   leadership on; `members` changes who belongs to the datacenter.
//! - `recover` forms the datacenter anew from `peers.json` when a quorum is lost.
//! - `transport` is the way between servers: a seam (bytes to a peer, bytes back) and what fills it on the RPC port.
//!
//! Absent on purpose: no addresses to dial, no access rules, no retries, no clock in the state.

mod batch;
mod config;
mod disk;
mod elect;
mod entry;
mod error;
mod follow;
mod forward;
mod handle;
mod log_store;
mod machine;
mod members;
mod open;
mod recover;
mod role;
mod snapshots;
mod stats;
mod timing;
mod transfer;
mod transport;
mod types;
mod verify;

pub use config::Config;
pub use entry::{CodecError, decode_record_for_fuzzing};
pub use error::{Error, ProposeError};
pub use forward::{Forward, ForwardError};
pub use handle::{Consensus, Freshness, Written};
pub use role::Role;
pub use stats::{PeerStatus, RaftStats};
pub use transport::{Lane, RaftTransport, Transport, TransportError, serve_raft};
pub use types::Peer;

#[cfg(test)]
mod tests;
