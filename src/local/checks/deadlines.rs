//! Many timers in one ordered set.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::Instant;

/// At most one deadline per key. Setting, removing and taking one cost the logarithm of their number.
#[derive(Debug, Clone)]
pub struct Deadlines<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: HashMap<K, Instant>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            by_time: BTreeSet::new(),
            by_key: HashMap::new(),
        }
    }
}

impl<K: Ord + Hash + Clone> Deadlines<K> {
    /// Sets the deadline of `key`, replacing an earlier or later one.
    pub fn set(&mut self, key: K, at: Instant) {
        if let Some(old) = self.by_key.insert(key.clone(), at) {
            self.by_time.remove(&(old, key.clone()));
        }
        self.by_time.insert((at, key));
    }

    /// Sets the deadline of `key` unless one is set already.
    pub fn set_if_unset(&mut self, key: K, at: Instant) {
        if !self.by_key.contains_key(&key) {
            self.set(key, at);
        }
    }

    /// Removes the deadline of `key`.
    pub fn clear(&mut self, key: &K) {
        if let Some(at) = self.by_key.remove(key) {
            self.by_time.remove(&(at, key.clone()));
        }
    }

    /// Whether `key` has a deadline.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// The deadline of `key`.
    pub fn get(&self, key: &K) -> Option<Instant> {
        self.by_key.get(key).copied()
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Removes and returns the key with the earliest deadline if that is not after `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        Some(key)
    }

    /// How many deadlines are set.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether no deadline is set.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn keys_come_out_in_order_of_their_newest_deadline() {
        let start = tokio::time::Instant::now().into_std();
        let at = |s| start + Duration::from_secs(s);
        let mut deadlines = Deadlines::default();
        deadlines.set("a", at(5));
        deadlines.set("b", at(3));
        deadlines.set("a", at(1));
        deadlines.set_if_unset("b", at(0));
        deadlines.set("c", at(2));
        deadlines.clear(&"c");
        assert_eq!(deadlines.next(), Some(at(1)));
        assert_eq!(deadlines.pop_due(at(0)), None);
        assert_eq!(deadlines.pop_due(at(9)), Some("a"));
        assert_eq!(deadlines.pop_due(at(9)), Some("b"));
        assert_eq!(deadlines.pop_due(at(9)), None);
        assert!(deadlines.is_empty());
    }
}
