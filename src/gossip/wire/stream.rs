//! Streams: one message, maybe compressed, encrypted; without any length in front of it unless encrypted.

use bytes::Bytes;
use serde::Deserialize;
use serde::Serialize;

use crate::codec;
use crate::codec::Scanner;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Error;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::NodeAddr;
use crate::gossip::wire::Outgoing;
use crate::gossip::wire::Versions;
use crate::gossip::wire::fields::MAX_ENTRIES;
use crate::gossip::wire::keyring::Nonce;
use crate::gossip::wire::lzw;
use crate::gossip::wire::message;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::Kind;
use crate::gossip::wire::message::Ping;
use crate::model::NodeName;

/// Most bytes of a message, as sent and once decrypted and unfolded: memberlist's limit of a push/pull.
pub const MAX_MESSAGE: usize = 20 << 20;

/// Bytes before the ciphertext, which it is bound to: the kind and the length.
const ENCRYPTED_HEAD: usize = 5;

/// A member's life as memberlist sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub enum NodeState {
    /// It answers.
    #[default]
    Alive,
    /// It does not answer; soon it counts as dead.
    Suspect,
    /// It does not answer.
    Dead,
    /// It said that it is gone.
    Left,
    /// A state of a later version.
    Other(u8),
}

impl From<u8> for NodeState {
    fn from(number: u8) -> Self {
        match number {
            0 => Self::Alive,
            1 => Self::Suspect,
            2 => Self::Dead,
            3 => Self::Left,
            other => Self::Other(other),
        }
    }
}

impl From<NodeState> for u8 {
    fn from(state: NodeState) -> Self {
        match state {
            NodeState::Alive => 0,
            NodeState::Suspect => 1,
            NodeState::Dead => 2,
            NodeState::Left => 3,
            NodeState::Other(other) => other,
        }
    }
}

/// What the sender of a push/pull knows of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct PushNodeState {
    /// Its name.
    pub name: NodeName,
    /// Its address.
    pub addr: NodeAddr,
    /// Its port.
    pub port: u16,
    /// What it says about itself: [tags](crate::gossip::Tags).
    pub meta: Blob,
    /// Its latest life.
    pub incarnation: u32,
    /// Whether it lives.
    pub state: NodeState,
    /// The protocols that it speaks.
    pub vsn: Versions,
}

/// All that a node knows: sent by both sides of a push/pull.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushPull {
    /// Whether the sender joins, rather than compares notes.
    pub join: bool,
    /// The members that it knows.
    pub nodes: Vec<PushNodeState>,
    /// From serf: a [push/pull message](crate::gossip::wire::serf::PushPull), or nothing.
    pub user_state: Bytes,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PushPullHeader {
    nodes: u32,
    user_state_len: u32,
    join: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct UserHeader {
    user_msg_len: u32,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Refusal {
    error: String,
}

/// A message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamMessage {
    /// A probe by those whose packets were not answered.
    Ping(Ping),
    /// The answer to it.
    Ack(Ack),
    /// All that a node knows.
    PushPull(PushPull),
    /// A [serf message](crate::gossip::wire::SerfMessage) that is too long for a packet.
    User(Bytes),
    /// Why the peer refuses what it was sent.
    Refused(String),
}

impl StreamMessage {
    /// The message as bytes, its kind first.
    ///
    /// # Errors
    /// When something is longer than its length can say.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        match self {
            Self::Ping(body) => message::encode(Kind::Ping, body),
            Self::Ack(body) => message::encode(Kind::Ack, body),
            Self::PushPull(body) => body.encode(),
            Self::User(body) => {
                let header = UserHeader {
                    user_msg_len: length("a user message", body.len())?,
                };
                let mut out = message::encode(Kind::User, &header)?;
                out.extend_from_slice(body);
                Ok(out)
            }
            Self::Refused(error) => {
                let error = error.clone();
                message::encode(Kind::Error, &Refusal { error })
            }
        }
    }

    /// Reads a whole message that is neither encrypted nor compressed. What follows it is left alone.
    fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (&kind, mut body) = bytes.split_first().ok_or(Error::Empty)?;
        Ok(match Kind::try_from(kind)? {
            Kind::Ping => Self::Ping(message::decode(body)?),
            Kind::Ack => Self::Ack(message::decode(body)?),
            Kind::Error => Self::Refused(message::decode::<Refusal>(body)?.error),
            Kind::User => {
                let header: UserHeader = codec::take(&mut body)?;
                Self::User(tail(body, header.user_msg_len)?)
            }
            Kind::PushPull => {
                let header: PushPullHeader = codec::take(&mut body)?;
                let mut nodes = Vec::new();
                for _ in 0..node_count(&header)? {
                    nodes.push(codec::take(&mut body)?);
                }
                Self::PushPull(PushPull {
                    join: header.join,
                    nodes,
                    user_state: tail(body, header.user_state_len)?,
                })
            }
            _ => return Err(Error::Kind(kind)),
        })
    }
}

impl PushPull {
    fn encode(&self) -> Result<Vec<u8>, Error> {
        let header = PushPullHeader {
            nodes: length("a count of nodes", self.nodes.len())?,
            user_state_len: length("a user state", self.user_state.len())?,
            join: self.join,
        };
        let mut out = message::encode(Kind::PushPull, &header)?;
        for node in &self.nodes {
            codec::append(&mut out, node)?;
        }
        out.extend_from_slice(&self.user_state);
        Ok(out)
    }
}

fn too_large(what: &'static str, size: usize, limit: usize) -> Error {
    Error::TooLarge { what, size, limit }
}

fn length(what: &'static str, len: usize) -> Result<u32, Error> {
    let fits = u32::try_from(len).ok().filter(|_| len <= MAX_MESSAGE);
    fits.ok_or(too_large(what, len, MAX_MESSAGE))
}

fn node_count(header: &PushPullHeader) -> Result<usize, Error> {
    let count = header.nodes as usize;
    match count <= MAX_ENTRIES {
        true => Ok(count),
        false => Err(too_large("a count of nodes", count, MAX_ENTRIES)),
    }
}

fn tail(body: &[u8], len: u32) -> Result<Bytes, Error> {
    let bytes = body.get(..len as usize).ok_or(Error::Truncated)?;
    Ok(Bytes::copy_from_slice(bytes))
}

/// Wraps a message as the bytes to send.
///
/// `nonce` counts only with a keyring, and must then be new and random.
///
/// # Errors
/// When it is longer than [`MAX_MESSAGE`], or encryption fails.
pub fn seal(
    message: &StreamMessage,
    outgoing: &Outgoing<'_>,
    nonce: Nonce,
) -> Result<Vec<u8>, Error> {
    let mut bytes = message.encode()?;
    length("a message", bytes.len())?; // Before compression: the receiver limits that too.
    if outgoing.compress {
        bytes = lzw::compress(&bytes)?;
    }
    let Some(ring) = outgoing.keyring else {
        return Ok(bytes);
    };
    let len = length(
        "an encrypted message",
        outgoing.encryption.encrypted_len(bytes.len()),
    )?;
    let [a, b, c, d] = len.to_be_bytes();
    let head: [u8; ENCRYPTED_HEAD] = [Kind::Encrypt.into(), a, b, c, d];
    let mut out = head.to_vec();
    ring.seal(outgoing.encryption, nonce, &bytes, &head, &mut out)?;
    Ok(out)
}

/// Finds the end of a message that arrives bit by bit, and reads it. Give it what arrived until it gives the message.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    scanner: Scanner,
    /// Bytes of the values that are complete.
    complete: usize,
    /// What comes after the value that is awaited; `None` before the header is there.
    after: Option<After>,
}

/// What a header says will follow.
#[derive(Debug, Clone, Copy)]
struct After {
    values: usize,
    bytes: usize,
}

impl StreamDecoder {
    /// Looks at all that has `arrived`: what was shown before, and maybe more. Gives the message once it is complete.
    ///
    /// # Errors
    /// When it is no message, longer than [`MAX_MESSAGE`], or not protected as it must be. The stream is of no use then.
    pub fn advance(
        &mut self,
        arrived: &[u8],
        incoming: &Incoming<'_>,
    ) -> Result<Option<StreamMessage>, Error> {
        let Some((&kind, rest)) = arrived.split_first() else {
            return Ok(None);
        };
        let kind = Kind::try_from(kind)?;
        if kind == Kind::Encrypt {
            let plain = decrypted(arrived, incoming)?;
            return plain.map(|plain| unfolded(&plain)).transpose();
        }
        if incoming.keyring.is_some() && !incoming.allow_plain {
            return Err(Error::NotEncrypted);
        }
        match self.end(kind, rest)? {
            Some(end) => unfolded(arrived.get(..=end).unwrap_or(arrived)).map(Some),
            None => Ok(None),
        }
    }

    /// How many bytes of `body`, which comes after the kind, belong to the message, once they are all there.
    fn end(&mut self, kind: Kind, body: &[u8]) -> Result<Option<usize>, Error> {
        loop {
            let open = body.get(self.complete..).unwrap_or_default();
            if let Some(After { values: 0, bytes }) = self.after {
                let end = self.complete.saturating_add(bytes);
                if end > MAX_MESSAGE {
                    return Err(too_large("a message", end, MAX_MESSAGE));
                }
                return Ok((open.len() >= bytes).then_some(end));
            }
            let limit = MAX_MESSAGE.saturating_sub(self.complete);
            let Some(len) = self.scanner.advance(open, limit)? else {
                return Ok(None);
            };
            self.complete += len;
            self.after = Some(match self.after {
                Some(after) => After {
                    values: after.values.saturating_sub(1),
                    ..after
                },
                None => after_header(kind, open.get(..len).unwrap_or_default())?,
            });
        }
    }
}

/// What follows the first value of a message.
fn after_header(kind: Kind, header: &[u8]) -> Result<After, Error> {
    match kind {
        Kind::PushPull => {
            let header: PushPullHeader = codec::from_slice(header)?;
            Ok(After {
                values: node_count(&header)?,
                bytes: header.user_state_len as usize,
            })
        }
        Kind::User => {
            let header: UserHeader = codec::from_slice(header)?;
            Ok(After {
                values: 0,
                bytes: header.user_msg_len as usize,
            })
        }
        Kind::Ping | Kind::Ack | Kind::Error | Kind::Compress => Ok(After {
            values: 0,
            bytes: 0,
        }),
        other => Err(Error::Kind(other.into())),
    }
}

/// What an encrypted message says, once it is all there.
fn decrypted(arrived: &[u8], incoming: &Incoming<'_>) -> Result<Option<Vec<u8>>, Error> {
    let ring = incoming.keyring.ok_or(Error::Encrypted)?;
    let Some((head, rest)) = arrived.split_first_chunk::<ENCRYPTED_HEAD>() else {
        return Ok(None);
    };
    let [_, len @ ..] = *head;
    let len = length("an encrypted message", u32::from_be_bytes(len) as usize)? as usize;
    match rest.get(..len) {
        Some(sealed) => ring.open(sealed, head).map(Some),
        None => Ok(None),
    }
}

/// Reads a whole message that is not encrypted.
fn unfolded(message: &[u8]) -> Result<StreamMessage, Error> {
    match message.split_first() {
        Some((&kind, body)) if kind == u8::from(Kind::Compress) => {
            StreamMessage::decode(&lzw::decompress(body, MAX_MESSAGE)?)
        }
        _ => StreamMessage::decode(message),
    }
}

#[cfg(test)]
mod tests;
