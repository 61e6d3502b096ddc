//! The types openraft is built with.

use crate::consensus::entry::Sealed;
use crate::model::{NodeId, NodeName};
use crate::store::{ApplyError, Outcome};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Cursor;
use std::sync::Arc;

/// One server of the datacenter, as the Raft membership knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The node's UUID. Its first eight bytes are the Raft id.
    pub id: NodeId,
    /// The node's name.
    pub node: NodeName,
    /// Where its RPC port is reached: `host:port`.
    pub address: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.node, self.address)
    }
}

/// What one log entry carries: the commands of all who proposed at the same time, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proposal {
    pub(crate) commands: Arc<[Sealed]>,
}

/// The answers to a [`Proposal`], in the order of its commands.
pub(crate) type Answers = Vec<Result<Outcome, ApplyError>>;

openraft::declare_raft_types!(
    pub(crate) Types:
        D = Proposal,
        R = Answers,
        NodeId = u64,
        Node = Peer,
        Entry = openraft::Entry<Types>,
        SnapshotData = Cursor<Vec<u8>>,
);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, Peer>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, Peer>;
pub(crate) type Vote = openraft::Vote<u64>;
