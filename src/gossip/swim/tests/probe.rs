//! Who is asked whether it lives, and what answers mean.

use super::*;
use crate::gossip::swim::OutPacket;

/// Lets time pass until a probe is sent. Gives its number, whom it is for, and when it was sent.
fn probe(me: &mut Me) -> (u32, Target) {
    for _ in 0..4 {
        for (to, messages) in me.said() {
            if let Some(Message::Ping(ping)) = messages.first() {
                assert_eq!(ping.node, to.name);
                assert_eq!(ping.source_node.as_str(), "me");
                assert_eq!(
                    (ping.source_addr.ip(), ping.source_port),
                    (Some(address(1).ip()), 8301)
                );
                return (ping.seq_no, to);
            }
        }
        let deadline = me.swim.next_deadline().unwrap();
        me.pass(deadline.saturating_duration_since(me.now));
    }
    panic!("no probe");
}

fn ack(seq_no: u32) -> Message {
    let payload = b"payload".as_slice().into();
    Message::Ack(Ack { seq_no, payload })
}

/// Whom a probe is tried through.
fn helpers(said: &[Said], seq_no: u32, node: &Target) -> Vec<(NodeName, bool)> {
    let requests = said
        .iter()
        .filter_map(|(to, messages)| match messages.first() {
            Some(Message::IndirectPing(request)) => {
                assert_eq!((request.seq_no, &request.node), (seq_no, &node.name));
                assert_eq!(request.target.ip(), Some(node.address.ip()));
                assert_eq!(request.source_node.as_str(), "me");
                Some((to.name.clone(), request.nack))
            }
            _ => None,
        });
    requests.collect()
}

#[test]
fn an_answer_in_time_says_how_far_the_node_is() {
    let mut me = Me::knowing(&["a"]);
    me.swim.awareness.worsen(2);
    let (seq_no, to) = probe(&mut me);
    assert_eq!(to, target("a", 2));
    me.now += seconds(0.07);
    me.hear(ack(seq_no + 1));
    assert_eq!(me.events(), [], "not our number");
    me.hear(ack(seq_no));
    me.hear(ack(seq_no));
    let events = me.events();
    let [Event::Pong { node, rtt, payload }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!((node.name.as_str(), *rtt), ("a", seconds(0.07)));
    assert_eq!(payload.as_ref(), b"payload");
    assert_eq!(me.swim.health_score(), 1);
}

#[test]
fn everybody_has_a_turn_in_each_round_but_the_dead() {
    let mut me = Me::knowing(&["a", "b", "c", "d"]);
    me.hear(Message::Dead(accusation("d", "a", 1)));
    let mut turns = Vec::new();
    let start = me.now;
    for _ in 0..6 {
        let (seq_no, to) = probe(&mut me);
        me.hear(ack(seq_no));
        turns.push(to.name.as_str().to_owned());
    }
    assert!(me.now - start <= seconds(7.0));
    turns[..3].sort();
    turns[3..].sort();
    assert_eq!(turns, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn without_an_answer_others_and_a_stream_are_asked() {
    let mut me = Me::knowing(&["a", "b", "c", "d", "e"]);
    let mut old = alive("b", 3, 2);
    old.vsn.protocol_max = 3;
    me.hear(Message::Alive(old));
    me.hear(Message::Dead(accusation("c", "e", 1)));
    me.quiet();
    let (seq_no, to) = probe(&mut me);
    me.pass(seconds(0.499));
    assert_eq!(me.outputs(), []);
    me.pass(seconds(0.002));
    let outputs = me.outputs();
    let stream = outputs.iter().find_map(|output| match output {
        Output::StreamPing { to, ping, deadline } => Some((to.clone(), ping.seq_no, *deadline)),
        _ => None,
    });
    assert_eq!(
        stream.map(|(to, seq_no, _)| (to, seq_no)),
        Some((to.clone(), seq_no))
    );
    me.swim.outputs.extend(outputs);
    let said = me.said();
    let helpers = helpers(&said, seq_no, &to);
    assert_eq!(helpers.len(), 3, "{helpers:?}");
    for (name, nack) in &helpers {
        assert!(*name != to.name && name.as_str() != "c" && name.as_str() != "me");
        assert_eq!(
            *nack,
            name.as_str() != "b",
            "only those who can are asked for a nack"
        );
    }
    me.now += seconds(0.3);
    me.hear(ack(seq_no));
    assert_eq!(
        me.events(),
        [],
        "an answer on a detour says nothing about the way"
    );
    me.pass(seconds(0.2));
    assert_eq!(
        me.state_of(to.name.as_str()).map(|(state, _)| state),
        Some(NodeState::Alive)
    );
}

/// A probe of one of five that fails, with so many helpers that say so. Gives the state of the node and our health.
fn failed_probe(nacks: u32, stream: bool) -> (NodeState, u32) {
    let mut me = Me::knowing(&["a", "b", "c", "d", "e"]);
    let (seq_no, to) = probe(&mut me);
    me.pass(seconds(0.5));
    for _ in 0..nacks {
        me.hear(Message::Nack(Nack { seq_no }));
    }
    if stream {
        me.swim.stream_ping_done(seq_no, true);
    }
    me.swim.stream_ping_done(seq_no + 1, true);
    me.swim.stream_ping_done(seq_no, false);
    me.pass(seconds(0.499));
    assert_eq!(me.state_of(to.name.as_str()), Some((NodeState::Alive, 1)));
    me.pass(seconds(0.002));
    let (state, _) = me.state_of(to.name.as_str()).unwrap();
    (state, me.swim.health_score())
}

#[test]
fn who_answers_nobody_is_suspect_and_silent_helpers_are_our_fault() {
    assert_eq!(failed_probe(3, false), (NodeState::Suspect, 0));
    assert_eq!(failed_probe(1, false), (NodeState::Suspect, 2));
    assert_eq!(failed_probe(0, false), (NodeState::Suspect, 3));
    assert_eq!(failed_probe(9, false), (NodeState::Suspect, 0), "too many");
    assert_eq!(
        failed_probe(3, true),
        (NodeState::Alive, 0),
        "it answers on streams"
    );
}

#[test]
fn without_helpers_a_failed_probe_costs_one_point() {
    let mut me = Me::knowing(&["a"]);
    probe(&mut me);
    me.pass(seconds(1.0));
    assert_eq!(me.state_of("a"), Some((NodeState::Suspect, 1)));
    assert_eq!(me.swim.health_score(), 1);
    assert_eq!(me.gossip(), [Message::Suspect(accusation("a", "me", 1))]);
}

#[test]
fn who_doubts_itself_waits_longer() {
    let mut me = Me::knowing(&["a"]);
    me.swim.awareness.worsen(2);
    probe(&mut me);
    me.pass(seconds(2.9));
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 1)));
    me.pass(seconds(0.2));
    assert_eq!(me.state_of("a"), Some((NodeState::Suspect, 1)));
}

#[test]
fn a_suspect_hears_with_its_probe_that_it_is_one() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Suspect(accusation("a", "b", 1)));
    me.quiet();
    me.pass(seconds(2.0));
    let said = me.said();
    let (_, messages) = said
        .iter()
        .find(|(_, m)| matches!(m[0], Message::Ping(_)))
        .unwrap();
    assert_eq!(messages[1], Message::Suspect(accusation("a", "me", 1)));
}

#[test]
fn a_probe_that_cannot_be_sent_goes_through_others_at_once() {
    let mut me = Me::knowing(&["a", "b"]);
    let (seq_no, to) = probe(&mut me);
    me.swim.probe_not_sent(seq_no + 1, &mut me.rng);
    assert_eq!(me.outputs(), []);
    me.swim.probe_not_sent(seq_no, &mut me.rng);
    me.swim.probe_not_sent(seq_no, &mut me.rng);
    let said = me.said();
    assert_eq!(helpers(&said, seq_no, &to).len(), 1);
}

#[test]
fn time_in_which_we_did_not_run_is_nobodys_fault() {
    let mut me = Me::knowing(&["a", "b"]);
    me.hear(Message::Suspect(accusation("b", "a", 1)));
    let left = me.swim.suspicions["b"].deadline() - me.now;
    let (seq_no, _) = probe(&mut me);
    let start = me.now;
    me.now += seconds(60.0);
    me.swim.tick(me.now, &mut me.rng);
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 1)));
    assert_eq!(me.state_of("b"), Some((NodeState::Suspect, 1)));
    me.hear(ack(seq_no));
    let deadline = me.swim.suspicions["b"].deadline();
    assert!(deadline > start + seconds(59.0) + left - seconds(3.0));
}

#[test]
fn probes_of_others_are_answered_at_the_address_that_they_give() {
    let mut me = Me::knowing(&["a"]);
    me.swim.set_ack_payload(b"where".as_slice().into());
    let ping = |node: &str| Ping {
        seq_no: 5,
        node: node.into(),
        source_addr: address(2).ip().into(),
        source_port: 8301,
        source_node: "a".into(),
    };
    let payload = b"where".as_slice().into();
    let answer = Message::Ack(Ack { seq_no: 5, payload });
    me.hear_from(address(77), Message::Ping(ping("me")));
    assert_eq!(me.said(), [(target("a", 2), vec![answer.clone()])]);
    me.hear_from(address(77), Message::Ping(ping("")));
    assert_eq!(me.said().len(), 1, "old agents do not say who is meant");
    me.hear_from(address(77), Message::Ping(ping("other")));
    assert_eq!(me.said(), [], "somebody else is meant");
    let silent = Ping {
        seq_no: 5,
        node: "me".into(),
        ..Ping::default()
    };
    me.hear_from(address(77), Message::Ping(silent));
    assert_eq!(me.said(), [(target("", 77), vec![answer])]);
    let ack = me.swim.answer_stream_ping(&ping("me")).unwrap();
    assert_eq!((ack.seq_no, ack.payload.len()), (5, 0));
    assert_eq!(me.swim.answer_stream_ping(&ping("other")), None);
}

fn request(seq_no: u32, nack: bool) -> Message {
    Message::IndirectPing(IndirectPing {
        seq_no,
        target: address(9).ip().into(),
        port: 8301,
        node: "far".into(),
        nack,
        source_addr: address(2).ip().into(),
        source_port: 8301,
        source_node: "a".into(),
    })
}

/// Of a request to probe somebody: the number of our own probe.
fn relayed(me: &mut Me) -> u32 {
    let said = me.said();
    let [(to, messages)] = said.as_slice() else {
        panic!("{said:?}");
    };
    let Message::Ping(ping) = &messages[0] else {
        panic!("{messages:?}");
    };
    assert_eq!((to, ping.node.as_str()), (&target("far", 9), "far"));
    assert_eq!(ping.source_node.as_str(), "me", "the answer comes here");
    ping.seq_no
}

#[test]
fn answers_are_passed_on_to_who_asked() {
    let mut me = Me::knowing(&["a"]);
    me.hear_from(address(77), request(42, true));
    let seq_no = relayed(&mut me);
    assert_ne!(seq_no, 42);
    me.hear(ack(seq_no));
    let answer = Message::Ack(Ack {
        seq_no: 42,
        ..Ack::default()
    });
    assert_eq!(me.said(), [(target("a", 2), vec![answer])]);
    me.hear(ack(seq_no));
    assert_eq!(me.outputs(), []);
    me.now += seconds(0.6);
    me.swim.expire_relays(me.now);
    assert_eq!(me.outputs(), [], "no nack after an answer");
}

#[test]
fn silence_is_passed_on_to_who_wants_to_know() {
    let mut me = Me::knowing(&["a"]);
    me.hear(request(42, true));
    let seq_no = relayed(&mut me);
    me.hear(request(43, false));
    relayed(&mut me);
    let before = me.swim.next_deadline().unwrap();
    assert!(before <= me.now + seconds(0.5));
    me.now += seconds(0.5);
    me.swim.expire_relays(me.now);
    let nack = Message::Nack(Nack { seq_no: 42 });
    assert_eq!(me.said(), [(target("a", 2), vec![nack])]);
    me.hear(ack(seq_no));
    assert_eq!(me.outputs(), [], "too late");
}

#[test]
fn a_flood_of_requests_takes_bounded_memory() {
    let mut me = Me::knowing(&["a"]);
    for seq_no in 0..5000 {
        me.hear(request(seq_no, true));
    }
    assert_eq!(me.said().len(), 1024);
}

#[test]
fn the_dead_are_forgotten_after_a_while() {
    let mut me = Me::knowing(&["a", "b"]);
    me.hear(Message::Dead(accusation("a", "b", 1)));
    me.pass(seconds(29.0));
    assert!(me.state_of("a").is_some());
    me.pass(seconds(5.0));
    assert_eq!(me.state_of("a"), None);
    assert!(me.state_of("me").is_some());
}

#[test]
fn only_our_own_probe_is_named_and_checksums_go_to_who_understands_them() {
    let mut me = Me::knowing(&["a"]);
    let mut old = alive("old", 3, 1);
    old.vsn.protocol_max = 4;
    me.hear(Message::Alive(old));
    me.quiet();
    let mut packets: Vec<OutPacket> = Vec::new();
    while packets.len() < 2 {
        me.pass(seconds(0.1));
        packets.extend(me.outputs().into_iter().filter_map(|output| match output {
            Output::Packet(packet) if packet.probe.is_some() => Some(packet),
            _ => None,
        }));
    }
    packets.sort_by_key(|packet| packet.to.name.clone());
    assert_eq!(
        packets.iter().map(|p| p.checksum).collect::<Vec<_>>(),
        [true, false]
    );
}
