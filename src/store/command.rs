//! What can be written, what comes of it, and who is to be woken.

use crate::model::query::{NodeCoordinate, RegisterRequest};
use crate::model::{
    CaConfiguration, CaProviderState, CaRoot, CheckId, CheckStatus, ConfigEntry, ConfigKind,
    Datacenter, FederationState, Index, KvEntry, NodeName, ServiceId, ServiceKind,
};
use crate::store::state::Key;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One write, as it stands in the Raft log. Variants are only ever added: an old log must stay readable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Changes nothing: proves that the log moves.
    Noop,
    /// Adds or updates a node, and perhaps a service and checks on it.
    Register(Box<RegisterRequest>),
    /// Removes a service (with its checks), a check, or with both empty the whole node.
    Deregister {
        /// The node; a missing one is no error.
        node: NodeName,
        /// The service instance to remove, or empty.
        service_id: ServiceId,
        /// The check to remove, or empty.
        check_id: CheckId,
    },
    /// Writes the key/value store.
    Kv(KvOp),
    /// Writes a config entry.
    Config(ConfigOp),
    /// Writes federation states and offers.
    Federation(FederationCommand),
    /// Writes what the Connect CA keeps.
    Ca(CaCommand),
    /// Writes about checks that the leader runs.
    Check(CheckOp),
    /// Replaces the whole state by a saved one.
    Restore(RestoreOp),
    /// Says where nodes are in the network.
    Coordinates(Vec<NodeCoordinate>),
}

/// Steps of replacing the whole state. One restore is under way at a time; a new one ends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RestoreOp {
    /// Begins.
    Begin {
        /// Names this restore.
        id: String,
    },
    /// Hands over the next bytes of the saved state.
    Part {
        /// The restore.
        id: String,
        /// How many bytes came before.
        at: u64,
        /// The bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Takes effect, if the bytes are a whole and undamaged state.
    Finish {
        /// The restore.
        id: String,
        /// How many bytes there must be.
        size: u64,
    },
    /// Forgets what was handed over.
    GiveUp {
        /// The restore.
        id: String,
    },
}

/// Writes about checks that the leader runs. They are conditional, because the catalog may change while a check runs: a
/// result never brings back a check that was removed meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CheckOp {
    /// Sets status and output of a check. Answers whether the check exists.
    Result {
        /// The node the check is on.
        node: NodeName,
        /// The check.
        check_id: CheckId,
        /// What came out.
        status: CheckStatus,
        /// What the run said.
        output: String,
    },
    /// Removes the service that a critical check belongs to, and the node if nothing else is on it. Answers whether: a
    /// check that is not critical, or that changed after `modify_index`, stops it.
    Reap {
        /// The node the check is on.
        node: NodeName,
        /// The check.
        check_id: CheckId,
        /// The check's index the proposer read.
        modify_index: Index,
    },
}

/// Writes to the key/value store. The indexes of the entry given are ignored unless said otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KvOp {
    /// Sets the value. Answers `true`.
    Set(KvEntry),
    /// Sets the value if the entry's `modify_index` is the stored one (0: if the key does not exist). Answers whether.
    Cas(KvEntry),
    /// Removes one key.
    Delete(Arc<str>),
    /// Removes one key if its index is this one. Answers whether.
    DeleteCas(Arc<str>, Index),
    /// Removes every key with this prefix.
    DeleteTree(Arc<str>),
}

/// Writes to config entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ConfigOp {
    /// Adds or replaces. Answers `true`.
    Upsert(ConfigEntry),
    /// Adds or replaces if the entry's `modify_index` is the stored one (0: if there is none). Answers whether.
    UpsertCas(ConfigEntry),
    /// Removes; a missing entry is no error.
    Delete(ConfigKind, String),
}

/// Writes to federation states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FederationCommand {
    /// Adds or replaces a replicated record. Answers `true`.
    Upsert(FederationState),
    /// Removes a replicated record; a missing one changes nothing.
    Delete(Datacenter),
    /// Keeps a record that its owner handed over directly, unless what is stored is as new. Answers whether it was kept.
    Offer(FederationState),
}

/// Writes of the Connect CA.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CaCommand {
    /// Replaces all roots if the table's index is `cas`. Answers whether.
    SetRoots {
        /// The index the proposer read.
        cas: Index,
        /// All roots, the active one included.
        roots: Vec<CaRoot>,
    },
    /// Replaces the configuration if its index is `cas` (when given). Answers whether.
    SetConfig {
        /// The index the proposer read.
        cas: Option<Index>,
        /// The configuration.
        config: CaConfiguration,
    },
    /// Replaces roots and configuration together, if both indexes still hold. Answers whether.
    SetRootsAndConfig {
        /// The roots' index the proposer read.
        cas: Index,
        /// All roots.
        roots: Vec<CaRoot>,
        /// The configuration's index the proposer read.
        config_cas: Index,
        /// The configuration.
        config: CaConfiguration,
    },
    /// Stores what a provider keeps. Answers `true`. The serial number never goes back.
    SetProviderState(CaProviderState),
    /// Removes what a provider kept.
    DeleteProviderState(String),
    /// Takes the next `count` serial numbers of a provider. Answers the last of them.
    NextSerials {
        /// The provider state's id.
        id: String,
        /// How many numbers, at least 1.
        count: u64,
    },
}

/// What a write came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was done and has no answer.
    Done,
    /// A yes-or-no answer, such as that of a compare-and-set.
    Bool(bool),
    /// A number, such as a serial number.
    Number(u64),
}

/// Why the state refuses a write. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ApplyError {
    /// The request is wrong in itself or conflicts with what is stored.
    #[error("{0}")]
    Refused(String),
}

impl ApplyError {
    /// A refusal with this text.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }
}

/// The effect of one [`Command`].
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The answer for the proposer.
    pub result: Result<Outcome, ApplyError>,
    /// What was touched; empty when nothing changed.
    pub topics: BTreeSet<Topic>,
}

/// What a reader can wait for. A write wakes the readers of the topics it touched and nobody else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Any node was added, changed or removed.
    Nodes,
    /// One node, or a service or check on it.
    Node(Key),
    /// Any service instance was added, changed or removed.
    Services,
    /// Instances of one service, their nodes or their checks.
    Service(Key),
    /// Instances of one kind, their nodes or their checks.
    ServiceKind(ServiceKind),
    /// Connect-capable instances of one service, their nodes or their checks.
    Connect(Key),
    /// Connect-capable instances of any service, their nodes or their checks.
    AnyConnect,
    /// Any check was added, changed or removed.
    Checks,
    /// One key of the key/value store; a waiter on it wakes for exactly this key.
    KvKey(Arc<str>),
    /// All keys with a prefix; only waited for, never touched itself.
    KvPrefix(Arc<str>),
    /// Config entries of one kind.
    ConfigKind(ConfigKind),
    /// One config entry.
    ConfigEntry(ConfigKind, String),
    /// Any config entry.
    AnyConfig,
    /// Any federation state or offer.
    FederationStates,
    /// The federation state of one datacenter.
    FederationState(Datacenter),
    /// Any coordinate.
    Coordinates,
    /// CA roots.
    CaRoots,
    /// CA configuration.
    CaConfig,
}
