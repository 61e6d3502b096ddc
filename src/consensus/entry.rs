//! Commands and log records as bytes (pure).
//!
//! - A command: one version byte, then msgpack with named fields. It is encoded once, by its proposer; log, peers and
//!   disk carry the same bytes.
//! - A log record: one version byte, CRC-32 (big endian) of the rest, then the entry in msgpack.

use crate::consensus::types::Entry;
use crate::store::Command;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// Version of both formats. A reader refuses what is newer.
const VERSION: u8 = 1;
/// Largest encoded command, in bytes. Consul refuses KV values above 512 KiB; this leaves room for everything else.
pub(crate) const MAX_COMMAND: usize = 8 << 20;

/// Why bytes are not a command or a log record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// There are not even enough bytes for a header.
    #[error("it ends too early")]
    Short,
    /// Written by a version that this one does not know.
    #[error("it has format {0}, this version reads {VERSION}: install the version that wrote it")]
    Newer(u8),
    /// The checksum does not fit the content.
    #[error("its checksum does not match its content")]
    Checksum,
    /// Too large to be a command.
    #[error("it has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The msgpack does not decode.
    #[error("it does not decode: {0}")]
    Msgpack(String),
}

/// A command with its bytes. One that came from disk or a peer is decoded when it is applied.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    bytes: Bytes,
    command: Option<Arc<Command>>,
}

impl Sealed {
    pub(crate) fn new(command: Command) -> Result<Self, CodecError> {
        let mut bytes = vec![VERSION];
        rmp_serde::encode::write_named(&mut bytes, &command)
            .map_err(|error| CodecError::Msgpack(error.to_string()))?;
        if bytes.len() > MAX_COMMAND {
            return Err(CodecError::TooLarge {
                size: bytes.len(),
                limit: MAX_COMMAND,
            });
        }
        Ok(Self {
            bytes: bytes.into(),
            command: Some(Arc::new(command)),
        })
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn command(&self) -> Result<Arc<Command>, CodecError> {
        match &self.command {
            Some(command) => Ok(command.clone()),
            None => decode_command(&self.bytes).map(Arc::new),
        }
    }
}

impl PartialEq for Sealed {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.bytes)
    }
}

impl<'de> Deserialize<'de> for Sealed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = serde_bytes::ByteBuf::deserialize(deserializer)?;
        Ok(Self {
            bytes: Bytes::from(bytes.into_vec()),
            command: None,
        })
    }
}

fn decode_command(bytes: &[u8]) -> Result<Command, CodecError> {
    let (version, body) = bytes.split_first().ok_or(CodecError::Short)?;
    if *version != VERSION {
        return Err(CodecError::Newer(*version));
    }
    rmp_serde::from_slice(body).map_err(|error| CodecError::Msgpack(error.to_string()))
}

/// Writes a value as a record: version, checksum, msgpack.
pub(crate) fn encode_record<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut out = vec![VERSION, 0, 0, 0, 0];
    rmp_serde::encode::write_named(&mut out, value)
        .map_err(|error| CodecError::Msgpack(error.to_string()))?;
    let sum = crc32fast::hash(out.get(5..).unwrap_or_default()).to_be_bytes();
    if let Some(at) = out.get_mut(1..5) {
        at.copy_from_slice(&sum);
    }
    Ok(out)
}

/// Reads what [`encode_record`] wrote.
pub(crate) fn decode_record<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (version, rest) = bytes.split_first().ok_or(CodecError::Short)?;
    if *version != VERSION {
        return Err(CodecError::Newer(*version));
    }
    let (sum, body) = rest.split_first_chunk::<4>().ok_or(CodecError::Short)?;
    if crc32fast::hash(body) != u32::from_be_bytes(*sum) {
        return Err(CodecError::Checksum);
    }
    rmp_serde::from_slice(body).map_err(|error| CodecError::Msgpack(error.to_string()))
}

/// Decodes a log record and its commands; for fuzzing. The checksum is put right first, so that the decoder behind it is
/// reached.
///
/// # Errors
/// Any way in which the bytes are no log record.
pub fn decode_record_for_fuzzing(bytes: &[u8]) -> Result<usize, CodecError> {
    let mut record = vec![VERSION];
    record.extend(crc32fast::hash(bytes).to_be_bytes());
    record.extend_from_slice(bytes);
    let entry: Entry = decode_record(&record)?;
    let openraft::EntryPayload::Normal(proposal) = entry.payload else {
        return Ok(0);
    };
    for command in proposal.commands.iter() {
        command.command()?;
    }
    Ok(proposal.commands.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::types::{LogId, Proposal};
    use crate::model::KvEntry;
    use crate::store::KvOp;
    use openraft::{CommittedLeaderId, EntryPayload};

    fn entry(value: &[u8]) -> Entry {
        let command = Command::Kv(KvOp::Set(KvEntry {
            key: "a".into(),
            value: value.to_vec(),
            ..KvEntry::default()
        }));
        Entry {
            log_id: LogId::new(CommittedLeaderId::new(3, 7), 42),
            payload: EntryPayload::Normal(Proposal {
                commands: [Sealed::new(command).unwrap()].into(),
            }),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let before = entry(b"value");
        let after: Entry = decode_record(&encode_record(&before).unwrap()).unwrap();
        let EntryPayload::Normal(proposal) = &after.payload else {
            panic!("{after:?}");
        };
        assert!(matches!(
            &*proposal.commands[0].command().unwrap(),
            Command::Kv(KvOp::Set(set)) if set.value == b"value"
        ));
        assert_eq!(before, after);
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let record = encode_record(&entry(b"value")).unwrap();
        for at in 0..record.len() * 8 {
            let mut bad = record.clone();
            bad[at / 8] ^= 1 << (at % 8);
            assert!(decode_record::<Entry>(&bad).is_err(), "bit {at}");
        }
        for end in 0..record.len() {
            assert!(
                decode_record::<Entry>(&record[..end]).is_err(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn a_newer_version_and_an_unknown_command_are_named() {
        let mut record = encode_record(&entry(b"")).unwrap();
        record[0] = 9;
        assert_eq!(decode_record::<Entry>(&record), Err(CodecError::Newer(9)));
        let mut unknown = vec![VERSION];
        unknown.extend(rmp_serde::to_vec_named(&"FromTheFuture").unwrap());
        let error = decode_command(&unknown).unwrap_err();
        assert!(error.to_string().contains("FromTheFuture"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_record_panic(bytes: Vec<u8>, at: proptest::sample::Index, new: u8) {
            let _ = decode_record_for_fuzzing(&bytes);
            let mut record = encode_record(&entry(&bytes)).unwrap()[5..].to_vec();
            *at.get_mut(&mut record) = new;
            let _ = decode_record_for_fuzzing(&record);
        }
    }
}
