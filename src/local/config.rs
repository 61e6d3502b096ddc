//! What the agent needs to know of the configuration.

use crate::local::checks::{DEFAULT_OUTPUT_MAX, Limits};
use crate::model::catalog::StringMap;
use crate::model::{Datacenter, NodeId, NodeName};
use std::path::PathBuf;
use std::time::Duration;

/// This server as the catalog knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The own datacenter.
    pub datacenter: Datacenter,
    /// The node's name.
    pub node: NodeName,
    /// The node's UUID.
    pub id: NodeId,
    /// The node's address.
    pub address: String,
    /// `lan`, `wan` and their kin.
    pub tagged_addresses: StringMap,
    /// The node's metadata.
    pub meta: StringMap,
}

/// How local services are kept and synced.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who this server is.
    pub identity: Identity,
    /// Where registrations are kept; `None` (`-dev`) keeps nothing.
    pub data_dir: Option<PathBuf>,
    /// `check_update_interval`: about how long a change of output alone may wait. Zero writes it at once. Default 5 m.
    pub check_update_interval: Duration,
    /// `check_output_max_size`: bytes of output kept, at least 1. Default 4096.
    pub output_max: usize,
    /// `discard_check_output`: keep no output at all. Default false.
    pub discard_output: bool,
    /// Time between two comparisons with the whole catalog, before scaling with the number of nodes. Default 1 m.
    pub sync_interval: Duration,
    /// Time until a failed write is tried again. Default 15 s.
    pub retry_interval: Duration,
    /// Bounds of definitions.
    pub limits: Limits,
}

impl Config {
    /// The defaults for this server.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            data_dir: None,
            check_update_interval: Duration::from_secs(300),
            output_max: DEFAULT_OUTPUT_MAX,
            discard_output: false,
            sync_interval: Duration::from_secs(60),
            retry_interval: Duration::from_secs(15),
            limits: Limits::default(),
        }
    }
}
