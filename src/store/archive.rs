//! A state as one file for safe keeping: what `/v1/snapshot` saves and restores.
//!
//! It is a gzip of a tar, as Consul's: `meta.json`, `state.bin` and `SHA256SUMS`. The gzip header carries the SHA-256 of
//! everything behind it, because neither gzip nor tar notices every changed bit: so a byte changed anywhere is noticed.

mod tar;

use crate::model::Index;
use crate::store::{SnapshotError, State};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::DeflateEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};

const META: &str = "meta.json";
const STATE: &str = "state.bin";
const SUMS: &str = "SHA256SUMS";

/// Largest archive that is read, in bytes.
pub const MAX_ARCHIVE: usize = 256 << 20;
/// Largest content of one.
const MAX_CONTENT: usize = 2 << 30;

/// A gzip header with an extra field named `CW` of 32 bytes: no name, no time, no system.
const HEADER: [u8; 16] = [
    0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff, 36, 0, b'C', b'W', 32, 0,
];
const SUM: usize = 32;

/// Where a saved state was in the log, in the words of Consul's archives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArchiveMeta {
    /// The format, always 1.
    pub version: u8,
    /// A name.
    #[serde(rename = "ID")]
    pub id: String,
    /// The last log entry in the state.
    pub index: Index,
    /// The term of that entry.
    pub term: u64,
    /// The servers in an old form, in base64; empty.
    pub peers: String,
    /// The servers.
    pub configuration: ArchiveServers,
    /// The log entry that set them.
    pub configuration_index: Index,
    /// Bytes of the state.
    pub size: u64,
}

/// The servers of a saved state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArchiveServers {
    /// One by one.
    pub servers: Vec<ArchiveServer>,
}

/// A server of a saved state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ArchiveServer {
    /// 0 for one that votes, 1 for one that does not.
    pub suffrage: u8,
    /// The node's UUID.
    #[serde(rename = "ID")]
    pub id: String,
    /// Its RPC address.
    pub address: String,
}

/// Why bytes are no archive that can be restored.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Not made by this program.
    #[error(
        "this is not a snapshot archive of Crossway (one of Consul holds its state in another form and cannot be restored here)"
    )]
    Foreign,
    /// A byte is not as it was written.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// Longer than archives are.
    #[error("the archive is larger than the limit of {0} bytes")]
    TooLarge(usize),
    /// The state in it cannot be read or written.
    #[error(transparent)]
    State(#[from] SnapshotError),
}

/// Packs a state. Takes time in proportion to its size; run it off the reactor.
///
/// # Errors
/// [`ArchiveError::State`], if the state cannot be written.
pub fn pack(state: &State, mut meta: ArchiveMeta) -> Result<Vec<u8>, ArchiveError> {
    let state = state.to_backup()?;
    meta.version = 1;
    meta.size = state.len() as u64;
    let meta = serde_json::to_vec(&meta).map_err(|error| damaged(&error))?;
    let sums = [(META, &meta), (STATE, &state)].map(|(name, bytes)| sum_line(name, bytes));
    let mut content = Vec::with_capacity(state.len() + 8192);
    tar::append(&mut content, META, &meta);
    tar::append(&mut content, STATE, &state);
    tar::append(&mut content, SUMS, sums.concat().as_bytes());
    tar::end(&mut content);
    let mut body = Vec::new();
    let mut encoder = DeflateEncoder::new(&mut body, Compression::fast());
    encoder
        .write_all(&content)
        .map_err(|error| damaged(&error))?;
    encoder.finish().map_err(|error| damaged(&error))?;
    body.extend(crc32fast::hash(&content).to_le_bytes());
    let length = u32::try_from(content.len() & 0xffff_ffff).unwrap_or_default();
    body.extend(length.to_le_bytes());
    Ok([&HEADER[..], &Sha256::digest(&body), &body].concat())
}

/// Unpacks and checks an archive. Takes time in proportion to its size; run it off the reactor.
///
/// # Errors
/// [`ArchiveError`]: it is not ours, or a byte of it was changed.
pub fn unpack(bytes: &[u8]) -> Result<(ArchiveMeta, Vec<u8>), ArchiveError> {
    if bytes.len() > MAX_ARCHIVE {
        return Err(ArchiveError::TooLarge(MAX_ARCHIVE));
    }
    let sealed = bytes.strip_prefix(&HEADER).ok_or(ArchiveError::Foreign)?;
    let (sum, body) = sealed
        .split_at_checked(SUM)
        .ok_or_else(|| damaged(&"it ends too early"))?;
    if Sha256::digest(body).as_slice() != sum {
        return Err(damaged(&"its checksum does not match its content"));
    }
    let mut content = Vec::new();
    let mut decoder = GzDecoder::new(bytes).take(MAX_CONTENT as u64 + 1);
    decoder
        .read_to_end(&mut content)
        .map_err(|error| damaged(&error))?;
    if content.len() > MAX_CONTENT {
        return Err(ArchiveError::TooLarge(MAX_CONTENT));
    }
    let mut files = tar::Files(&content);
    let [meta, state, sums] = [META, STATE, SUMS].map(|name| files.next(name));
    let (meta, state, sums) = (meta?, state?, sums?);
    let wanted = [(META, meta), (STATE, state)].map(|(name, bytes)| sum_line(name, bytes));
    if sums != wanted.concat().as_bytes() {
        return Err(damaged(&"SHA256SUMS does not match the files"));
    }
    let meta = serde_json::from_slice(meta).map_err(|error| damaged(&error))?;
    Ok((meta, state.to_vec()))
}

fn sum_line(name: &str, bytes: &[u8]) -> String {
    let sum = Sha256::digest(bytes);
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{sum}  {name}\n")
}

fn damaged(problem: &dyn std::fmt::Display) -> ArchiveError {
    ArchiveError::Damaged(problem.to_string())
}

/// The old form of an empty list of servers: msgpack of an empty array.
pub fn no_peers() -> String {
    BASE64_STANDARD.encode([0x90])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KvEntry;
    use crate::store::{Command, KvOp};

    fn archive() -> Vec<u8> {
        let mut state = State::default();
        state.apply(
            7,
            &Command::Kv(KvOp::Set(KvEntry {
                key: "a".into(),
                value: b"value".to_vec(),
                ..KvEntry::default()
            })),
        );
        let meta = ArchiveMeta {
            index: 7,
            term: 2,
            ..ArchiveMeta::default()
        };
        pack(&state, meta).unwrap()
    }

    #[test]
    fn a_state_comes_back() {
        let (meta, state) = unpack(&archive()).unwrap();
        assert_eq!((meta.index, meta.term, meta.version), (7, 2, 1));
        assert_eq!(meta.size, state.len() as u64);
        let state = State::from_snapshot(&state).unwrap();
        assert_eq!(state.kv_get("a").1.unwrap().value, b"value");
    }

    #[test]
    fn a_change_anywhere_is_noticed() {
        let good = archive();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(unpack(&bad).is_err(), "byte {at}, bit {bit}");
            }
            assert!(unpack(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(unpack(&[&good[..], b"\0"].concat()).is_err(), "a byte more");
    }

    #[test]
    fn any_gzip_can_be_read_as_one() {
        let mut content = Vec::new();
        let mut decoder = GzDecoder::new(&*Box::leak(archive().into_boxed_slice()));
        decoder.read_to_end(&mut content).unwrap();
        assert_eq!(content.len() % 512, 0);
        assert!(content.starts_with(b"meta.json\0"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = unpack(&bytes);
            let sealed = [&HEADER[..], &Sha256::digest(&bytes), &bytes].concat();
            let _ = unpack(&sealed);
            for name in [META, STATE] {
                let _ = tar::Files(&bytes).next(name);
            }
        }
    }
}
