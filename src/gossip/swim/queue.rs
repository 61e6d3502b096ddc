//! What shall be told to everybody.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bytes::Bytes;

use crate::gossip::swim::Token;
use crate::model::NodeName;

/// Broadcasts that wait to be sent, each a limited number of times. Those sent least come first, of those the longest
/// that fit, of those the newest.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: BTreeMap<Key, Broadcast>,
    /// The broadcast about each node.
    about: BTreeMap<NodeName, Key>,
    last_id: u64,
}

/// The order in which broadcasts are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    transmits: u32,
    length: Reverse<usize>,
    id: Reverse<u64>,
}

/// Something to tell to everybody.
#[derive(Debug)]
pub(super) struct Broadcast {
    /// Replaces what waits about the same node.
    pub(super) about: Option<NodeName>,
    pub(super) message: Bytes,
    /// Who waits for its end.
    pub(super) done: Option<Token>,
}

/// What a packet still holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) bytes: usize,
    /// Bytes that each message costs besides its own.
    pub(super) overhead: usize,
    pub(super) parts: usize,
}

/// How often a broadcast is sent in a pool of `nodes`.
pub(super) fn transmit_limit(mult: u32, nodes: usize) -> u32 {
    mult.saturating_mul((nodes as f64 + 1.0).log10().ceil() as u32)
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Queues a broadcast; those that it ends go to `finished`.
    pub(super) fn push(&mut self, broadcast: Broadcast, finished: &mut Vec<Token>) {
        self.last_id += 1;
        let key = Key {
            transmits: 0,
            length: Reverse(broadcast.message.len()),
            id: Reverse(self.last_id),
        };
        let old = broadcast
            .about
            .clone()
            .and_then(|name| self.about.insert(name, key))
            .and_then(|old| self.waiting.remove(&old));
        finished.extend(old.and_then(|old| old.done));
        self.waiting.insert(key, broadcast);
    }

    /// Takes what fits, fresh and long broadcasts first, and lowers `room` by it.
    pub(super) fn take(
        &mut self,
        room: &mut Room,
        limit: u32,
        finished: &mut Vec<Token>,
    ) -> Vec<Bytes> {
        let mut taken = Vec::new();
        let mut again = Vec::new();
        let mut transmits = self.waiting.keys().next().map_or(0, |key| key.transmits);
        while let Some(key) = self.next_that_fits(transmits, room) {
            transmits = key.transmits;
            let Some(broadcast) = self.waiting.remove(&key) else {
                break;
            };
            room.bytes -= broadcast.message.len() + room.overhead;
            room.parts -= 1;
            taken.push(broadcast.message.clone());
            let sent = key.transmits + 1;
            if sent < limit {
                again.push((
                    Key {
                        transmits: sent,
                        ..key
                    },
                    broadcast,
                ));
            } else {
                self.end(broadcast, finished);
            }
        }
        for (key, broadcast) in again {
            if let Some(name) = &broadcast.about {
                self.about.insert(name.clone(), key);
            }
            self.waiting.insert(key, broadcast);
        }
        taken
    }

    /// The first broadcast that fits and was sent at least `transmits` times.
    fn next_that_fits(&self, transmits: u32, room: &Room) -> Option<Key> {
        let bytes = room.bytes.checked_sub(room.overhead)?;
        if bytes == 0 || room.parts == 0 {
            return None;
        }
        let mut from = longest(transmits, bytes);
        loop {
            let (key, _) = self.waiting.range(from..).next()?;
            if key.length.0 <= bytes {
                return Some(*key);
            }
            // Only messages that are too long lead here, after the end of a tier: look into theirs.
            from = longest(key.transmits, bytes);
        }
    }

    /// Nobody waits for this broadcast any more. Says whether it was there.
    pub(super) fn forget(&mut self, done: Token) -> bool {
        let mut waiting = self.waiting.values_mut();
        waiting.any(|broadcast| broadcast.done.take_if(|token| *token == done).is_some())
    }

    /// Drops the broadcasts that were sent most, until `max` are left.
    pub(super) fn prune(&mut self, max: usize, finished: &mut Vec<Token>) {
        while self.waiting.len() > max {
            let Some((_, broadcast)) = self.waiting.pop_last() else {
                break;
            };
            self.end(broadcast, finished);
        }
    }

    fn end(&mut self, broadcast: Broadcast, finished: &mut Vec<Token>) {
        if let Some(name) = broadcast.about {
            self.about.remove(&name);
        }
        finished.extend(broadcast.done);
    }
}

/// Stands before all broadcasts of a tier that have at most so many bytes.
fn longest(transmits: u32, bytes: usize) -> Key {
    Key {
        transmits,
        length: Reverse(bytes),
        id: Reverse(u64::MAX),
    }
}
