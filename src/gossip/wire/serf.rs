//! serf's messages, inside memberlist's user messages, push/pulls and each other.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde::Serialize;

use crate::codec;
use crate::gossip::Member;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Error;
use crate::gossip::wire::NodeAddr;
use crate::gossip::wire::fields;
use crate::gossip::wire::message::decode;
use crate::gossip::wire::message::encode;
use crate::model::GoDuration;
use crate::model::NodeName;

/// A reading of a Lamport clock.
pub type LamportTime = u64;

/// What a serf message is: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SerfKind {
    /// Someone leaves.
    Leave = 0,
    /// Someone joins.
    Join = 1,
    /// All that serf knows.
    PushPull = 2,
    /// Something that someone tells all.
    UserEvent = 3,
    /// Something that someone asks all.
    Query = 4,
    /// An answer to that.
    QueryResponse = 5,
    /// The answer to the query about a name conflict.
    ConflictResponse = 6,
    /// The payload of a query that changes keys.
    KeyRequest = 7,
    /// The answer to a query about keys.
    KeyResponse = 8,
    /// A message to pass on.
    Relay = 9,
}

impl From<SerfKind> for u8 {
    fn from(kind: SerfKind) -> Self {
        kind as u8
    }
}

/// Someone leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Leave {
    /// When, by the clock of members.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// Who leaves.
    #[serde(rename = "Node")]
    pub node: NodeName,
    /// Whether members forget it at once.
    #[serde(rename = "Prune")]
    pub prune: bool,
}

/// Someone joins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Join {
    /// When, by the clock of members.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// Who joins.
    #[serde(rename = "Node")]
    pub node: NodeName,
}

/// A user event without its time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PastEvent {
    /// What happened.
    pub name: String,
    /// What its receivers should know of it.
    pub payload: Blob,
}

/// The user events of one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PastEvents {
    /// When, by the clock of events.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// What happened.
    #[serde(rename = "Events", deserialize_with = "fields::bounded_list")]
    pub events: Vec<PastEvent>,
}

/// All that serf knows and memberlist does not. Go peers write a slot for each of the latest 512 times, most of them
/// nil; only what happened is kept and written here, which tells them the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PushPull {
    /// The clock of members.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// When each member's status was last changed.
    #[serde(rename = "StatusLTimes", deserialize_with = "fields::bounded_map")]
    pub status_ltimes: BTreeMap<NodeName, LamportTime>,
    /// Who left in order.
    #[serde(rename = "LeftMembers", deserialize_with = "fields::bounded_list")]
    pub left_members: Vec<NodeName>,
    /// The clock of events.
    #[serde(rename = "EventLTime")]
    pub event_ltime: LamportTime,
    /// The latest events.
    #[serde(rename = "Events", deserialize_with = "fields::bounded_present")]
    pub events: Vec<PastEvents>,
    /// The clock of queries.
    #[serde(rename = "QueryLTime")]
    pub query_ltime: LamportTime,
}

/// Something that someone tells all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserEvent {
    /// When, by the clock of events.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// What happened.
    #[serde(rename = "Name")]
    pub name: String,
    /// What its receivers should know of it.
    #[serde(rename = "Payload")]
    pub payload: Blob,
    /// Whether later events of the name replace this one.
    #[serde(rename = "CC")]
    pub coalesce: bool,
}

/// Something that someone asks all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Query {
    /// When, by the clock of queries.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// Tells queries of one time apart.
    #[serde(rename = "ID")]
    pub id: u32,
    /// Where answers go.
    pub addr: NodeAddr,
    /// Port of `addr`.
    pub port: u16,
    /// Name of who asks, by which answers find their way through mesh gateways. Peers before serf 0.9 leave it out.
    #[serde(skip_serializing_if = "NodeName::is_empty")]
    pub source_node: NodeName,
    /// Who should answer: all of these [filters](Filter) must hold.
    #[serde(deserialize_with = "fields::bounded_list")]
    pub filters: Vec<Blob>,
    /// [`Query::ACK`] and [`Query::NO_BROADCAST`].
    pub flags: u32,
    /// Over how many others an answer goes too, in case the direct way fails.
    pub relay_factor: u8,
    /// For how long answers are of interest.
    pub timeout: GoDuration,
    /// What is asked; names from `_serf_` on are serf's own.
    pub name: String,
    /// What is asked, in detail.
    pub payload: Blob,
}

impl Query {
    /// Flag: whoever receives the query acknowledges that, whether it answers or not.
    pub const ACK: u32 = 1;
    /// Flag: receivers do not pass the query on.
    pub const NO_BROADCAST: u32 = 2;

    /// Whether receivers acknowledge.
    pub fn wants_ack(&self) -> bool {
        self.flags & Self::ACK != 0
    }

    /// Whether receivers keep it to themselves.
    pub fn is_private(&self) -> bool {
        self.flags & Self::NO_BROADCAST != 0
    }
}

/// Who should answer a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// These nodes.
    Nodes(Vec<NodeName>),
    /// Nodes whose tag matches a regular expression.
    Tag {
        /// The tag.
        name: String,
        /// The regular expression, in Go's syntax.
        pattern: String,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct NodeFilter(#[serde(deserialize_with = "fields::bounded_list")] Vec<NodeName>);

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TagFilter {
    tag: String,
    expr: String,
}

impl Filter {
    const NODES: u8 = 0;
    const TAG: u8 = 1;

    /// The filter as one of a query's.
    ///
    /// # Errors
    /// When something is longer than msgpack can say.
    pub fn encode(&self) -> Result<Blob, Error> {
        let bytes = match self {
            Self::Nodes(nodes) => encode(Self::NODES, nodes),
            Self::Tag { name, pattern } => {
                let (tag, expr) = (name.clone(), pattern.clone());
                encode(Self::TAG, &TagFilter { tag, expr })
            }
        };
        bytes.map(Blob::from)
    }

    /// Reads one of a query's filters.
    ///
    /// # Errors
    /// When it is none that is known: nobody who does not understand a filter may answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (kind, body) = bytes.split_first().ok_or(Error::Empty)?;
        match *kind {
            Self::NODES => Ok(Self::Nodes(decode::<NodeFilter>(body)?.0)),
            Self::TAG => {
                let filter: TagFilter = decode(body)?;
                Ok(Self::Tag {
                    name: filter.tag,
                    pattern: filter.expr,
                })
            }
            other => Err(Error::Kind(other)),
        }
    }
}

/// An answer to a query.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QueryResponse {
    /// The time of the query.
    #[serde(rename = "LTime")]
    pub ltime: LamportTime,
    /// The id of the query.
    #[serde(rename = "ID")]
    pub id: u32,
    /// Who answers.
    pub from: NodeName,
    /// [`QueryResponse::ACK`].
    pub flags: u32,
    /// What it answers.
    pub payload: Blob,
}

impl QueryResponse {
    /// Flag: says only that the query was received.
    pub const ACK: u32 = 1;

    /// Whether it says only that the query was received.
    pub fn is_ack(&self) -> bool {
        self.flags & Self::ACK != 0
    }
}

/// The payload of a query that installs, uses or removes a key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KeyRequest {
    /// The key: a secret.
    pub key: Blob,
}

impl std::fmt::Debug for KeyRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyRequest({} bytes)", self.key.len())
    }
}

/// The answer to a query about keys.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KeyResponse {
    /// Whether it was done.
    pub result: bool,
    /// Why not.
    pub message: String,
    /// To the query that lists keys: all keys in base64, which are secrets.
    #[serde(deserialize_with = "fields::bounded_list")]
    pub keys: Vec<String>,
    /// The primary key in base64, a secret. Only from serf 0.9.4 on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub primary_key: String,
}

impl std::fmt::Debug for KeyResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyResponse")
            .field("result", &self.result)
            .field("message", &self.message)
            .field("keys", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Go's `net.UDPAddr`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Endpoint {
    /// The address.
    #[serde(rename = "IP")]
    pub ip: NodeAddr,
    /// The port.
    pub port: u16,
    /// Zone of a link-local IPv6 address.
    pub zone: String,
}

/// Where a message shall be passed on to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RelayHeader {
    /// The address.
    pub dest_addr: Endpoint,
    /// The name, by which it is reached through mesh gateways. Peers before serf 0.9 leave it out.
    #[serde(skip_serializing_if = "NodeName::is_empty")]
    pub dest_name: NodeName,
}

/// A message of serf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SerfMessage {
    /// Someone leaves.
    Leave(Leave),
    /// Someone joins.
    Join(Join),
    /// All that serf knows: the user state of a push/pull.
    PushPull(PushPull),
    /// Something that someone tells all.
    UserEvent(UserEvent),
    /// Something that someone asks all.
    Query(Query),
    /// An answer to that.
    QueryResponse(QueryResponse),
    /// Payload of an answer: who has the name that is in conflict.
    ConflictResponse(Box<Member>),
    /// Payload of a query that changes keys.
    KeyRequest(KeyRequest),
    /// Payload of an answer about keys.
    KeyResponse(KeyResponse),
    /// A message to pass on, unread.
    Relay(RelayHeader, Bytes),
}

impl SerfMessage {
    /// The message as bytes, its kind first.
    ///
    /// # Errors
    /// When a field is longer than msgpack can say.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Leave(body) => encode(SerfKind::Leave, body),
            Self::Join(body) => encode(SerfKind::Join, body),
            Self::PushPull(body) => encode(SerfKind::PushPull, body),
            Self::UserEvent(body) => encode(SerfKind::UserEvent, body),
            Self::Query(body) => encode(SerfKind::Query, body),
            Self::QueryResponse(body) => encode(SerfKind::QueryResponse, body),
            Self::ConflictResponse(body) => encode(SerfKind::ConflictResponse, body),
            Self::KeyRequest(body) => encode(SerfKind::KeyRequest, body),
            Self::KeyResponse(body) => encode(SerfKind::KeyResponse, body),
            Self::Relay(header, message) => {
                let mut out = encode(SerfKind::Relay, header)?;
                out.extend_from_slice(message);
                Ok(out)
            }
        }
    }

    /// Reads one message. What follows it is left alone, as Go peers do.
    ///
    /// # Errors
    /// When it is none that is known.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (&kind, mut body) = bytes.split_first().ok_or(Error::Empty)?;
        Ok(match kind {
            0 => Self::Leave(decode(body)?),
            1 => Self::Join(decode(body)?),
            2 => Self::PushPull(decode(body)?),
            3 => Self::UserEvent(decode(body)?),
            4 => Self::Query(decode(body)?),
            5 => Self::QueryResponse(decode(body)?),
            6 => Self::ConflictResponse(decode(body)?),
            7 => Self::KeyRequest(decode(body)?),
            8 => Self::KeyResponse(decode(body)?),
            9 => {
                let header = codec::take(&mut body)?;
                Self::Relay(header, Bytes::copy_from_slice(body))
            }
            other => return Err(Error::Kind(other)),
        })
    }
}

#[cfg(test)]
mod tests;
