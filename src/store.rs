//! The replicated state: tables, indexes, commands, topics and snapshots.
//!
//! ```text
//!   consensus --(index, Command)--> State::apply --> Applied { result, topics }
//!       |                                                         |
//!       +------------ Store::publish(state, topics) <-------------+
//!                          | swaps the Arc, then wakes the waiters of those topics only
//!                          v
//!   readers: Store::latest() -> Arc<State>        Store::watch(topics) -> Watch::changed().await
//! ```
//!
//! [`State`] is an immutable value made of persistent maps: cloning it is O(1) and a write copies one path, however many
//! readers hold older states. [`State::apply`] sees only the command and the state: never configuration, clock or random
//! numbers; ids and times are put into the command by whoever proposes it.
//!
//! Absent on purpose: no Raft, no I/O, no JSON, no access rules. Only `consensus` publishes.

pub mod archive;
pub mod command;
pub mod snapshot;
pub mod state;
pub mod tables;
pub mod watch;

pub use command::{
    Applied, ApplyError, CaCommand, CheckOp, Command, ConfigOp, FederationCommand, KvOp, Outcome,
    RestoreOp, Topic,
};
pub use snapshot::SnapshotError;
pub use state::{Key, State};
pub use watch::{Store, Watch};

#[cfg(test)]
mod tests;
