//! What this server can do: one function per verb, shared by every edge.
//!
//! ```text
//!   http, rpc, operator --typed request--> Api::verb
//!        reads:  route -> wait (blocking query) -> Answer { meta, rows }    rows are made only when they are asked for
//!        writes: validate -> route -> Consensus::propose -> Outcome
//! ```
//!
//! Absent on purpose: no JSON, no status codes, no msgpack. The requests are the ones of [`crate::model::query`], so that
//! the RPC edge passes on what it decoded.

pub mod agent;
pub mod catalog;
pub mod config_entry;
pub mod connect;
pub mod coordinate;
pub mod error;
pub mod federation_state;
pub(crate) mod filter;
pub mod forward;
pub mod health;
pub mod internal;
pub mod kv;
pub mod node_info;
pub mod operator;
mod patience;
pub mod read;
pub mod register;
pub mod route;
pub(crate) mod rpc;
pub mod service_config;
mod service_node;
mod sign;
pub mod snapshot;
pub mod status;

pub use error::Error;
pub use read::Answer;
pub use rpc::METHODS as RPC_METHODS;

use crate::api::agent::Agent;
use crate::consensus::{Consensus, ProposeError};
use crate::model::{Datacenter, NodeName};
use crate::store::{Command, Outcome, Store};
use std::sync::Arc;
use std::time::Duration;

/// What an [`Api`] needs to know of the configuration.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The datacenter this server belongs to.
    pub datacenter: Datacenter,
    /// The domain of server names in certificates, without a final dot.
    pub domain: String,
    /// This server's node.
    pub node: NodeName,
    /// How long a request waits for a leader (`rpc_hold_timeout`).
    pub hold: Duration,
    /// How long a blocking query waits when the client does not say (`default_query_time`).
    pub default_query_time: Duration,
    /// The longest wait of a blocking query (`max_query_time`).
    pub max_query_time: Duration,
    /// The largest value of a key in bytes (`kv_max_value_size`).
    pub kv_max_value_size: usize,
    /// How long updates of coordinates are collected before they are written.
    pub coordinate_period: Duration,
    /// How stale reads of the catalog and of health may be that do not say how fresh they want to be
    /// (`discovery_max_stale`); zero has the leader answer.
    pub discovery_max_stale: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            datacenter: Datacenter::from("dc1"),
            domain: "consul".to_owned(),
            node: NodeName::default(),
            hold: Duration::from_secs(7),
            default_query_time: Duration::from_secs(300),
            max_query_time: Duration::from_secs(600),
            kv_max_value_size: 512 * 1024,
            coordinate_period: Duration::from_secs(5),
            discovery_max_stale: Duration::ZERO,
        }
    }
}

/// The server's verbs. Cloning it shares it.
#[derive(Clone)]
pub struct Api {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    consensus: Consensus,
    agent: Option<Agent>,
    places: snapshot::Places,
    staged: coordinate::Staged,
    leader: Option<forward::Leader>,
}

impl Api {
    /// Verbs over the replicated state.
    pub fn new(settings: Settings, consensus: Consensus) -> Self {
        Self {
            inner: Arc::new(Inner {
                settings,
                consensus,
                agent: None,
                places: snapshot::Places::default(),
                staged: coordinate::Staged::default(),
                leader: None,
            }),
        }
    }

    /// Verbs over the replicated state, and those of this server's own agent.
    pub fn with_agent(settings: Settings, consensus: Consensus, agent: Agent) -> Self {
        Self {
            inner: Arc::new(Inner {
                settings,
                consensus,
                agent: Some(agent),
                places: snapshot::Places::default(),
                staged: coordinate::Staged::default(),
                leader: None,
            }),
        }
    }

    /// Adds the way to the leader, for what only it can do. To be called before the verbs are shared.
    #[must_use]
    pub fn with_leader(mut self, leader: forward::Leader) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.leader = Some(leader);
        }
        self
    }

    pub(crate) fn leader_way(&self) -> Option<&forward::Leader> {
        self.inner.leader.as_ref()
    }

    pub(crate) fn agent_part(&self) -> Option<&Agent> {
        self.inner.agent.as_ref()
    }

    /// What it was made with.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The log behind the verbs.
    pub fn consensus(&self) -> &Consensus {
        &self.inner.consensus
    }

    /// The state that reads see.
    pub fn store(&self) -> &Store {
        self.inner.consensus.store()
    }

    /// Writes through the log, if this datacenter is the one meant. A write that surely did not happen because there was no
    /// leader, or it could not be reached, is tried again within the hold time.
    ///
    /// # Errors
    /// No path to the datacenter, no leader in time, or what the state or the log says.
    pub async fn write(&self, datacenter: &Datacenter, command: Command) -> Result<Outcome, Error> {
        self.reach_datacenter(datacenter)?;
        let mut patience = self.patience();
        loop {
            patience.role();
            let problem = match self.consensus().propose(command.clone()).await {
                Ok(written) => return Ok(written.outcome),
                Err(
                    error @ (ProposeError::NoLeader
                    | ProposeError::NotLeader { .. }
                    | ProposeError::Unreached { .. }),
                ) => error.into(),
                Err(error) => return Err(error.into()),
            };
            patience.pause(problem).await?;
        }
    }
}
