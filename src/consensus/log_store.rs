//! openraft's log storage over the database file, or over memory alone.
//!
//! The newest entries stay in memory, so applying and replicating them reads no disk. Writes go to one thread that makes
//! everything waiting one transaction; an entry is acknowledged when that transaction is on the disk.

mod cache;
mod writer;

use crate::consensus::disk::{Change, Contents, Disk};
use crate::consensus::entry::{decode_record, encode_record};
use crate::consensus::error::Error;
use crate::consensus::types::{Entry, LogId, StorageError, StoredMembership, Types, Vote};
use cache::Cache;
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{AnyError, EntryPayload, OptionalSend, RaftLogReader, StorageIOError};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use writer::{Op, Writer};

/// Bytes of encoded entries kept in memory when there is a disk behind them.
const CACHE_BYTES: usize = 16 << 20;
/// Bytes of entries handed to one replication request.
const READ_BYTES: usize = 4 << 20;

/// Why the disk takes no writes just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) text: String,
    /// Whether it goes away by itself when there is space again.
    pub(crate) passing: bool,
}

/// The log. Cloning it shares it.
#[derive(Clone)]
pub(crate) struct LogStore {
    shared: Arc<Shared>,
    writer: Option<Arc<Writer>>,
}

pub(crate) struct Shared {
    cache: Mutex<Cache>,
    vote: Mutex<Option<Vote>>,
    committed: Mutex<Option<LogId>>,
    membership: Option<StoredMembership>,
    disk: Option<Arc<Disk>>,
    fault: watch::Sender<Option<Fault>>,
    fsync_micros: AtomicU64,
}

impl Shared {
    fn fsync_took(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.fsync_micros.store(micros, Ordering::Relaxed);
    }
}

impl LogStore {
    /// A log that lives as long as the process.
    pub(crate) fn in_memory() -> Self {
        Self::new(Contents::default(), Cache::new(None), None)
    }

    /// The log in an open database.
    ///
    /// # Errors
    /// If something in it does not make sense.
    pub(crate) fn on_disk(disk: Disk) -> Result<Self, Error> {
        let mut cache = Cache::new(Some(CACHE_BYTES));
        let contents = disk.load(|entry, size| cache.load(entry, size))?;
        cache.begins_after(contents.purged);
        Ok(Self::new(contents, cache, Some(Arc::new(disk))))
    }

    fn new(contents: Contents, cache: Cache, disk: Option<Arc<Disk>>) -> Self {
        let shared = Arc::new(Shared {
            cache: Mutex::new(cache),
            vote: Mutex::new(contents.vote),
            committed: Mutex::new(contents.committed),
            membership: contents.membership,
            disk: disk.clone(),
            fault: watch::Sender::new(None),
            fsync_micros: AtomicU64::new(0),
        });
        let writer = disk.map(|disk| Arc::new(Writer::start(disk, shared.clone())));
        Self { shared, writer }
    }

    /// A server that is the only voter committed whatever is in its log: on disk is a quorum.
    pub(crate) fn commit_all(&self) {
        let last = self.shared.cache.lock().last();
        let mut committed = self.shared.committed.lock();
        *committed = last.max(*committed);
    }

    /// Whether the stored vote says that `id` won an election and nobody was elected since.
    pub(crate) fn vote_is_won_by(&self, id: u64) -> bool {
        let vote = *self.shared.vote.lock();
        vote.is_some_and(|vote| vote.is_committed() && vote.leader_id().voted_for() == Some(id))
    }

    /// A full disk is waited for no longer: what is under way fails.
    pub(crate) fn give_up(&self) {
        if let Some(writer) = &self.writer {
            writer.give_up();
        }
    }

    pub(crate) fn committed(&self) -> Option<LogId> {
        *self.shared.committed.lock()
    }

    pub(crate) fn last(&self) -> Option<LogId> {
        self.shared.cache.lock().last()
    }

    /// How long the last transaction took to reach the disk; zero in memory.
    pub(crate) fn last_fsync(&self) -> Duration {
        Duration::from_micros(self.shared.fsync_micros.load(Ordering::Relaxed))
    }

    /// Why writes do not get through, if so.
    pub(crate) fn fault(&self) -> watch::Receiver<Option<Fault>> {
        self.shared.fault.subscribe()
    }

    /// Ends the writer and closes the file. Blocks until what was asked for is written.
    pub(crate) fn close(&self) {
        if let Some(writer) = &self.writer {
            writer.stop();
        }
        if let Some(disk) = &self.shared.disk {
            disk.close();
        }
    }

    /// The newest membership in the log when it was opened.
    pub(crate) fn stored_membership(&self) -> Option<&StoredMembership> {
        self.shared.membership.as_ref()
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.shared.cache.lock().purged()
    }

    async fn change(&self, change: Change) -> Result<(), StorageError> {
        let Some(writer) = &self.writer else {
            return Ok(());
        };
        let (done, answer) = oneshot::channel();
        writer.send(Op::Change(change, done));
        let answer = answer.await;
        let failed = match answer {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the log writer has ended".to_owned(),
        };
        Err(StorageIOError::write_logs(AnyError::error(failed)).into())
    }

    /// Entries `start..end`: the older part from disk, the newer one from memory.
    #[expect(clippy::result_large_err, reason = "openraft's error type")]
    fn read(&self, start: u64, end: u64) -> Result<Vec<Entry>, StorageError> {
        let (from, cached) = self.shared.cache.lock().range(start, end);
        let Some(disk) = &self.shared.disk else {
            return Ok(cached);
        };
        if start >= from {
            return Ok(cached);
        }
        let failed = |error: String| StorageIOError::read_logs(AnyError::error(error));
        let records = disk
            .records(start..from)
            .map_err(|error| failed(error.to_string()))?;
        let mut out = Vec::with_capacity(records.len() + cached.len());
        for (index, record) in records {
            out.push(
                decode_record(&record)
                    .map_err(|error| failed(format!("log entry {index}: {error}")))?,
            );
        }
        out.extend(cached);
        Ok(out)
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at + 1,
            Bound::Excluded(at) => *at,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start, end)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, StorageError> {
        let mut entries = self.read(start, end)?;
        let mut bytes = 0;
        let fits = entries.iter().take_while(|entry| {
            bytes += size(entry);
            bytes <= READ_BYTES
        });
        let fits = fits.count().max(1);
        entries.truncate(fits);
        Ok(entries)
    }
}

fn size(entry: &Entry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.commands.iter().map(|c| c.size()).sum(),
        _ => 0,
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        let cache = self.shared.cache.lock();
        Ok(LogState {
            last_purged_log_id: cache.purged(),
            last_log_id: cache.last(),
        })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        self.change(Change::Vote(*vote)).await?;
        *self.shared.vote.lock() = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        Ok(*self.shared.vote.lock())
    }

    /// Kept in memory and written with the next append: losing it costs nothing but a later start of applying.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        *self.shared.committed.lock() = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.committed())
    }

    async fn append<I>(&mut self, entries: I, done: LogFlushed<Types>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut records = Vec::new();
        let mut added = BTreeMap::new();
        for entry in entries {
            let index = entry.log_id.index;
            if self.writer.is_some() {
                let record = encode_record(&entry).map_err(|e| {
                    StorageIOError::write_log_entry(entry.log_id, AnyError::new(&e))
                })?;
                added.insert(index, (entry, record.len()));
                records.push((index, record));
            } else {
                added.insert(index, (entry, 0));
            }
        }
        self.shared.cache.lock().append(added);
        match &self.writer {
            Some(writer) => writer.send(Op::Append(Change::Append(records), done)),
            None => done.log_io_completed(Ok(())),
        }
        Ok(())
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        let previous = match from.index.checked_sub(1) {
            Some(index) => self.read(index, from.index)?.first().map(|e| e.log_id),
            None => None,
        };
        self.shared.cache.lock().truncate(from.index, previous);
        self.change(Change::Truncate(from.index)).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), StorageError> {
        self.shared.cache.lock().purge(upto);
        self.change(Change::Purge(upto)).await
    }
}
