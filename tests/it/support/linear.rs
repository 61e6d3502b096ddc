//! Checks whether a history of single keys could come from one store that does one thing at a time (pure).
//!
//! The algorithm is Wing and Gong's search with Lowe's memory of what was tried: from the operations that could be next,
//! one whose answer fits the present value is taken, and taken back when nothing fits later. Keys are independent of each
//! other, so each is checked on its own.

use std::collections::{BTreeMap, HashSet};

/// What a client asked of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Writes a value.
    Put(u64),
    /// Removes the key.
    Delete,
    /// Writes the second value if the key holds the first.
    Cas(Option<u64>, u64),
    /// Reads the key.
    Get,
}

/// What the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A put or delete that was acknowledged.
    Done,
    /// Whether a compare-and-set took effect.
    Swapped(bool),
    /// What a read found.
    Value(Option<u64>),
    /// Nothing is known: it may have taken effect at any time since, or never.
    Unknown,
}

/// One operation with the times at which it was asked and answered, in any unit that only grows.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) client: usize,
    pub(crate) op: Op,
    pub(crate) answer: Answer,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
}

/// Checks the histories of all keys; the error names the key and what cannot be explained.
pub(crate) fn check(history: &BTreeMap<String, Vec<Event>>) -> Result<(), String> {
    for (key, events) in history {
        check_key(events).map_err(|stuck| format!("{key} is not linearizable: {stuck}"))?;
    }
    Ok(())
}

/// Checks one key, which does not exist at first.
pub(crate) fn check_key(events: &[Event]) -> Result<(), String> {
    // What nobody knows about and what reads nothing cannot contradict anything.
    let mut events: Vec<Event> = events
        .iter()
        .filter(|event| !(event.answer == Answer::Unknown && event.op == Op::Get))
        .cloned()
        .collect();
    for event in &mut events {
        if event.answer == Answer::Unknown {
            event.answered = u64::MAX;
        }
    }
    // What is known comes first: the rest may have happened, and is tried where nothing else fits.
    events.sort_by_key(|event| (event.answer == Answer::Unknown, event.asked));
    let known = events
        .iter()
        .filter(|event| event.answer != Answer::Unknown);
    let known = known.count();
    let is_cas = |at: &usize| matches!(events[*at].op, Op::Cas(..));
    let mut search = Search {
        done: vec![false; events.len()],
        known,
        unknown_cas: (known..events.len()).filter(is_cas).collect(),
        low: 0,
        open: known,
        bits: vec![0; events.len().div_ceil(64)],
        events,
        value: None,
        seen: HashSet::new(),
        best: 0,
    };
    match search.run() {
        true => Ok(()),
        false => Err(search.explain()),
    }
}

struct Search {
    events: Vec<Event>,
    done: Vec<bool>,
    /// How many of the events have a known answer. They come first.
    known: usize,
    /// The unknown ones that need a value.
    unknown_cas: Vec<usize>,
    /// All known events before this one are done.
    low: usize,
    /// The same as `done`, one bit each.
    bits: Vec<u64>,
    /// Operations with a known answer that are not done.
    open: usize,
    value: Option<u64>,
    /// Which sets of finished operations were reached with which value.
    seen: HashSet<(Vec<u64>, Option<u64>)>,
    /// The most operations with a known answer that could be explained.
    best: usize,
}

impl Search {
    /// Explores without recursion: histories are long.
    fn run(&mut self) -> bool {
        let mut taken: Vec<(usize, Option<u64>)> = Vec::new();
        let mut from = 0;
        loop {
            self.best = self.best.max(self.known - self.open);
            if self.open == 0 {
                return true; // What is left need not have happened.
            }
            match self.next(from) {
                Some((at, value)) => {
                    taken.push((at, self.value));
                    self.turn(at);
                    self.value = value;
                    from = 0;
                    if !self.seen.insert((self.bits.clone(), self.value)) {
                        from = self.back(&mut taken);
                    }
                }
                None if taken.is_empty() => return false,
                None => from = self.back(&mut taken),
            }
        }
    }

    /// Does an operation, or takes it back.
    fn turn(&mut self, at: usize) {
        self.done[at] = !self.done[at];
        self.bits[at / 64] ^= 1 << (at % 64);
        if at < self.known {
            match self.done[at] {
                true => self.open -= 1,
                false => {
                    self.open += 1;
                    self.low = self.low.min(at);
                }
            }
            while self.low < self.known && self.done[self.low] {
                self.low += 1;
            }
        }
    }

    /// Takes the last step back; answers where to go on.
    fn back(&mut self, taken: &mut Vec<(usize, Option<u64>)>) -> usize {
        let Some((at, value)) = taken.pop() else {
            return self.events.len();
        };
        self.turn(at);
        self.value = value;
        at + 1
    }

    /// The next operation from `from` on that may come now and whose answer fits, with the value after it.
    fn next(&self, from: usize) -> Option<(usize, Option<u64>)> {
        let (coming, first_answer) = self.coming();
        let fits = |at: usize| Some((at, self.apply(&self.events[at])?));
        let known = coming
            .iter()
            .copied()
            .filter(|at| *at >= from)
            .find_map(fits);
        known.or_else(|| {
            // What is unknown may be put off until somebody needs it, because nobody says when it ended.
            (self.known.max(from)..self.events.len())
                .filter(|at| !self.done[*at] && self.events[*at].asked <= first_answer)
                .filter_map(fits)
                .find(|(_, value)| self.is_needed(*value, &coming, first_answer))
        })
    }

    /// The known operations that may come now, and the time at which the first of them was answered: whatever was asked
    /// later comes later.
    fn coming(&self) -> (Vec<usize>, u64) {
        let (mut coming, mut first_answer) = (Vec::new(), u64::MAX);
        for at in self.low..self.known {
            let event = &self.events[at];
            if event.asked > first_answer {
                break;
            }
            if !self.done[at] {
                coming.push(at);
                first_answer = first_answer.min(event.answered);
            }
        }
        coming.retain(|at| self.events[*at].asked <= first_answer);
        (coming, first_answer)
    }

    /// Whether an operation that could come next needs this value rather than the present one.
    fn is_needed(&self, value: Option<u64>, coming: &[usize], first_answer: u64) -> bool {
        let needs = |event: &Event| match (&event.op, event.answer) {
            (Op::Get, Answer::Value(read)) => read == value,
            (Op::Cas(expected, _), Answer::Swapped(false)) => *expected == self.value,
            (Op::Cas(expected, _), _) => *expected == value,
            _ => false,
        };
        let may_come = |at: &&usize| !self.done[**at] && self.events[**at].asked <= first_answer;
        let mut unknown = self.unknown_cas.iter().filter(may_come);
        value != self.value
            && (coming.iter().any(|at| needs(&self.events[*at]))
                || unknown.any(|at| needs(&self.events[*at])))
    }

    /// The value after an operation; `None` if it would have been answered otherwise.
    fn apply(&self, event: &Event) -> Option<Option<u64>> {
        let unknown = event.answer == Answer::Unknown;
        match event.op {
            Op::Put(value) => Some(Some(value)),
            Op::Delete => Some(None),
            Op::Get => (event.answer == Answer::Value(self.value)).then_some(self.value),
            Op::Cas(expected, new) => {
                let swaps = expected == self.value;
                (unknown || event.answer == Answer::Swapped(swaps)).then_some(if swaps {
                    Some(new)
                } else {
                    self.value
                })
            }
        }
    }

    fn explain(&self) -> String {
        let known = self.events.iter().filter(|e| e.answer != Answer::Unknown);
        let near = known.skip(self.best.saturating_sub(4)).take(10);
        let near: Vec<String> = near.map(|event| format!("{event:?}")).collect();
        format!(
            "{} of its operations can be explained; about there: {}",
            self.best,
            near.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Answer::{Done, Swapped, Unknown, Value};

    fn event(client: usize, op: Op, answer: Answer, asked: u64, answered: u64) -> Event {
        Event {
            client,
            op,
            answer,
            asked,
            answered,
        }
    }

    #[test]
    fn possible_histories_are_accepted() {
        let table: [(&str, Vec<Event>); 6] = [
            ("nothing", vec![]),
            (
                "one after the other",
                vec![
                    event(0, Op::Get, Value(None), 0, 1),
                    event(0, Op::Put(1), Done, 2, 3),
                    event(1, Op::Cas(Some(1), 2), Swapped(true), 4, 5),
                    event(0, Op::Cas(Some(1), 3), Swapped(false), 6, 7),
                    event(0, Op::Delete, Done, 8, 9),
                    event(1, Op::Get, Value(None), 10, 11),
                ],
            ),
            (
                "two reads at the time of a write see before and after",
                vec![
                    event(0, Op::Put(1), Done, 0, 10),
                    event(1, Op::Get, Value(None), 1, 3),
                    event(2, Op::Get, Value(Some(1)), 2, 4),
                ],
            ),
            (
                "a write of unknown outcome shows late",
                vec![
                    event(0, Op::Put(1), Unknown, 0, 1),
                    event(1, Op::Get, Value(None), 5, 6),
                    event(1, Op::Get, Value(Some(1)), 7, 8),
                ],
            ),
            (
                "a write of unknown outcome never shows",
                vec![
                    event(0, Op::Put(1), Unknown, 0, 1),
                    event(1, Op::Put(2), Done, 2, 3),
                    event(1, Op::Get, Value(Some(2)), 7, 8),
                ],
            ),
            (
                "the search must go back",
                vec![
                    event(0, Op::Put(1), Done, 0, 10),
                    event(1, Op::Put(2), Done, 0, 10),
                    event(2, Op::Cas(Some(2), 3), Swapped(true), 0, 10),
                    event(3, Op::Get, Value(Some(1)), 11, 12),
                ],
            ),
        ];
        for (what, history) in table {
            assert_eq!(check_key(&history), Ok(()), "{what}");
        }
    }

    #[test]
    fn impossible_histories_are_refused() {
        let table: [(&str, Vec<Event>); 6] = [
            (
                "a lost write",
                vec![
                    event(0, Op::Put(1), Done, 0, 1),
                    event(1, Op::Get, Value(None), 2, 3),
                ],
            ),
            (
                "a stale read after a newer one",
                vec![
                    event(0, Op::Put(1), Done, 0, 1),
                    event(0, Op::Put(2), Done, 2, 9),
                    event(1, Op::Get, Value(Some(2)), 3, 4),
                    event(2, Op::Get, Value(Some(1)), 5, 6),
                ],
            ),
            (
                "two winners of one compare-and-set",
                vec![
                    event(0, Op::Put(1), Done, 0, 1),
                    event(1, Op::Cas(Some(1), 2), Swapped(true), 2, 5),
                    event(2, Op::Cas(Some(1), 3), Swapped(true), 2, 5),
                ],
            ),
            (
                "a value that nobody wrote",
                vec![event(0, Op::Get, Value(Some(7)), 0, 1)],
            ),
            (
                "a deleted key that comes back",
                vec![
                    event(0, Op::Put(1), Done, 0, 1),
                    event(0, Op::Delete, Done, 2, 3),
                    event(1, Op::Get, Value(Some(1)), 4, 5),
                ],
            ),
            (
                "a write of unknown outcome that shows, goes and comes again",
                vec![
                    event(0, Op::Put(1), Unknown, 0, 1),
                    event(1, Op::Get, Value(Some(1)), 2, 3),
                    event(1, Op::Put(2), Done, 4, 5),
                    event(1, Op::Get, Value(Some(1)), 6, 7),
                ],
            ),
        ];
        for (what, history) in table {
            let error = check_key(&history).expect_err(what);
            assert!(error.contains("can be explained"), "{error}");
        }
    }

    /// Many clients at a time on a true store; then one answer is falsified.
    #[test]
    fn long_histories_are_checked_quickly() {
        let (mut events, mut value, mut now) = (Vec::new(), None, 0);
        for round in 0..500_u64 {
            let asked = now;
            for client in 0..6 {
                let (op, answer) = match (round + client) % 4 {
                    0 => (Op::Put(round * 10 + client), Done),
                    1 => (Op::Get, Value(value)),
                    2 => (Op::Cas(value, round * 10 + client), Swapped(true)),
                    _ => (Op::Put(round), Unknown),
                };
                if let Op::Put(new) | Op::Cas(_, new) = op
                    && answer != Unknown
                {
                    value = Some(new);
                }
                // Asked together, answered in order: each takes effect just before its answer.
                now += 1;
                let client = usize::try_from(client).unwrap();
                events.push(event(client, op, answer, asked, now));
            }
            now += 1;
        }
        assert_eq!(check_key(&events), Ok(()));
        let read = events.iter().rposition(|e| e.op == Op::Get).unwrap();
        events[read].answer = Value(Some(u64::MAX));
        assert!(check_key(&events).is_err());
    }
}
