//! Broadcasts that wait.

use bytes::Bytes;
use proptest::prelude::*;

use crate::gossip::swim::Token;
use crate::gossip::swim::queue::Broadcast;
use crate::gossip::swim::queue::Queue;
use crate::gossip::swim::queue::Room;
use crate::gossip::swim::queue::transmit_limit;

fn room(bytes: usize) -> Room {
    Room {
        bytes,
        overhead: 2,
        parts: 255,
    }
}

fn push(queue: &mut Queue, about: Option<&str>, message: &'static str, token: u64) -> Vec<Token> {
    let mut finished = Vec::new();
    let broadcast = Broadcast {
        about: about.map(Into::into),
        message: Bytes::from_static(message.as_bytes()),
        done: Some(Token(token)),
    };
    queue.push(broadcast, &mut finished);
    finished
}

fn take(queue: &mut Queue, bytes: usize, limit: u32) -> (Vec<String>, Vec<Token>) {
    let mut finished = Vec::new();
    let taken = queue.take(&mut room(bytes), limit, &mut finished);
    let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    (taken.iter().map(text).collect(), finished)
}

#[test]
fn the_number_of_transmissions_grows_with_the_pool() {
    let limits = [0, 1, 9, 10, 99, 100, 998, 999, 1000].map(|nodes| transmit_limit(4, nodes));
    assert_eq!(limits, [0, 4, 4, 8, 8, 12, 12, 12, 16]);
}

#[test]
fn the_least_sent_come_first_then_the_longest_then_the_newest() {
    let mut queue = Queue::default();
    push(&mut queue, None, "old", 1);
    push(&mut queue, None, "longer", 2);
    push(&mut queue, None, "new", 3);
    assert_eq!(take(&mut queue, 100, 9).0, ["longer", "new", "old"]);
    push(&mut queue, None, "x", 4);
    assert_eq!(take(&mut queue, 100, 9).0, ["x", "longer", "new", "old"]);
    assert_eq!(take(&mut queue, 8, 9).0, ["x", "new"], "what fits");
    assert_eq!(take(&mut queue, 8, 9).0, ["longer"]);
    assert_eq!(take(&mut queue, 2, 9).0, [] as [&str; 0]);
}

#[test]
fn news_replaces_older_news_about_the_same_node() {
    let mut queue = Queue::default();
    push(&mut queue, Some("a"), "first", 1);
    take(&mut queue, 100, 9);
    push(&mut queue, Some("b"), "other", 2);
    assert_eq!(push(&mut queue, Some("a"), "second", 3), [Token(1)]);
    assert_eq!(take(&mut queue, 100, 9).0, ["second", "other"]);
    assert_eq!(push(&mut queue, Some("a"), "third", 4), [Token(3)]);
    assert_eq!(queue.len(), 2);
}

#[test]
fn after_its_last_transmission_a_broadcast_ends() {
    let mut queue = Queue::default();
    push(&mut queue, Some("a"), "x", 1);
    assert_eq!(take(&mut queue, 100, 2), (vec!["x".to_owned()], vec![]));
    assert_eq!(
        take(&mut queue, 100, 2),
        (vec!["x".to_owned()], vec![Token(1)])
    );
    assert!(queue.is_empty());
    assert_eq!(push(&mut queue, Some("a"), "y", 2), []);
}

#[test]
fn pruning_drops_what_was_sent_most() {
    let mut queue = Queue::default();
    push(&mut queue, None, "sent", 1);
    take(&mut queue, 100, 9);
    push(&mut queue, None, "a", 2);
    push(&mut queue, Some("n"), "b", 3);
    let mut finished = Vec::new();
    queue.prune(2, &mut finished);
    assert_eq!(
        (queue.len(), finished.as_slice()),
        (2, [Token(1)].as_slice())
    );
    queue.prune(0, &mut finished);
    assert_eq!(finished, [Token(1), Token(2), Token(3)]);
}

proptest! {
    /// Everything is sent exactly as often as it shall be, no packet is too full, and none is left emptier than needed.
    #[test]
    fn all_is_sent_as_often_as_it_shall(
        sizes in prop::collection::vec(1..60_usize, 1..40),
        bytes in 62..200_usize,
        parts in 1..9_usize,
        limit in 1..5_u32,
    ) {
        let mut queue = Queue::default();
        let mut finished = Vec::new();
        for (token, size) in (0..).zip(&sizes) {
            let message = vec![token as u8; *size].into();
            queue.push(Broadcast { about: None, message, done: Some(Token(token)) }, &mut finished);
        }
        let mut sent = vec![0; sizes.len()];
        while !queue.is_empty() {
            let mut room = Room { bytes, overhead: 2, parts };
            let taken = queue.take(&mut room, limit, &mut finished);
            prop_assert!(!taken.is_empty() && taken.len() <= parts);
            let used: usize = taken.iter().map(|message| message.len() + 2).sum();
            prop_assert_eq!(room.bytes, bytes - used);
            for message in taken {
                sent[usize::from(message[0])] += 1;
            }
        }
        prop_assert!(sent.iter().all(|count| *count == limit));
        prop_assert_eq!(finished.len(), sizes.len());
    }
}
