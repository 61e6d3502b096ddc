//! What is said about us, and what we say about ourselves.

use super::*;
use crate::gossip::swim::Token;

#[test]
fn accusations_of_ourselves_are_refuted() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Suspect(accusation("me", "a", 0)));
    assert_eq!(me.swim.incarnation(), 1, "an earlier life");
    me.hear(Message::Suspect(accusation("me", "a", 1)));
    assert_eq!(me.swim.incarnation(), 2);
    assert_eq!(me.swim.health_score(), 1);
    me.hear(Message::Dead(accusation("me", "a", 7)));
    assert_eq!(me.swim.incarnation(), 8);
    let mut mine = alive("me", 1, 8);
    mine.meta = b"mine".as_slice().into();
    assert_eq!(
        me.gossip(),
        [Message::Alive(mine)],
        "the latest refutation alone"
    );
    assert_eq!(me.events(), []);
    assert_eq!(me.state_of("me"), Some((NodeState::Alive, 8)));
}

#[test]
fn a_life_before_a_restart_is_refuted_and_our_own_is_not() {
    let mut me = Me::knowing(&["a"]);
    let mut mine = alive("me", 1, 1);
    mine.meta = b"mine".as_slice().into();
    me.hear(Message::Alive(mine.clone()));
    assert_eq!(
        (me.swim.incarnation(), me.gossip()),
        (1, vec![]),
        "it is ours"
    );
    mine.meta = b"other".as_slice().into();
    me.hear(Message::Alive(mine.clone()));
    assert_eq!(me.swim.incarnation(), 2, "this life, but another meta");
    mine.incarnation = 9;
    mine.meta = b"mine".as_slice().into();
    me.hear(Message::Alive(mine));
    assert_eq!(me.swim.incarnation(), 10);
    me.merge(&[state("me", 1, 20, NodeState::Left)]);
    assert_eq!(me.swim.incarnation(), 21);
}

#[test]
fn the_last_life_of_all_does_not_end_the_count() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Suspect(accusation("me", "a", u32::MAX)));
    me.hear(Message::Suspect(accusation("me", "a", u32::MAX)));
    assert_eq!(me.swim.incarnation(), u32::MAX);
}

#[test]
fn who_leaves_tells_everybody_and_stays_away() {
    let mut me = Me::knowing(&["a"]);
    me.swim.leave(me.now, Some(Token(7)));
    let events = me.events();
    assert!(matches!(events.as_slice(), [Event::Leave(node)] if node.state == NodeState::Left));
    assert!(me.swim.has_left());
    assert_eq!(me.gossip(), [Message::Dead(accusation("me", "me", 1))]);
    let mut events = Vec::new();
    for _ in 0..3 {
        me.swim.gossip(me.now, &mut me.rng);
        events.extend(me.events());
    }
    assert_eq!(events, [Event::Broadcast(Token(7))], "four times in all");
    me.hear(Message::Alive(alive("me", 1, 5)));
    me.hear(Message::Suspect(accusation("me", "a", 5)));
    me.hear(Message::Dead(accusation("me", "a", 5)));
    assert_eq!(me.state_of("me"), Some((NodeState::Left, 1)));
    me.swim
        .update_meta(me.now, b"x".as_slice().into(), Some(Token(9)), &mut me.rng);
    me.swim.leave(me.now, Some(Token(8)));
    assert_eq!(
        me.events(),
        [Event::Broadcast(Token(9)), Event::Broadcast(Token(8))]
    );
}

#[test]
fn who_is_alone_need_not_wait() {
    let mut me = Me::new();
    me.swim
        .update_meta(me.now, b"x".as_slice().into(), Some(Token(1)), &mut me.rng);
    me.swim.leave(me.now, Some(Token(2)));
    let done: Vec<_> = me
        .events()
        .into_iter()
        .filter(|e| matches!(e, Event::Broadcast(_)))
        .collect();
    assert_eq!(
        done,
        [Event::Broadcast(Token(1)), Event::Broadcast(Token(2))]
    );
}

#[test]
fn a_new_meta_is_a_new_life() {
    let mut me = Me::knowing(&["a"]);
    me.swim.update_meta(
        me.now,
        b"first".as_slice().into(),
        Some(Token(1)),
        &mut me.rng,
    );
    me.swim.update_meta(
        me.now,
        b"second".as_slice().into(),
        Some(Token(2)),
        &mut me.rng,
    );
    let events = me.events();
    assert!(
        matches!(events.as_slice(), [Event::Update(_), Event::Broadcast(Token(1)), Event::Update(n)]
            if n.meta.as_ref() == b"second"),
        "the first is replaced: {events:?}"
    );
    let mut mine = alive("me", 1, 3);
    mine.meta = b"second".as_slice().into();
    assert_eq!(me.gossip(), [Message::Alive(mine)]);
    me.hear(Message::Suspect(accusation("me", "a", 3)));
    let Some(Message::Alive(mine)) = me.gossip().pop() else {
        panic!("a refutation");
    };
    assert_eq!(
        (mine.incarnation, mine.meta.as_ref()),
        (4, b"second".as_slice())
    );
}
