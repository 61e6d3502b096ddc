//! The msgpack dialect of Go peers, in net/rpc, Raft and gossip (go-msgpack before the 2013 revision of the format).
//!
//! Out: strings and byte strings in the raw family (`a0`-`bf`, `da`, `db`) only, integers in their smallest
//! form, structs as maps, keys of structs and maps sorted bytewise; empty bytes, lists and maps that are fields of a
//! struct are nil, Go's zero value, unless in a `Some` (inside lists and maps they stay what they are). In: all of that, and also `str8`, the
//! `bin` family, keys in any order, unknown keys, structs as arrays, and nil in the place of anything, which
//! then takes its default. Types say what they are with serde; a Go `time.Time` serialises as 15 bytes through
//! `serialize_bytes`. `is_human_readable()` is false on both sides.
//!
//! What comes in is bounded before anything is allocated: nesting by [`MAX_DEPTH`], every length by the bytes
//! that are left, the number of structs by the length of the input.
//!
//! Strings that are not UTF-8 are repaired (U+FFFD) when a `String` is asked for and kept as they are when bytes
//! are. `#[serde(flatten)]` and untagged enums go through serde's own buffer, which loses that difference: do not
//! use them for types that hold bytes or times.

mod de;
mod frame;
mod head;
mod ser;
mod value;

pub use frame::FrameReader;
pub use frame::ReadError;
pub use frame::Scanner;
pub use value::Value;

use serde::de::DeserializeOwned;
use serde::ser::Serialize;

/// Deepest nesting of arrays and maps that is read or written.
pub const MAX_DEPTH: usize = 64;

/// Why bytes are not the value asked for, or a value cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The input ends inside a value.
    #[error("msgpack: the input ends inside a value")]
    Truncated,
    /// There is more input after the value.
    #[error("msgpack: {0} bytes follow the value")]
    Trailing(usize),
    /// A length says more than the input holds.
    #[error("msgpack: a length of {0} is more than the input holds")]
    Length(u64),
    /// The value is larger than allowed; the number is the limit in bytes.
    #[error("msgpack: a value of more than {0} bytes")]
    TooLarge(usize),
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("msgpack: nested deeper than {MAX_DEPTH}")]
    Depth,
    /// More structs than input of this length can reasonably hold.
    #[error("msgpack: too many structs for the length of the input")]
    Structs,
    /// A byte that starts no value, or an extension type, which Go's net/rpc never sends.
    #[error("msgpack: byte {0:#04x} starts no value that is allowed here")]
    Marker(u8),
    /// What serde or a type's own check says.
    #[error("msgpack: {0}")]
    Custom(String),
}

impl serde::de::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Custom(text.to_string())
    }
}

impl serde::ser::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::Custom(text.to_string())
    }
}

/// Writes `value` as one msgpack value.
///
/// # Errors
/// When a type's own `Serialize` fails, on 128 bit integers, or when nested deeper than [`MAX_DEPTH`].
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Error> {
    let mut out = Vec::with_capacity(128);
    append(&mut out, value)?;
    Ok(out)
}

/// Writes `value` as one msgpack value after what `out` already holds.
///
/// # Errors
/// As [`to_vec`]; `out` then ends with an unfinished value.
pub fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), Error> {
    value.serialize(&mut ser::Serializer::new(out))
}

/// Reads the one msgpack value that `bytes` holds.
///
/// # Errors
/// When the bytes are not exactly one value, or not one that `T` takes.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut rest = bytes;
    let value = take(&mut rest)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(Error::Trailing(rest.len()))
    }
}

/// Reads the first msgpack value of `bytes` and moves `bytes` behind it: for the blobs that hold several values in a row.
///
/// # Errors
/// When the bytes do not start with a value that `T` takes; `bytes` is then where it was.
pub fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, Error> {
    let mut reader = de::Deserializer::new(bytes);
    let value = T::deserialize(&mut reader)?;
    *bytes = reader.rest();
    Ok(value)
}

#[cfg(test)]
mod tests;
