//! Bytes to gossip messages and back: memberlist's layers, and serf's messages inside them.
//!
//! ```text
//! packet:  [encrypted( ][checksum( ][compressed( ][compound( ] message, message ... )
//! stream:  [encrypted( ]            [compressed( ]             one message
//! message: one byte of kind, msgpack; or the kind "user" and a serf message
//! ```
//!
//! Who sends adds only what it is configured to; who receives takes any of it. Lengths, counts and nesting are bounded
//! before anything is allocated for them, and so is what compression may unfold to.

mod error;
pub(crate) mod fields;
pub mod keyring;
mod lzw;
pub mod message;
pub mod packet;
pub mod serf;
pub mod stream;

pub use error::Error;
pub use fields::Blob;
pub use fields::NodeAddr;
pub use fields::Versions;
pub use keyring::Key;
pub use keyring::Keyring;
pub use message::Message;
pub use packet::Packet;
pub use serf::SerfMessage;
pub use stream::StreamDecoder;
pub use stream::StreamMessage;

use crate::gossip::wire::keyring::EncryptionVersion;

/// How what is received must be protected.
#[derive(Debug, Clone, Copy, Default)]
pub struct Incoming<'a> {
    /// The keys that open what is encrypted; without them, nothing may be encrypted.
    pub keyring: Option<&'a Keyring>,
    /// Takes what is not encrypted although there are keys (`encrypt_verify_incoming = false`).
    pub allow_plain: bool,
}

/// How what is sent is wrapped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outgoing<'a> {
    /// Compresses; a packet only when it gets shorter by that.
    pub compress: bool,
    /// Adds a checksum to packets: only for receivers that understand memberlist protocol 5.
    pub checksum: bool,
    /// Encrypts with the primary key of these.
    pub keyring: Option<&'a Keyring>,
    /// How encryption pads: padded only for pools that speak memberlist protocol 1.
    pub encryption: EncryptionVersion,
}
