//! Snapshot files: `raft/snapshots/<term>-<index>.snap`, the newest two kept. All calls block.
//!
//! A file is magic, length and CRC-32 of the description (both big endian u32), the description in msgpack, and the
//! state in its own format with its own checksum. It is written under another name, synced, renamed, and the directory
//! synced, so a name that ends in `.snap` is always whole.

use crate::consensus::disk::sync_dir;
use crate::consensus::error::Error;
use crate::consensus::types::SnapshotMeta;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"CWSNAP\x00\x01";
const HEADER: usize = 16;
const KEPT: usize = 2;

/// The directory of snapshots.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    dir: PathBuf,
}

impl Snapshots {
    /// Makes the directory and removes what a crash left half-written.
    pub(crate) fn open(raft_dir: &Path) -> Result<Self, Error> {
        let dir = raft_dir.join("snapshots");
        fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        let snapshots = Self { dir };
        for path in snapshots.files("tmp")? {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(snapshots)
    }

    /// Whether there is any snapshot.
    pub(crate) fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.files("snap")?.is_empty())
    }

    /// The newest snapshot with its path: description and state bytes.
    ///
    /// # Errors
    /// If it is damaged. An older one is not taken instead: the log may not reach back that far.
    pub(crate) fn newest(&self) -> Result<Option<(PathBuf, SnapshotMeta, Vec<u8>)>, Error> {
        let Some(path) = self.files("snap")?.pop() else {
            return Ok(None);
        };
        let mut bytes = fs::read(&path).map_err(Error::io("read", &path))?;
        let (meta, at) = parse(&bytes).map_err(|detail| Error::damaged(&path, detail))?;
        let state = bytes.split_off(at);
        Ok(Some((path, meta, state)))
    }

    /// Writes a snapshot durably and removes the older ones.
    pub(crate) fn save(&self, meta: &SnapshotMeta, state: &[u8]) -> Result<(), Error> {
        let (term, index) = meta
            .last_log_id
            .map_or((0, 0), |log_id| (log_id.leader_id.term, log_id.index));
        let path = self.dir.join(format!("{term:020}-{index:020}.snap"));
        let temporary = path.with_extension("tmp");
        let header = header(meta).map_err(|detail| Error::damaged(&path, detail))?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&header)?;
            file.write_all(state)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        if let Err(error) = write() {
            let _ = fs::remove_file(&temporary); // Gives the space back; the error that counts is the first.
            return Err(Error::io("write", &path)(error));
        }
        sync_dir(&self.dir)?;
        let files = self.files("snap")?;
        for old in files.iter().rev().skip(KEPT) {
            fs::remove_file(old).map_err(Error::io("remove", old))?;
        }
        Ok(())
    }

    /// Files with an extension, oldest first.
    fn files(&self, extension: &str) -> Result<Vec<PathBuf>, Error> {
        let failed = || Error::io("read", &self.dir);
        let mut out = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            if path.extension().is_some_and(|e| e == extension) {
                out.push(path);
            }
        }
        out.sort();
        Ok(out)
    }
}

fn header(meta: &SnapshotMeta) -> Result<Vec<u8>, String> {
    let body = rmp_serde::to_vec_named(meta).map_err(|error| error.to_string())?;
    let length = u32::try_from(body.len()).map_err(|error| error.to_string())?;
    let mut out = MAGIC.to_vec();
    out.extend(length.to_be_bytes());
    out.extend(crc32fast::hash(&body).to_be_bytes());
    out.extend(body);
    Ok(out)
}

/// The description, and where the state begins.
fn parse(bytes: &[u8]) -> Result<(SnapshotMeta, usize), String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("it does not begin as a Crossway snapshot of this version")?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or("it ends too early")?;
    let (sum, rest) = rest.split_first_chunk::<4>().ok_or("it ends too early")?;
    let length = u32::from_be_bytes(*length) as usize;
    let body = rest.get(..length).ok_or("it ends too early")?;
    if crc32fast::hash(body) != u32::from_be_bytes(*sum) {
        return Err("the checksum of its description does not match".to_owned());
    }
    let meta = rmp_serde::from_slice(body).map_err(|error| error.to_string())?;
    Ok((meta, HEADER + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consensus::types::LogId;
    use openraft::CommittedLeaderId;

    fn meta(index: u64) -> SnapshotMeta {
        SnapshotMeta {
            last_log_id: Some(LogId::new(CommittedLeaderId::new(1, 7), index)),
            snapshot_id: index.to_string(),
            ..SnapshotMeta::default()
        }
    }

    #[test]
    fn the_newest_comes_back_and_two_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(dir.path()).unwrap();
        assert!(snapshots.is_empty().unwrap());
        for index in [9, 10, 100] {
            snapshots.save(&meta(index), b"state").unwrap();
        }
        let (_, newest, state) = snapshots.newest().unwrap().unwrap();
        assert_eq!((newest, &*state), (meta(100), &b"state"[..]));
        assert_eq!(snapshots.files("snap").unwrap().len(), 2);
    }

    #[test]
    fn what_a_crash_left_is_removed_and_never_read() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::open(dir.path()).unwrap();
        fs::write(snapshots.dir.join("x.tmp"), b"half").unwrap();
        let snapshots = Snapshots::open(dir.path()).unwrap();
        assert!(snapshots.newest().unwrap().is_none());
        assert!(snapshots.files("tmp").unwrap().is_empty());
    }
}
