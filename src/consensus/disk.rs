//! The database file: log records, vote, and the marks beside them. All calls block.
//!
//! `raft/raft.db` is made under another name and renamed, so an empty or half-made file is never taken for a new one.
//! Every value is a record with its own checksum, and the whole file is verified when it is opened.

use crate::consensus::entry::{CodecError, decode_record, encode_record};
use crate::consensus::error::Error;
use crate::consensus::types::{Entry, LogId, StoredMembership, Vote};
use crate::model::NodeId;
use openraft::EntryPayload;
use parking_lot::{Mutex, RwLock};
use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// The log is read once at start and rarely after that.
const CACHE: usize = 8 << 20;
/// Records read at a time at start, so that a long log is never in memory as a whole.
const CHUNK: usize = 256;

/// An index with the encoded entry.
pub(crate) type Record = (u64, Vec<u8>);

/// One change to the file; several make one transaction.
#[derive(Debug)]
pub(crate) enum Change {
    /// Adds log records.
    Append(Vec<Record>),
    /// Replaces the vote.
    Vote(Vote),
    /// Removes this index and all after it.
    Truncate(u64),
    /// Removes this index and all before it.
    Purge(LogId),
}

/// What a file holds when it is opened.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<LogId>,
    pub(crate) purged: Option<LogId>,
    /// The newest one in the log.
    pub(crate) membership: Option<StoredMembership>,
}

/// Opens the file of a path; another one injects faults in tests.
pub(crate) type Opener = fn(&Path) -> Result<Database, redb::DatabaseError>;

/// The open database with the lock on its directory.
pub(crate) struct Disk {
    path: PathBuf,
    opener: Opener,
    db: RwLock<Option<Database>>,
    /// Given back by [`Disk::close`], whoever else still holds this value.
    lock: Mutex<Option<File>>,
}

pub(crate) fn open_file(path: &Path) -> Result<Database, redb::DatabaseError> {
    builder().open(path)
}

/// As [`open_file`], on a given backend.
#[cfg_attr(not(test), expect(dead_code, reason = "faults are injected by tests"))]
pub(crate) fn open_backend(backend: impl StorageBackend) -> Result<Database, redb::DatabaseError> {
    builder().create_with_backend(backend)
}

fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder
        .set_cache_size(CACHE)
        .set_check_integrity_on_open(true);
    builder
}

impl Disk {
    /// Opens `raft.db` in `dir`, or makes it when the directory holds no state at all.
    pub(crate) fn open(
        dir: &Path,
        lock: File,
        node: &NodeId,
        may_create: bool,
        opener: Opener,
    ) -> Result<Self, Error> {
        let path = dir.join("raft.db");
        if !path.try_exists().map_err(Error::io("read", &path))? {
            if !may_create {
                return Err(Error::damaged(
                    &path,
                    "it is missing, but there are snapshots",
                ));
            }
            if lock.metadata().map_err(Error::io("read", dir))?.len() > 0 {
                return Err(Error::damaged(
                    &path,
                    "it is missing, but this server had one",
                ));
            }
            create(dir, &path, node)?;
        }
        mark(&lock, dir)?;
        if fs::metadata(&path).is_ok_and(|file| file.len() == 0) {
            return Err(Error::damaged(&path, "the file is empty"));
        }
        let disk = Self {
            db: RwLock::new(Some(open(&path, opener)?)),
            path,
            opener,
            lock: Mutex::new(Some(lock)),
        };
        disk.check_identity(node)?;
        Ok(disk)
    }

    fn check_identity(&self, node: &NodeId) -> Result<(), Error> {
        let damaged = |error: redb::Error| Error::damaged(&self.path, error);
        let read = |key| self.read_meta(key).map_err(damaged);
        let format: u64 = self
            .decode("format", read("format")?)?
            .ok_or_else(|| Error::damaged(&self.path, "it names no format"))?;
        if format > FORMAT {
            return Err(Error::Newer {
                path: self.path.clone(),
                found: format,
                known: FORMAT,
            });
        }
        let found: NodeId = self
            .decode("node", read("node")?)?
            .ok_or_else(|| Error::damaged(&self.path, "it names no node"))?;
        if found.as_str().eq_ignore_ascii_case(node.as_str()) {
            return Ok(());
        }
        Err(Error::OtherNode {
            path: self.path.clone(),
            found: found.to_string(),
            ours: node.to_string(),
        })
    }

    /// Reads everything, hands over each entry with its size in bytes, and checks that the log has no gap.
    pub(crate) fn load(&self, mut each: impl FnMut(Entry, usize)) -> Result<Contents, Error> {
        let damaged = |error: redb::Error| Error::damaged(&self.path, error);
        let read = |key| self.read_meta(key).map_err(damaged);
        let mut contents = Contents {
            vote: self.decode("vote", read("vote")?)?,
            committed: self.decode("committed", read("committed")?)?,
            purged: self.decode("purged", read("purged")?)?,
            membership: None,
        };
        let first = contents.purged.map_or(0, |log_id| log_id.index + 1);
        if let Some((index, _)) = self.records(0..first).map_err(damaged)?.first() {
            let detail = format!("log entry {index} is there although it was purged");
            return Err(Error::damaged(&self.path, detail));
        }
        let mut next = first;
        while let Some(chunk) = self.chunk(next).map_err(damaged)? {
            for (index, record) in chunk {
                let entry: Entry = decode_record(&record)
                    .map_err(|error| self.bad(&format!("log entry {index}"), error))?;
                if index != next || entry.log_id.index != index {
                    let detail = format!("log entry {next} is missing, the next one is {index}");
                    return Err(Error::damaged(&self.path, detail));
                }
                next += 1;
                if let EntryPayload::Membership(membership) = &entry.payload {
                    let membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                    contents.membership = Some(membership);
                }
                each(entry, record.len());
            }
        }
        Ok(contents)
    }

    /// The next records from `start` on, a bounded number of them.
    fn chunk(&self, start: u64) -> Result<Option<Vec<Record>>, redb::Error> {
        let mut out = Vec::new();
        self.each_record(start..u64::MAX, |index, record| {
            out.push((index, record.to_vec()));
            out.len() < CHUNK
        })?;
        Ok((!out.is_empty()).then_some(out))
    }

    /// The stored records of a range of indexes.
    pub(crate) fn records(&self, range: Range<u64>) -> Result<Vec<Record>, redb::Error> {
        let mut out = Vec::new();
        self.each_record(range, |index, record| {
            out.push((index, record.to_vec()));
            true
        })?;
        Ok(out)
    }

    /// Hands over records in order for as long as `each` wants more.
    fn each_record(
        &self,
        range: Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), redb::Error> {
        let db = self.db.read();
        let db = db.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let table = db.begin_read()?.open_table(LOG)?;
        for row in table.range(range)? {
            let (index, record) = row?;
            if !each(index.value(), record.value()) {
                break;
            }
        }
        Ok(())
    }

    /// Makes all changes in one transaction. They are on the disk when this returns.
    pub(crate) fn write(
        &self,
        changes: &[Change],
        committed: Option<LogId>,
    ) -> Result<(), redb::Error> {
        let db = self.db.read();
        let db = db.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        // The defaults are what we need: durability Immediate, and one fsync per commit with checksums on all pages.
        let tx = db.begin_write()?;
        for change in changes {
            apply(&tx, change)?;
        }
        if committed.is_some() {
            put(&tx, "committed", &committed)?;
        }
        Ok(tx.commit()?)
    }

    /// After a failed write: the database refuses all work until it is opened anew.
    pub(crate) fn reopen(&self) -> Result<(), Error> {
        let mut db = self.db.write();
        db.take();
        *db = Some(open(&self.path, self.opener)?);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.db.write().take();
        self.lock.lock().take();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn read_meta(&self, key: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let db = self.db.read();
        let db = db.as_ref().ok_or(redb::Error::DatabaseClosed)?;
        let table = db.begin_read()?.open_table(META)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    }

    fn decode<T: DeserializeOwned>(
        &self,
        what: &str,
        record: Option<Vec<u8>>,
    ) -> Result<Option<T>, Error> {
        match record {
            None => Ok(None),
            Some(record) => decode_record(&record).map_err(|error| self.bad(what, error)),
        }
    }

    fn bad(&self, what: &str, error: CodecError) -> Error {
        if let CodecError::Newer(found) = error {
            return Error::Newer {
                path: self.path.clone(),
                found: found.into(),
                known: FORMAT,
            };
        }
        Error::damaged(&self.path, format!("{what}: {error}"))
    }
}

/// Makes the directory and takes its lock, which lasts as long as the file is open.
pub(crate) fn lock_dir(dir: &Path) -> Result<File, Error> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let path = &dir.join("lock");
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .map_err(Error::io("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", path)(error)),
    }
}

/// Makes the file under another name, then renames it.
fn create(dir: &Path, path: &Path, node: &NodeId) -> Result<(), Error> {
    let fresh = dir.join("raft.db.new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("replace", &fresh)(error));
        }
        _ => {}
    }
    let fill = || -> Result<(), redb::Error> {
        let db = Database::create(&fresh)?;
        let tx = db.begin_write()?;
        tx.open_table(LOG)?;
        put(&tx, "format", &FORMAT)?;
        put(&tx, "node", node)?;
        Ok(tx.commit()?)
    };
    fill().map_err(|error| Error::io("create", &fresh)(io_error(error)))?;
    fs::rename(&fresh, path).map_err(Error::io("create", path))?;
    sync_dir(dir)
}

/// Notes in the lock file that there is a database, so that a lost one is never taken for a first start.
fn mark(mut lock: &File, dir: &Path) -> Result<(), Error> {
    let mut write = || {
        if lock.metadata()?.len() == 0 {
            lock.write_all(b"raft.db was made in this directory\n")?;
            lock.sync_all()?;
        }
        Ok(())
    };
    write().map_err(Error::io("write the lock file in", dir))
}

/// Makes a rename or a new file in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), Error> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::io("sync", dir))
}

/// A damaged file may make the database panic: that is an error like any other here.
fn open(path: &Path, opener: Opener) -> Result<Database, Error> {
    match catch_unwind(AssertUnwindSafe(|| opener(path))) {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(redb::DatabaseError::DatabaseAlreadyOpen)) => Err(Error::Locked {
            path: path.to_owned(),
        }),
        Ok(Err(redb::DatabaseError::Storage(redb::StorageError::Io(error))))
            if error.kind() != std::io::ErrorKind::InvalidData
                && error.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            Err(Error::io("open", path)(error))
        }
        Ok(Err(error)) => Err(Error::damaged(path, error)),
        Err(_) => Err(Error::damaged(path, "the database cannot make sense of it")),
    }
}

fn apply(tx: &WriteTransaction, change: &Change) -> Result<(), redb::Error> {
    match change {
        Change::Append(records) => {
            let mut table = tx.open_table(LOG)?;
            for (index, record) in records {
                table.insert(index, record.as_slice())?;
            }
        }
        Change::Vote(vote) => put(tx, "vote", vote)?,
        Change::Truncate(from) => tx.open_table(LOG)?.retain_in(*from.., |_, _| false)?,
        Change::Purge(upto) => {
            put(tx, "purged", upto)?;
            tx.open_table(LOG)?.retain_in(..=upto.index, |_, _| false)?;
        }
    }
    Ok(())
}

fn put<T: Serialize>(tx: &WriteTransaction, key: &str, value: &T) -> Result<(), redb::Error> {
    let record =
        encode_record(value).map_err(|error| redb::Error::Io(std::io::Error::other(error)))?;
    tx.open_table(META)?.insert(key, record.as_slice())?;
    Ok(())
}

/// The system's error behind the database's, as far as there is one.
pub(crate) fn io_error(error: redb::Error) -> std::io::Error {
    match error {
        redb::Error::Io(error) => error,
        other => std::io::Error::other(other),
    }
}

/// Whether waiting for space helps.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
