//! The state as one immutable value, and the dispatch of commands to its tables.

use crate::model::ids::Index;
use crate::model::query::NodeCoordinate;
use crate::model::{
    CaConfiguration, CaProviderState, CaRoot, ConfigEntry, ConfigKind, Datacenter, FederationState,
    HealthCheck, KvEntry, Node, NodeService, ServiceKind,
};
use crate::store::command::{Applied, ApplyError, Command, Outcome, Topic};
use crate::store::tables::restore::Restoring;
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A name in lower case: the catalog finds nodes, services and checks whatever the case of the question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key(Arc<str>);

/// Whether `name` is its own lower case. Nearly every name is ASCII, where looking at the bytes is enough.
fn is_folded(name: &str) -> bool {
    match name.is_ascii() {
        true => !name.bytes().any(|byte| byte.is_ascii_uppercase()),
        false => name == name.to_lowercase(),
    }
}

impl Key {
    /// The key of a name; shares the text when it is lower case already.
    pub fn of(name: &Arc<str>) -> Self {
        if is_folded(name) {
            Self(name.clone())
        } else {
            Self(Arc::from(name.to_lowercase()))
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Before every other key.
    pub(crate) fn first() -> Self {
        Self(Arc::from(""))
    }
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        if is_folded(name) {
            Self(Arc::from(name))
        } else {
            Self(Arc::from(name.to_lowercase()))
        }
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// Rows of the table of indexes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum IndexRow {
    Nodes,
    Services,
    Checks,
    Kv,
    ConfigEntries,
    ConfigKind(ConfigKind),
    FederationStates,
    CaRoots,
    CaConfig,
    Service(Key),
    ServiceKind(ServiceKind),
    Connect(Key),
    ServiceLastExtinction,
    /// When removals of keys were last forgotten: no prefix shows an older index after that.
    KvForgotten,
    Coordinates,
}

/// Node, then id on that node.
pub(crate) type OnNode = (Key, Key);

/// The whole replicated state. Cloning it is O(1).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub(crate) last_index: Index,
    pub(crate) indexes: OrdMap<IndexRow, Index>,
    pub(crate) nodes: OrdMap<Key, Arc<Node>>,
    /// Node UUID (lower case) to the node's key.
    pub(crate) node_ids: OrdMap<Key, Key>,
    pub(crate) services: OrdMap<OnNode, Arc<NodeService>>,
    /// (service name, node, service id)
    pub(crate) services_by_name: OrdMap<(Key, Key, Key), Arc<NodeService>>,
    /// (kind, node, service id)
    pub(crate) services_by_kind: OrdMap<(ServiceKind, Key, Key), Arc<NodeService>>,
    /// (service that Connect clients mean, node, service id)
    pub(crate) connect: OrdMap<(Key, Key, Key), Arc<NodeService>>,
    pub(crate) checks: OrdMap<OnNode, Arc<HealthCheck>>,
    /// (node, service id or empty, check id)
    pub(crate) checks_by_service: OrdMap<(Key, Key, Key), Arc<HealthCheck>>,
    pub(crate) kv: OrdMap<Arc<str>, Arc<KvEntry>>,
    /// Indexes at which keys were removed, so that a prefix's index does not go back.
    pub(crate) tombstones: OrdMap<Arc<str>, Index>,
    pub(crate) config_entries: OrdMap<(ConfigKind, String), Arc<ConfigEntry>>,
    pub(crate) federation_states: OrdMap<Datacenter, Arc<FederationState>>,
    /// Records handed over by their owners that are newer than the replicated ones.
    pub(crate) federation_offers: OrdMap<Datacenter, Arc<FederationState>>,
    pub(crate) ca_roots: Arc<Vec<Arc<CaRoot>>>,
    pub(crate) ca_config: Option<Arc<CaConfiguration>>,
    pub(crate) ca_providers: OrdMap<String, Arc<CaProviderState>>,
    /// (node, network segment or empty)
    pub(crate) coordinates: OrdMap<OnNode, Arc<NodeCoordinate>>,
    /// What came so far of a saved state.
    pub(crate) restoring: Option<Restoring>,
}

/// A write in progress: the new state, its index, and what it touched so far.
pub(crate) struct Tx<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) index: Index,
    pub(crate) topics: BTreeSet<Topic>,
}

impl Tx<'_> {
    pub(crate) fn bump(&mut self, row: IndexRow) {
        self.state.indexes.insert(row, self.index);
    }

    pub(crate) fn touch(&mut self, topic: Topic) {
        self.topics.insert(topic);
    }
}

impl State {
    /// Applies one command at a Raft index. A refused command changes nothing but the last index seen.
    pub fn apply(&mut self, index: Index, command: &Command) -> Applied {
        let before = self.clone();
        let mut tx = Tx {
            state: self,
            index,
            topics: BTreeSet::new(),
        };
        let result = tx.run(command);
        let topics = std::mem::take(&mut tx.topics);
        if result.is_err() {
            *self = before;
        }
        self.last_index = self.last_index.max(index);
        Applied {
            topics: if result.is_ok() {
                topics
            } else {
                BTreeSet::new()
            },
            result,
        }
    }

    /// The highest index applied so far.
    pub fn last_index(&self) -> Index {
        self.last_index
    }

    pub(crate) fn row(&self, row: &IndexRow) -> Index {
        self.indexes.get(row).copied().unwrap_or(0)
    }
}

impl Tx<'_> {
    fn run(&mut self, command: &Command) -> Result<Outcome, ApplyError> {
        match command {
            Command::Noop => Ok(Outcome::Done),
            Command::Register(request) => self.register(request),
            Command::Deregister {
                node,
                service_id,
                check_id,
            } => {
                self.deregister(node, service_id, check_id);
                Ok(Outcome::Done)
            }
            Command::Kv(op) => Ok(self.kv(op)),
            Command::Config(op) => Ok(self.config(op)),
            Command::Federation(op) => self.federation(op),
            Command::Ca(op) => self.ca(op),
            Command::Check(op) => self.check_op(op),
            Command::Restore(op) => self.restore(op),
            Command::Coordinates(rows) => Ok(self.set_coordinates(rows)),
        }
    }
}
