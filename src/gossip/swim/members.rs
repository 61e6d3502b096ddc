//! The nodes that we know, and the order in which they are probed.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use rand::Rng;
use rand::RngCore;
use rand::seq::SliceRandom;

use crate::gossip::swim::Node;
use crate::model::NodeName;

/// What we know of a node.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) node: Node,
    /// Its latest life.
    pub(super) incarnation: u32,
    /// When its state changed.
    pub(super) changed: Instant,
}

/// The nodes that we know, we ourselves among them.
#[derive(Debug, Default)]
pub(super) struct Members {
    records: BTreeMap<NodeName, Record>,
    /// Their names, in the order in which they are probed.
    order: Vec<NodeName>,
    /// Where in that order the next probe looks.
    next: usize,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn get(&self, name: &NodeName) -> Option<&Record> {
        self.records.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &NodeName) -> Option<&mut Record> {
        self.records.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.values()
    }

    /// Adds a node at a random place of the order: at its end, it would wait longest for its first probe.
    pub(super) fn insert(&mut self, record: Record, rng: &mut dyn RngCore) {
        let name = record.node.name.clone();
        let place = rng.random_range(0..=self.order.len());
        if self.records.insert(name.clone(), record).is_none() {
            self.order.push(name);
            let last = self.order.len() - 1;
            self.order.swap(place, last);
        }
    }

    /// Up to `count` different nodes that are not to be skipped.
    pub(super) fn random(
        &self,
        count: usize,
        rng: &mut dyn RngCore,
        skip: impl Fn(&Record) -> bool,
    ) -> Vec<&Record> {
        let wanted = self.records.values().filter(|record| !skip(record));
        let mut wanted: Vec<_> = wanted.collect();
        wanted.partial_shuffle(rng, count).0.to_vec()
    }

    /// The next node to probe. After each round the order is shuffled, and the dead are forgotten after `keep`.
    pub(super) fn next_probe(
        &mut self,
        own: &NodeName,
        (now, keep): (Instant, Duration),
        rng: &mut dyn RngCore,
    ) -> Option<NodeName> {
        // One round may be over, and one is enough to find any node.
        for _ in 0..2 {
            while let Some(name) = self.order.get(self.next) {
                self.next += 1;
                let record = self.records.get(name);
                if name != own && record.is_some_and(|record| !record.node.is_gone()) {
                    return Some(name.clone());
                }
            }
            self.forget(own, now, keep);
            self.order.shuffle(rng);
            self.next = 0;
        }
        None
    }

    fn forget(&mut self, own: &NodeName, now: Instant, keep: Duration) {
        self.records.retain(|name, record| {
            let recent = now.saturating_duration_since(record.changed) <= keep;
            name == own || recent || !record.node.is_gone()
        });
        self.order.retain(|name| self.records.contains_key(name));
    }
}
