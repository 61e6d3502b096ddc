//! What the verbs need of the replicated log.

use crate::api::error::Error;
use crate::model::Index;
use crate::store::{Command, Outcome, Store};
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::watch;

/// What this server is in its cluster, and whom it follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether it leads.
    pub leads: bool,
    /// RPC address (`ip:port`) of the leader, itself included; `None` while there is none.
    pub leader: Option<String>,
}

/// A write that is in the log and in the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it stands in the log.
    pub index: Index,
    /// What it came to.
    pub outcome: Outcome,
}

/// The replicated log as the verbs see it.
#[async_trait]
pub trait Cluster: Send + Sync + 'static {
    /// Writes one command and waits until the local state has it.
    ///
    /// # Errors
    /// No leader, a refusal by the state, or a failed log.
    async fn propose(&self, command: Command) -> Result<Written, Error>;

    /// The state that reads see.
    fn store(&self) -> &Store;

    /// Leadership, and its changes.
    fn standing(&self) -> watch::Receiver<Standing>;

    /// Makes sure, with a majority, that this server still leads and has applied all that was acknowledged.
    ///
    /// # Errors
    /// It does not, or could not find out in time.
    async fn verify_leader(&self) -> Result<(), Error>;

    /// How long ago the leader was heard from; zero on the leader, `None` if never.
    fn last_contact(&self) -> Option<Duration>;

    /// RPC addresses of the servers in the Raft configuration, in order.
    fn peers(&self) -> Vec<String>;
}
