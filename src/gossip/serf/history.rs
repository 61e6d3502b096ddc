//! What was heard lately, so that nothing is heard twice.

use std::collections::BTreeMap;

use crate::gossip::wire::serf::LamportTime;

/// How many times are remembered: serf's `EventBuffer` and `QueryBuffer`. What is older is not taken any more.
const TIMES: LamportTime = 512;
/// Most things that are remembered. Several may happen at one time, but a flood must not fill the memory.
const MAX_ENTRIES: usize = 8192;

/// The latest things of a kind, by their time.
#[derive(Debug)]
pub(super) struct History<T> {
    heard: BTreeMap<LamportTime, Vec<T>>,
    entries: usize,
    /// What is older is not taken.
    since: LamportTime,
}

impl<T: PartialEq> History<T> {
    /// Nothing yet; what happened before `since` is not taken.
    pub(super) fn new(since: LamportTime) -> Self {
        Self {
            heard: BTreeMap::new(),
            entries: 0,
            since,
        }
    }

    /// From now on does not take what happened before `time`.
    pub(super) fn ignore_before(&mut self, time: LamportTime) {
        self.since = self.since.max(time);
    }

    /// Remembers something that happened at `time`, by a clock that shows `clock`. Says whether it is news.
    pub(super) fn hear(&mut self, clock: LamportTime, time: LamportTime, what: T) -> bool {
        if time < self.since || time < clock.saturating_sub(TIMES) {
            return false;
        }
        let heard = self.heard.entry(time).or_default();
        if heard.contains(&what) {
            return false;
        }
        heard.push(what);
        self.entries += 1;
        self.forget_before(clock.saturating_sub(TIMES));
        while self.entries > MAX_ENTRIES {
            let Some((&oldest, _)) = self.heard.first_key_value() else {
                break;
            };
            self.forget_before(oldest + 1);
            self.ignore_before(oldest + 1);
        }
        true
    }

    /// All that is remembered, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (LamportTime, &[T])> {
        self.heard.iter().map(|(time, all)| (*time, all.as_slice()))
    }

    fn forget_before(&mut self, time: LamportTime) {
        let kept = self.heard.split_off(&time);
        let forgotten = std::mem::replace(&mut self.heard, kept);
        self.entries -= forgotten.values().map(Vec::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_heard_twice() {
        let mut history = History::new(3);
        assert!(!history.hear(10, 2, "before we came"));
        assert!(history.hear(10, 9, "a"));
        assert!(history.hear(10, 9, "b"));
        assert!(history.hear(10, 8, "a"));
        assert!(!history.hear(10, 9, "a"));
        let all: Vec<_> = history.iter().collect();
        assert_eq!(all, [(8, &["a"][..]), (9, &["a", "b"])]);
        history.ignore_before(10);
        assert!(!history.hear(11, 9, "c"));
    }

    #[test]
    fn the_distant_past_is_forgotten_and_not_taken_again() {
        let mut history = History::new(0);
        assert!(history.hear(2, 1, ()));
        assert!(history.hear(513, 512, ()));
        assert!(!history.hear(513, 1, ()));
        assert!(history.hear(514, 513, ()));
        assert!(!history.hear(514, 1, ()));
        assert_eq!(history.iter().count(), 2);
    }

    #[test]
    fn a_flood_is_bounded() {
        let mut history = History::new(0);
        assert!(history.hear(2, 1, usize::MAX));
        for n in 0..MAX_ENTRIES {
            assert!(history.hear(3, 2, n));
        }
        assert!(!history.hear(3, 1, usize::MAX));
        assert_eq!(history.entries, MAX_ENTRIES);
        assert!(history.hear(3, 2, MAX_ENTRIES));
        assert_eq!(history.entries, 0);
        assert!(!history.hear(3, 2, 0));
    }
}
