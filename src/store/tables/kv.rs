//! The key/value store.

use crate::model::KvEntry;
use crate::model::ids::Index;
use crate::store::command::{KvOp, Outcome, Topic};
use crate::store::state::{IndexRow, State, Tx};
use std::sync::Arc;

/// Removals that are remembered one by one. Above this many all are forgotten at once, and every prefix shows at least the
/// index at which that happened: its readers look once in vain, but no index goes back. Part of what every server computes
/// alike, so it must not depend on settings.
const TOMBSTONES: usize = 65_536;

impl State {
    /// One entry and its index; a missing key has the index of the whole table.
    pub fn kv_get(&self, key: &str) -> (Index, Option<Arc<KvEntry>>) {
        match self.kv.get(key) {
            Some(entry) => (entry.modify_index, Some(entry.clone())),
            None => (self.row(&IndexRow::Kv), None),
        }
    }

    /// Entries under a prefix in key order, and the newest index of an entry or removal under it.
    pub fn kv_list(&self, prefix: &str) -> (Index, Vec<Arc<KvEntry>>) {
        let entries: Vec<Arc<KvEntry>> = self.kv_under(prefix).cloned().collect();
        (self.kv_index(prefix), entries)
    }

    /// Keys under a prefix in order. With a separator, keys are cut after its first occurrence behind the prefix and
    /// listed once.
    pub fn kv_keys(&self, prefix: &str, separator: &str) -> (Index, Vec<String>) {
        let mut keys: Vec<String> = Vec::new();
        for entry in self.kv_under(prefix) {
            let rest = entry.key.get(prefix.len()..).unwrap_or("");
            let cut = match rest.find(separator) {
                Some(at) if !separator.is_empty() => prefix.len() + at + separator.len(),
                _ => entry.key.len(),
            };
            let key = entry.key.get(..cut).unwrap_or(&entry.key);
            if keys.last().is_none_or(|last| last != key) {
                keys.push(key.to_owned());
            }
        }
        (self.kv_index(prefix), keys)
    }

    fn kv_under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<KvEntry>> {
        self.kv
            .range(Arc::from(prefix)..)
            .map(|(_, entry)| entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// The newest index of an entry or removal under a prefix.
    pub fn kv_index(&self, prefix: &str) -> Index {
        if prefix.is_empty() {
            return self.row(&IndexRow::Kv);
        }
        let entries = self.kv_under(prefix).map(|e| e.modify_index);
        let gone = self
            .tombstones
            .range(Arc::from(prefix)..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, index)| *index);
        match entries.chain(gone).max() {
            Some(index) => index.max(self.row(&IndexRow::KvForgotten)),
            None => self.row(&IndexRow::Kv),
        }
    }
}

impl Tx<'_> {
    pub(crate) fn kv(&mut self, op: &KvOp) -> Outcome {
        match op {
            KvOp::Set(entry) => {
                self.kv_set(entry);
                Outcome::Bool(true)
            }
            KvOp::Cas(entry) => {
                let stored = self.state.kv.get(&entry.key).map_or(0, |e| e.modify_index);
                let holds = stored == entry.modify_index;
                if holds {
                    self.kv_set(entry);
                }
                Outcome::Bool(holds)
            }
            KvOp::Delete(key) => {
                self.kv_delete(key);
                Outcome::Bool(true)
            }
            KvOp::DeleteCas(key, index) => {
                let holds = match self.state.kv.get(key) {
                    Some(entry) => entry.modify_index == *index,
                    None => true,
                };
                if holds {
                    self.kv_delete(key);
                }
                Outcome::Bool(holds)
            }
            KvOp::DeleteTree(prefix) => {
                let keys: Vec<Arc<str>> = self
                    .state
                    .kv_under(prefix)
                    .map(|entry| entry.key.clone())
                    .collect();
                for key in keys {
                    self.kv_delete(&key);
                }
                Outcome::Bool(true)
            }
        }
    }

    fn kv_set(&mut self, given: &KvEntry) {
        let mut entry = given.clone();
        entry.create_index = self.index;
        entry.modify_index = self.index;
        if let Some(old) = self.state.kv.get(&given.key) {
            entry.create_index = old.create_index;
            entry.lock_index = old.lock_index;
            entry.session.clone_from(&old.session);
            if old.value == entry.value && old.flags == entry.flags {
                return; // The same write again wakes nobody.
            }
        }
        self.state.tombstones.remove(&entry.key);
        let key = entry.key.clone();
        self.state.kv.insert(key.clone(), Arc::new(entry));
        self.bump(IndexRow::Kv);
        self.touch(Topic::KvKey(key));
    }

    fn kv_delete(&mut self, key: &Arc<str>) {
        if self.state.kv.remove(key).is_none() {
            return;
        }
        self.state.tombstones.insert(key.clone(), self.index);
        if self.state.tombstones.len() > TOMBSTONES {
            self.state.tombstones.clear();
            self.bump(IndexRow::KvForgotten);
        }
        self.bump(IndexRow::Kv);
        self.touch(Topic::KvKey(key.clone()));
    }
}
