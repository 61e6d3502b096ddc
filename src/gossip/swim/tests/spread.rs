//! What is told to whom.

use super::*;
use crate::gossip::swim::Token;
use crate::gossip::swim::UserQueue;

#[test]
fn news_rides_on_every_packet_until_it_was_sent_often_enough() {
    let mut me = Me::knowing(&["a", "b"]);
    me.hear(Message::Alive(alive("c", 9, 1)));
    me.outputs();
    let mut carried = 0;
    for _ in 0..10 {
        let node = "me".into();
        me.hear(Message::Ping(Ping {
            node,
            ..Ping::default()
        }));
        carried += me.said()[0].1.len() - 1;
    }
    assert_eq!(carried, 4, "four times the digits of the pool's size");
}

#[test]
fn gossip_goes_to_the_living_the_suspects_and_the_freshly_dead() {
    let mut me = Me::with(|config| config.timing.gossip_nodes = 10);
    me.meet(&["a", "suspect", "dead", "left", "gone"]);
    me.hear(Message::Dead(accusation("gone", "a", 1)));
    me.now += seconds(31.0);
    me.hear(Message::Suspect(accusation("suspect", "a", 1)));
    me.hear(Message::Dead(accusation("dead", "a", 1)));
    me.hear(Message::Dead(accusation("left", "left", 1)));
    me.outputs();
    me.swim.gossip(me.now, &mut me.rng);
    let mut names: Vec<_> = me.said().into_iter().map(|(to, _)| to.name).collect();
    names.sort();
    assert_eq!(names, ["a", "dead", "suspect"].map(NodeName::from));
}

#[test]
fn who_has_nothing_to_say_does_not_wake_up_for_it() {
    let mut me = Me::new();
    assert!(me.swim.queue_len() > 0);
    let idle = me.swim.next_deadline().unwrap();
    assert!(idle >= me.now + seconds(1.0), "only the probe");
    me.pass(seconds(0.7));
    me.hear(Message::Alive(alive("a", 2, 1)));
    me.outputs();
    assert!(
        me.swim.next_deadline().unwrap() <= me.now,
        "at once after a pause"
    );
    me.swim.tick(me.now, &mut me.rng);
    assert_eq!(me.said().len(), 1);
    let next = me.swim.next_deadline().unwrap();
    assert!(
        next > me.now && next <= me.now + seconds(0.2),
        "and then at its pace"
    );
}

#[test]
fn own_news_comes_first_then_intents_queries_and_events() {
    let mut me = Me::knowing(&["a"]);
    me.swim.queue_user(UserQueue::Events, b"event", None);
    me.swim.queue_user(UserQueue::Queries, b"query", None);
    me.swim.queue_user(UserQueue::Intents, b"intent", None);
    me.hear(Message::Alive(alive("b", 3, 1)));
    let user = |text: &'static str| Message::User(text.as_bytes().into());
    let expected = [
        Message::Alive(alive("b", 3, 1)),
        user("intent"),
        user("query"),
        user("event"),
    ];
    assert_eq!(me.gossip(), expected);
    let lengths = [UserQueue::Intents, UserQueue::Queries, UserQueue::Events];
    assert_eq!(
        lengths.map(|queue| me.swim.user_queue_len(queue)),
        [1, 1, 1]
    );
}

#[test]
fn packets_are_filled_up_to_their_size() {
    let mut me = Me::with(|config| config.packet_room = 300);
    me.meet(&["a"]);
    let large = [b'l'; 150];
    let (middle, small) = ([b'm'; 100], [b's'; 32]);
    for message in [large.as_slice(), &middle, &small, &small] {
        me.swim.queue_user(UserQueue::Events, message, None);
    }
    // 2 for the compound, 3 for each message: 150 + 100 + 32 and no more.
    let sizes: Vec<_> = me.gossip().iter().map(user_size).collect();
    assert_eq!(sizes, [150, 100, 32]);
    let sizes: Vec<_> = me.gossip().iter().map(user_size).collect();
    assert_eq!(sizes, [32, 150, 100], "what was sent least comes first");
}

fn user_size(message: &Message) -> usize {
    match message {
        Message::User(bytes) => bytes.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_fits_no_packet_is_not_kept() {
    let mut me = Me::knowing(&["a"]);
    me.swim
        .queue_user(UserQueue::Events, &[0; 1395], Some(Token(1)));
    assert_eq!(me.swim.user_queue_len(UserQueue::Events), 1);
    me.swim
        .queue_user(UserQueue::Events, &[0; 1396], Some(Token(2)));
    assert_eq!(me.swim.user_queue_len(UserQueue::Events), 1);
    assert_eq!(me.events(), [Event::Broadcast(Token(2))]);
    assert_eq!(me.gossip().len(), 1);
    let mut huge = alive("b", 3, 1);
    huge.meta = vec![0; 2000].into();
    me.hear(Message::Alive(huge));
    assert_eq!(me.swim.queue_len(), 0);
}

#[test]
fn a_message_to_one_node_travels_alone() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Alive(alive("b", 3, 1)));
    me.outputs();
    me.swim.send_user(target("a", 2), b"answer");
    let answer = Message::User(b"answer".as_slice().into());
    assert_eq!(me.said(), [(target("a", 2), vec![answer])]);
}

#[test]
fn messages_of_the_layer_above_are_passed_up() {
    let mut me = Me::new();
    me.hear_from(address(5), Message::User(b"x".as_slice().into()));
    let (from, message) = (address(5), b"x".as_slice().into());
    assert_eq!(me.events(), [Event::User { from, message }]);
}

#[test]
fn pools_through_gateways_send_only_to_names() {
    let mut me = Me::with(|config| config.require_node_names = true);
    me.meet(&["a"]);
    me.swim.send_user(target("", 2), b"x");
    assert_eq!(me.outputs(), []);
    me.swim.send_user(target("a", 2), b"x");
    assert_eq!(me.said().len(), 1);
}

#[test]
fn states_are_exchanged_with_a_living_member_now_and_then() {
    let mut me = Me::knowing(&["a", "b"]);
    me.hear(Message::Dead(accusation("b", "a", 1)));
    let mut exchanges = Vec::new();
    for _ in 0..130 {
        me.pass(seconds(1.0));
        let pings: Vec<_> = me.outputs();
        for output in pings {
            match output {
                Output::PushPull { to } => exchanges.push(to),
                Output::Packet(packet) => {
                    // The probes succeed.
                    if let Some(seq_no) = packet.probe {
                        me.hear(Message::Ack(Ack {
                            seq_no,
                            ..Ack::default()
                        }));
                    }
                }
                _ => {}
            }
        }
    }
    assert!(exchanges.len() >= 3, "{exchanges:?}");
    assert!(exchanges.iter().all(|to| *to == target("a", 2)));
}
