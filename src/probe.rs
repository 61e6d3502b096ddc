//! The leader runs the checks of catalog nodes that have no agent: mesh gateways, above all.
//!
//! ```text
//!   catalog (topic Checks) --+
//!   xDS stream opens, ends --+--> prober (pure: what, when) --> Runner --> report --> CheckOp::Result --> catalog
//!   deadlines ---------------+                                                   \--> CheckOp::Reap
//! ```
//!
//! A node has an agent if it has the check `serfHealth`. Which checks to run stands in the catalog alone, so a new leader
//! takes over by reading it; how long a check has been critical is counted anew by each leader.
//!
//! A stream that opens or ends is news about its gateway: its checks run at once, and some more times shortly after,
//! because a listener opens a moment after the stream and closes a moment before or after it.
//!
//! Absent on purpose: no membership, no checks of nodes with agents, no polling.

pub mod leader;
pub mod prober;

pub use leader::{Context, run_leader};
pub use prober::{Prober, Settings};

use crate::model::{NodeName, ServiceId};

/// An xDS stream of a proxy opened or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyEvent {
    /// The proxy's node.
    pub node: NodeName,
    /// The proxy's service instance.
    pub service_id: ServiceId,
    /// Whether the stream opened; else it ended.
    pub opened: bool,
}
