//! The newest log entries in memory, and the log's two ends (pure).

use crate::consensus::types::{Entry, LogId};
use std::collections::BTreeMap;

pub(crate) struct Cache {
    entries: BTreeMap<u64, (Entry, usize)>,
    bytes: usize,
    /// `None`: this is the only copy, nothing is dropped.
    limit: Option<usize>,
    /// Everything before this index is on disk.
    durable: u64,
    last: Option<LogId>,
    purged: Option<LogId>,
}

impl Cache {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self {
            entries: BTreeMap::new(),
            bytes: 0,
            limit,
            durable: 0,
            last: None,
            purged: None,
        }
    }

    /// Adds an entry that came from disk.
    pub(crate) fn load(&mut self, entry: Entry, size: usize) {
        let index = entry.log_id.index;
        self.append(BTreeMap::from([(index, (entry, size))]));
        self.durable(index);
    }

    /// Sets where the log begins.
    pub(crate) fn begins_after(&mut self, purged: Option<LogId>) {
        self.purged = purged;
        self.last = self.last.max(purged);
    }

    pub(crate) fn last(&self) -> Option<LogId> {
        self.last
    }

    pub(crate) fn purged(&self) -> Option<LogId> {
        self.purged
    }

    pub(crate) fn append(&mut self, entries: BTreeMap<u64, (Entry, usize)>) {
        for (index, (entry, size)) in entries {
            self.last = Some(entry.log_id);
            self.bytes += size;
            if let Some((_, old)) = self.entries.insert(index, (entry, size)) {
                self.bytes -= old;
            }
        }
    }

    /// Everything up to `index` is on disk: the oldest entries may go.
    pub(crate) fn durable(&mut self, index: u64) {
        self.durable = self.durable.max(index + 1);
        let Some(limit) = self.limit else { return };
        while self.bytes > limit {
            let Some(first) = self.entries.first_entry() else {
                return;
            };
            if *first.key() >= self.durable {
                return;
            }
            self.bytes -= first.remove().1;
        }
    }

    /// The cached entries of `start..end`, and the index from which on they are complete.
    pub(crate) fn range(&self, start: u64, end: u64) -> (u64, Vec<Entry>) {
        let last = self.last.map_or(0, |log_id| log_id.index + 1);
        let end = end.min(last);
        let first = self.entries.first_key_value().map_or(last, |(at, _)| *at);
        if start >= end {
            return (start, Vec::new());
        }
        let from = first.clamp(start, end);
        let entries = self.entries.range(from..end);
        (from, entries.map(|(_, (entry, _))| entry.clone()).collect())
    }

    /// Removes `from` and everything after it; `previous` becomes the last entry.
    pub(crate) fn truncate(&mut self, from: u64, previous: Option<LogId>) {
        let gone = self.entries.split_off(&from);
        self.bytes -= gone.values().map(|(_, size)| size).sum::<usize>();
        self.durable = self.durable.min(from);
        self.last = previous.or(self.purged);
    }

    pub(crate) fn purge(&mut self, upto: LogId) {
        let kept = self.entries.split_off(&(upto.index + 1));
        self.entries = kept;
        self.bytes = self.entries.values().map(|(_, size)| size).sum();
        self.purged = self.purged.max(Some(upto));
        self.last = self.last.max(self.purged);
    }
}
