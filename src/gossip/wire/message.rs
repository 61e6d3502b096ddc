//! memberlist's messages.

use bytes::Bytes;
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Error;
use crate::gossip::wire::NodeAddr;
use crate::gossip::wire::Versions;
use crate::gossip::wire::fields;
use crate::model::NodeName;

/// What a message is: its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A probe.
    Ping = 0,
    /// A request to probe someone else.
    IndirectPing = 1,
    /// The answer to a probe.
    Ack = 2,
    /// Someone is suspected to be dead.
    Suspect = 3,
    /// Someone is alive.
    Alive = 4,
    /// Someone is dead or has left.
    Dead = 5,
    /// All that a node knows.
    PushPull = 6,
    /// Several messages.
    Compound = 7,
    /// A message of the layer above, which is serf.
    User = 8,
    /// A compressed message.
    Compress = 9,
    /// An encrypted stream message.
    Encrypt = 10,
    /// The answer to a request to probe someone else who does not answer.
    Nack = 11,
    /// A packet with a checksum.
    Checksum = 12,
    /// Why a stream is refused.
    Error = 13,
}

impl From<Kind> for u8 {
    fn from(kind: Kind) -> Self {
        kind as u8
    }
}

impl TryFrom<u8> for Kind {
    type Error = Error;

    fn try_from(byte: u8) -> Result<Self, Error> {
        Ok(match byte {
            0 => Self::Ping,
            1 => Self::IndirectPing,
            2 => Self::Ack,
            3 => Self::Suspect,
            4 => Self::Alive,
            5 => Self::Dead,
            6 => Self::PushPull,
            7 => Self::Compound,
            8 => Self::User,
            9 => Self::Compress,
            10 => Self::Encrypt,
            11 => Self::Nack,
            12 => Self::Checksum,
            13 => Self::Error,
            other => return Err(Error::Kind(other)),
        })
    }
}

/// A probe. Its sender says where the answer goes, because what it came through may not be its own address.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ping {
    /// Number that the answer repeats.
    pub seq_no: u32,
    /// Who is meant: another agent that took over the address does not answer.
    pub node: NodeName,
    /// Address of the sender.
    #[serde(skip_serializing_if = "NodeAddr::is_unset")]
    pub source_addr: NodeAddr,
    /// Port of the sender; 0 when it does not say.
    #[serde(skip_serializing_if = "fields::is_zero")]
    pub source_port: u16,
    /// Name of the sender, by which the answer finds its way through mesh gateways.
    #[serde(skip_serializing_if = "NodeName::is_empty")]
    pub source_node: NodeName,
}

/// A request to probe `node` and pass its answer on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct IndirectPing {
    /// Number that the answer repeats.
    pub seq_no: u32,
    /// Address of the node to probe.
    pub target: NodeAddr,
    /// Port of the node to probe.
    pub port: u16,
    /// The node to probe.
    pub node: NodeName,
    /// Whether the sender wants to hear that there was no answer.
    pub nack: bool,
    /// Address of the sender.
    #[serde(skip_serializing_if = "NodeAddr::is_unset")]
    pub source_addr: NodeAddr,
    /// Port of the sender; 0 when it does not say.
    #[serde(skip_serializing_if = "fields::is_zero")]
    pub source_port: u16,
    /// Name of the sender.
    #[serde(skip_serializing_if = "NodeName::is_empty")]
    pub source_node: NodeName,
}

/// The answer to a probe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Ack {
    /// The number of the probe.
    pub seq_no: u32,
    /// From serf: a [coordinate](crate::gossip::Coordinate), or nothing.
    pub payload: Blob,
}

/// The answer to a request to probe someone who does not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Nack {
    /// The number of the request.
    pub seq_no: u32,
}

/// `from` suspects `node` in its life `incarnation`, or takes it for dead; a node that says so of itself leaves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Accusation {
    /// The latest life of `node` that `from` knows of.
    pub incarnation: u32,
    /// Who is accused.
    pub node: NodeName,
    /// Who accuses.
    pub from: NodeName,
}

/// `node` is alive, at this address, with this meta.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Alive {
    /// Raised by the node itself, to refute what is said about it.
    pub incarnation: u32,
    /// Who is alive.
    pub node: NodeName,
    /// Its address.
    pub addr: NodeAddr,
    /// Its port.
    pub port: u16,
    /// What it says about itself: [tags](crate::gossip::Tags).
    pub meta: Blob,
    /// The protocols that it speaks.
    pub vsn: Versions,
}

/// A message of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A probe.
    Ping(Ping),
    /// A request to probe someone else.
    IndirectPing(IndirectPing),
    /// The answer to a probe.
    Ack(Ack),
    /// The answer that there was none.
    Nack(Nack),
    /// Someone is suspected to be dead.
    Suspect(Accusation),
    /// Someone is alive.
    Alive(Alive),
    /// Someone is dead or has left.
    Dead(Accusation),
    /// A [serf message](crate::gossip::SerfMessage).
    User(Bytes),
}

impl Message {
    /// What the message is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Ping(_) => Kind::Ping,
            Self::IndirectPing(_) => Kind::IndirectPing,
            Self::Ack(_) => Kind::Ack,
            Self::Nack(_) => Kind::Nack,
            Self::Suspect(_) => Kind::Suspect,
            Self::Alive(_) => Kind::Alive,
            Self::Dead(_) => Kind::Dead,
            Self::User(_) => Kind::User,
        }
    }

    /// The message as bytes, its kind first.
    ///
    /// # Errors
    /// When a field is longer than msgpack can say.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Ping(body) => encode(Kind::Ping, body),
            Self::IndirectPing(body) => encode(Kind::IndirectPing, body),
            Self::Ack(body) => encode(Kind::Ack, body),
            Self::Nack(body) => encode(Kind::Nack, body),
            Self::Suspect(body) => encode(Kind::Suspect, body),
            Self::Alive(body) => encode(Kind::Alive, body),
            Self::Dead(body) => encode(Kind::Dead, body),
            Self::User(body) => {
                let mut out = vec![Kind::User.into()];
                out.extend_from_slice(body);
                Ok(out)
            }
        }
    }

    /// Reads one message that no other contains. What follows it is left alone, as Go peers do.
    ///
    /// # Errors
    /// When it is no message, or one that only wraps others or only travels on streams.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (&kind, body) = bytes.split_first().ok_or(Error::Empty)?;
        Ok(match Kind::try_from(kind)? {
            Kind::Ping => Self::Ping(decode(body)?),
            Kind::IndirectPing => Self::IndirectPing(decode(body)?),
            Kind::Ack => Self::Ack(decode(body)?),
            Kind::Nack => Self::Nack(decode(body)?),
            Kind::Suspect => Self::Suspect(decode(body)?),
            Kind::Alive => Self::Alive(decode(body)?),
            Kind::Dead => Self::Dead(decode(body)?),
            Kind::User => Self::User(Bytes::copy_from_slice(body)),
            Kind::PushPull
            | Kind::Compound
            | Kind::Compress
            | Kind::Encrypt
            | Kind::Checksum
            | Kind::Error => return Err(Error::Kind(kind)),
        })
    }
}

/// A body behind its kind.
pub(super) fn encode<T: Serialize>(kind: impl Into<u8>, body: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(128);
    out.push(kind.into());
    codec::append(&mut out, body)?;
    Ok(out)
}

/// A body without its kind, and maybe with something behind it.
pub(super) fn decode<T: DeserializeOwned>(mut body: &[u8]) -> Result<T, Error> {
    Ok(codec::take(&mut body)?)
}
