//! What this server's own agent can do: services and checks registered with it, and facts about itself.

pub mod control;
mod departure;
mod facts;
pub mod pools;
mod services;

pub use control::{Control, Reload};
pub use departure::Departure;
pub use facts::{Facts, Member, Ports};
pub use pools::Pools;
pub use services::{AgentError, ServiceHealth, content_hash};

use crate::api::Api;
use crate::api::error::Error;
use crate::ca::{self, Ca};
use crate::local::Local;
use crate::model::{Index, IssuedCert, QueryOptions, Timestamp};
use crate::store::Topic;
use crate::telemetry::Metrics;
use std::sync::Arc;

/// The parts that the agent's verbs need.
#[derive(Clone)]
pub struct Agent {
    /// Services and checks registered with this server.
    pub local: Local,
    /// Gives out leaf certificates.
    pub ca: Ca,
    /// The process's metrics; `None` shows none.
    pub metrics: Option<Metrics>,
    /// What there is to know about this server.
    pub facts: Arc<Facts>,
    /// Who wants it to leave.
    pub departure: Departure,
    /// The gossip pools that this server is in.
    pub pools: Pools,
    /// The way to the process around this server.
    pub control: Control,
}

impl Api {
    /// The agent's parts.
    ///
    /// # Errors
    /// This server was put together without an agent.
    pub fn agent(&self) -> Result<&Agent, Error> {
        self.agent_part()
            .ok_or_else(|| Error::refused("This server runs without a local agent"))
    }

    /// A leaf certificate for a service, and its index. Waits while the client has that very certificate, until the roots
    /// change.
    ///
    /// # Errors
    /// [`ca::Error`] in text: no name, or no CA yet.
    pub async fn agent_leaf(
        &self,
        service: &str,
        options: &QueryOptions,
        now: impl Fn() -> Timestamp,
    ) -> Result<(Index, Arc<IssuedCert>), Error> {
        let ca = &self.agent()?.ca;
        let issue = async || {
            let state = self.store().latest();
            let whom = (service, &self.settings().datacenter);
            let sign = async |csr| self.sign_at_leader(csr).await;
            let leaf = ca.leaf(&state, whom, now(), sign).await;
            leaf.map_err(|error| match error {
                // Consul's words for a request that names nothing.
                ca::Error::Invalid(_) if service.is_empty() => {
                    Error::refused("URI must be either service or agent")
                }
                other => Error::refused(other.to_string()),
            })
        };
        // Leaves change when the roots do; when one grows old is seen when the wait is over. Read before the leaf is made,
        // so that a change in between ends the wait at once.
        let roots = self.store().latest().ca_roots().0;
        let leaf = issue().await?;
        if options.min_query_index == 0 || options.min_query_index != leaf.modify_index {
            return Ok((leaf.modify_index, leaf));
        }
        let wait = QueryOptions {
            min_query_index: roots,
            ..options.clone()
        };
        let topics = vec![Topic::CaRoots];
        self.wait(&Default::default(), &wait, topics, |state| {
            state.ca_roots().0
        })
        .await?;
        let leaf = issue().await?;
        Ok((leaf.modify_index, leaf))
    }
}
