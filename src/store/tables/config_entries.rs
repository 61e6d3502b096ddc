//! Config entries by kind and name.

use crate::model::ids::Index;
use crate::model::{ConfigEntry, ConfigKind};
use crate::store::command::{ConfigOp, Outcome, Topic};
use crate::store::state::{IndexRow, State, Tx};
use std::sync::Arc;

impl State {
    /// One entry.
    pub fn config_entry(&self, kind: ConfigKind, name: &str) -> Option<&Arc<ConfigEntry>> {
        self.config_entries.get(&(kind, name.to_owned()))
    }

    /// All entries of a kind in name order.
    pub fn config_entries(&self, kind: ConfigKind) -> impl Iterator<Item = &Arc<ConfigEntry>> {
        self.config_entries
            .range((kind, String::new())..)
            .take_while(move |(key, _)| key.0 == kind)
            .map(|(_, entry)| entry)
    }

    /// All entries in order of kind and name.
    pub fn all_config_entries(&self) -> impl Iterator<Item = &Arc<ConfigEntry>> {
        self.config_entries.values()
    }

    /// Index of all config entries.
    pub fn config_index(&self) -> Index {
        self.row(&IndexRow::ConfigEntries)
    }

    /// Index of the newest change among the entries of a kind, removals included.
    pub fn config_kind_index(&self, kind: ConfigKind) -> Index {
        self.row(&IndexRow::ConfigKind(kind))
    }
}

impl Tx<'_> {
    pub(crate) fn config(&mut self, op: &ConfigOp) -> Outcome {
        match op {
            ConfigOp::Upsert(entry) => {
                self.config_set(entry);
                Outcome::Bool(true)
            }
            ConfigOp::UpsertCas(entry) => {
                let stored = self.state.config_entry(entry.kind(), entry.name());
                let holds = stored.map_or(0, |e| e.modify_index()) == entry.modify_index();
                if holds {
                    self.config_set(entry);
                }
                Outcome::Bool(holds)
            }
            ConfigOp::Delete(kind, name) => {
                let key = (*kind, name.clone());
                if self.state.config_entries.remove(&key).is_some() {
                    self.touch_config(*kind, name);
                }
                Outcome::Done
            }
        }
    }

    fn config_set(&mut self, entry: &ConfigEntry) {
        let key = (entry.kind(), entry.name().to_owned());
        let mut create = self.index;
        if let Some(old) = self.state.config_entries.get(&key) {
            create = old.create_index();
            let same = entry
                .clone()
                .with_indexes(old.create_index(), old.modify_index());
            if same == **old {
                return;
            }
        }
        let stored = Arc::new(entry.clone().with_indexes(create, self.index));
        let (kind, name) = key.clone();
        self.state.config_entries.insert(key, stored);
        self.touch_config(kind, &name);
    }

    fn touch_config(&mut self, kind: ConfigKind, name: &str) {
        self.bump(IndexRow::ConfigEntries);
        self.bump(IndexRow::ConfigKind(kind));
        self.touch(Topic::AnyConfig);
        self.touch(Topic::ConfigKind(kind));
        self.touch(Topic::ConfigEntry(kind, name.to_owned()));
    }
}
