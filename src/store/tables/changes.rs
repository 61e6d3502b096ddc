//! What differs between two states, found by comparing what they do not share: the cost is that of the changes.

use crate::model::{ConfigKind, NodeService, ServiceKind};
use crate::store::state::{IndexRow, Key, State};
use crate::store::tables::rows;
use imbl::ordmap::DiffItem;
use std::sync::Arc;

impl State {
    /// Services whose Connect-capable instances, their nodes or their checks were touched between `older` and this
    /// state, in order of name. Both must come from the same log: an index stands for what was written at it.
    pub fn connect_changes(&self, older: &Self) -> Vec<Key> {
        let changed = older.indexes.diff(&self.indexes);
        changed
            .filter_map(|item| match item {
                DiffItem::Add(IndexRow::Connect(name), _)
                | DiffItem::Remove(IndexRow::Connect(name), _)
                | DiffItem::Update {
                    new: (IndexRow::Connect(name), _),
                    ..
                } => Some(name.clone()),
                _ => None,
            })
            .collect()
    }

    /// Names of the config entries of a kind that differ between `older` and this state, in order.
    pub fn config_changes(&self, older: &Self, kind: ConfigKind) -> Vec<String> {
        let changed = older.config_entries.diff(&self.config_entries);
        changed
            .filter_map(|item| {
                let (DiffItem::Add(key, _)
                | DiffItem::Remove(key, _)
                | DiffItem::Update { new: (key, _), .. }) = item;
                (key.0 == kind).then(|| key.1.clone())
            })
            .collect()
    }

    /// The nodes that have an instance of this kind with this id, in order of node.
    pub fn kind_with_id(&self, kind: &ServiceKind, id: &str) -> Vec<(Key, Arc<NodeService>)> {
        let id = Key::from(id);
        rows(&self.services_by_kind, kind, None)
            .filter(|(at, _)| at.2 == id)
            .map(|(at, service)| (at.1.clone(), service.clone()))
            .collect()
    }
}
