//! Why bytes are no gossip, or cannot become some.

use crate::codec;
use crate::gossip::tags::MAX_META;

/// Why bytes are no gossip, or cannot become some.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There are no bytes where a message should be.
    #[error("gossip: an empty message")]
    Empty,
    /// A kind of message (or version of a payload) that does not exist or must not be here.
    #[error("gossip: a message of kind {0} is not allowed here")]
    Kind(u8),
    /// The bytes end inside a message.
    #[error("gossip: the bytes end inside a message")]
    Truncated,
    /// The body of a message is not what its kind promises.
    #[error("gossip: {0}")]
    Body(#[from] codec::Error),
    /// More than is ever sent.
    #[error("gossip: {what} of {size} exceeds the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is, as far as it was looked at.
        size: usize,
        /// How large it may be.
        limit: usize,
    },
    /// Compound and compressed messages inside each other, deeper than anyone sends.
    #[error("gossip: messages are nested too deeply")]
    Depth,
    /// The checksum does not fit: the packet was damaged on its way.
    #[error("gossip: the checksum is {computed:08x}, but the packet says {said:08x}")]
    Checksum {
        /// What the packet says.
        said: u32,
        /// What it should say.
        computed: u32,
    },
    /// A compression other than LZW.
    #[error("gossip: compression algorithm {0} is unknown")]
    Algorithm(u8),
    /// The bytes are no LZW.
    #[error("gossip: compressed data is damaged")]
    Lzw,
    /// A version of encryption other than 0 and 1, which is also what unencrypted bytes look like.
    #[error("gossip: encryption version {0} is unknown")]
    EncryptionVersion(u8),
    /// None of the keys opens it.
    #[error("gossip: no installed key decrypts the message")]
    NoKey,
    /// It is encrypted, and there are no keys.
    #[error(
        "gossip: the peer encrypts, but this agent has no key: set `encrypt` to the pool's key"
    )]
    Encrypted,
    /// It is not encrypted, and must be.
    #[error("gossip: the peer does not encrypt: set `encrypt` there to the pool's key")]
    NotEncrypted,
    /// A key of a size that AES does not have.
    #[error("gossip: a key has {0} bytes: it must have 16, 24 or 32")]
    KeySize(usize),
    /// A key that is not base64.
    #[error("gossip: a key is not base64 (the standard alphabet, with padding)")]
    KeyText,
    /// A key that is not in the ring.
    #[error("gossip: the key is not in the ring: install it first")]
    KeyUnknown,
    /// The primary key cannot be removed.
    #[error("gossip: the primary key cannot be removed: use another key first")]
    KeyPrimary,
    /// AES-GCM refused to work.
    #[error("gossip: encryption failed")]
    Encryption,
    /// Node meta longer than memberlist allows.
    #[error("gossip: {0} bytes of tags exceed the limit of {MAX_META}: use fewer or shorter tags")]
    Meta(usize),
    /// A coordinate that cannot be computed with.
    #[error("gossip: a coordinate has other than 8 dimensions, or a number that is not finite")]
    Coordinate,
}
