//! One file per table: how it is written and how it is read.

pub mod ca;
pub mod changes;
pub mod checks;
pub mod config_entries;
pub mod coordinates;
pub mod federation_states;
pub mod health;
pub mod kv;
pub mod nodes;
pub mod restore;
pub mod services;

use crate::store::state::Key;
use imbl::OrdMap;

/// The rows whose key begins with `first` (and `second`, if given), in key order.
pub(crate) fn rows<'a, A: Ord + Clone, V: Clone>(
    map: &'a OrdMap<(A, Key, Key), V>,
    first: &'a A,
    second: Option<&'a Key>,
) -> impl Iterator<Item = (&'a (A, Key, Key), &'a V)> {
    let start = (
        first.clone(),
        second.cloned().unwrap_or_else(Key::first),
        Key::first(),
    );
    map.range(start..)
        .take_while(move |(key, _)| key.0 == *first && second.is_none_or(|s| key.1 == *s))
}

/// The rows of one node, in id order.
pub(crate) fn on_node<'a, V: Clone>(
    map: &'a OrdMap<(Key, Key), V>,
    node: &'a Key,
) -> impl Iterator<Item = (&'a (Key, Key), &'a V)> {
    map.range((node.clone(), Key::first())..)
        .take_while(move |(key, _)| key.0 == *node)
}
