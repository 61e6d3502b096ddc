//! What news about nodes means.

use super::*;
use crate::gossip::swim::Filter;
use crate::gossip::swim::MergeError;

fn node(alive: &Alive, state: NodeState) -> Node {
    Node {
        name: alive.node.clone(),
        addr: alive.addr,
        port: alive.port,
        meta: alive.meta.clone(),
        versions: alive.vsn,
        state,
    }
}

#[test]
fn a_new_node_joins_and_everybody_is_told() {
    let mut me = Me::new();
    let a = alive("a", 2, 1);
    me.hear(Message::Alive(a.clone()));
    assert_eq!(me.events(), [Event::Join(node(&a, NodeState::Alive))]);
    assert!(me.gossip().contains(&Message::Alive(a.clone())));
    me.quiet();
    me.hear(Message::Alive(a));
    assert_eq!(me.events(), [], "the same life is no news");
    assert_eq!(me.gossip(), []);
}

#[test]
fn a_later_life_updates_and_an_earlier_one_does_not() {
    let mut me = Me::knowing(&["a"]);
    let mut update = alive("a", 2, 3);
    update.meta = b"new".as_slice().into();
    me.hear(Message::Alive(update.clone()));
    assert_eq!(
        me.events(),
        [Event::Update(node(&update, NodeState::Alive))]
    );
    me.hear(Message::Alive(alive("a", 2, 2)));
    me.hear(Message::Alive(alive("a", 2, 4)));
    let events = me.events();
    assert!(matches!(events.as_slice(), [Event::Update(node)] if node.meta.as_ref() == b"meta"));
    me.hear(Message::Alive(alive("a", 2, 5)));
    assert_eq!(me.events(), [], "a later life with the same meta");
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 5)));
}

#[test]
fn a_suspect_that_does_not_refute_dies() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Suspect(accusation("a", "b", 0)));
    assert_eq!(
        me.state_of("a"),
        Some((NodeState::Alive, 1)),
        "an earlier life"
    );
    me.hear(Message::Suspect(accusation("a", "b", 1)));
    assert_eq!(me.state_of("a"), Some((NodeState::Suspect, 1)));
    assert_eq!(me.gossip(), [Message::Suspect(accusation("a", "b", 1))]);
    me.pass(seconds(3.9));
    assert_eq!(me.events(), []);
    me.pass(seconds(0.2));
    assert_eq!(me.state_of("a"), Some((NodeState::Dead, 1)));
    assert_eq!(
        me.events(),
        [Event::Leave(node(&alive("a", 2, 1), NodeState::Dead))]
    );
    assert_eq!(me.gossip(), [Message::Dead(accusation("a", "me", 1))]);
}

#[test]
fn a_suspect_that_refutes_lives() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Suspect(accusation("a", "b", 1)));
    me.hear(Message::Alive(alive("a", 2, 2)));
    me.pass(seconds(0.9));
    assert_eq!(me.events(), []);
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 2)));
    assert_eq!(me.swim.suspicions.len(), 0);
}

#[test]
fn others_who_suspect_as_well_shorten_the_time() {
    let names: Vec<_> = (0..8).map(|i| format!("n{i}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut me = Me::knowing(&names);
    me.hear(Message::Suspect(accusation("n0", "n1", 1)));
    let deadline = |me: &Me| me.swim.suspicions["n0"].deadline() - me.now;
    assert_eq!(deadline(&me), seconds(24.0), "six times the shortest time");
    me.gossip();
    me.hear(Message::Suspect(accusation("n0", "n2", 1)));
    assert_eq!(deadline(&me), seconds(11.381));
    assert_eq!(me.gossip(), [Message::Suspect(accusation("n0", "n2", 1))]);
    me.hear(Message::Suspect(accusation("n0", "n3", 1)));
    assert_eq!(deadline(&me), seconds(4.0));
    me.quiet();
    me.hear(Message::Suspect(accusation("n0", "n4", 1)));
    assert_eq!(me.gossip(), [], "enough of them");
}

#[test]
fn who_takes_leave_has_left_and_who_is_accused_is_dead() {
    let mut me = Me::knowing(&["a", "b"]);
    me.hear(Message::Dead(accusation("a", "a", 1)));
    me.hear(Message::Dead(accusation("b", "a", 1)));
    assert_eq!(me.state_of("a"), Some((NodeState::Left, 1)));
    assert_eq!(me.state_of("b"), Some((NodeState::Dead, 1)));
    assert_eq!(me.events().len(), 2);
    me.hear(Message::Dead(accusation("a", "b", 1)));
    me.hear(Message::Suspect(accusation("b", "a", 1)));
    me.hear(Message::Dead(accusation("nobody", "a", 1)));
    assert_eq!(me.events(), [], "no news");
    assert_eq!(me.state_of("a"), Some((NodeState::Left, 1)));
    me.hear(Message::Alive(alive("b", 3, 1)));
    assert_eq!(
        me.state_of("b"),
        Some((NodeState::Dead, 1)),
        "the life that ended"
    );
    me.hear(Message::Alive(alive("b", 3, 2)));
    assert_eq!(
        me.events(),
        [Event::Join(node(&alive("b", 3, 2), NodeState::Alive))]
    );
}

#[test]
fn a_name_belongs_to_the_address_that_lives() {
    let mut me = Me::knowing(&["a"]);
    me.hear(Message::Alive(alive("a", 9, 5)));
    let events = me.events();
    let [Event::Conflict { existing, other }] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(existing.target(), Some(target("a", 2)));
    assert_eq!(other.target(), Some(target("a", 9)));
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 1)));
    assert_eq!(me.gossip(), []);
    me.hear(Message::Alive(alive("me", 9, 5)));
    assert!(
        matches!(me.events().as_slice(), [Event::Conflict { .. }]),
        "our own too"
    );
    assert_eq!(me.swim.incarnation(), 1);
}

#[test]
fn the_form_of_an_address_does_not_matter() {
    let mut me = Me::knowing(&["a"]);
    let mut mapped = alive("a", 2, 2);
    let SocketAddr::V4(v4) = address(2) else {
        panic!("an IPv4 address");
    };
    mapped.addr = std::net::IpAddr::from(v4.ip().to_ipv6_mapped()).into();
    me.hear(Message::Alive(mapped));
    assert_eq!(me.events(), []);
    assert_eq!(me.state_of("a"), Some((NodeState::Alive, 2)));
}

#[test]
fn a_name_is_free_when_its_node_left_or_has_been_dead_for_a_while() {
    let mut me = Me::knowing(&["left", "dead"]);
    me.hear(Message::Dead(accusation("left", "left", 1)));
    me.hear(Message::Dead(accusation("dead", "left", 1)));
    me.events();
    // The life may even be an earlier one: it is another node.
    me.hear(Message::Alive(alive("left", 9, 1)));
    me.hear(Message::Alive(alive("dead", 8, 1)));
    let events = me.events();
    assert!(
        matches!(events.as_slice(), [Event::Join(n), Event::Conflict { .. }] if n.name.as_str() == "left"),
        "{events:?}"
    );
    me.now += seconds(29.0);
    me.hear(Message::Alive(alive("dead", 8, 1)));
    assert!(matches!(me.events().as_slice(), [Event::Conflict { .. }]));
    me.now += seconds(1.1);
    me.hear(Message::Alive(alive("dead", 8, 1)));
    assert!(matches!(me.events().as_slice(), [Event::Join(_)]));
    let moved = me.swim.node(&"dead".into()).and_then(Node::target);
    assert_eq!(moved, Some(target("dead", 8)));
}

#[test]
fn a_dead_name_is_never_free_without_a_time() {
    let mut me = Me::with(|config| config.dead_node_reclaim = None);
    me.meet(&["a"]);
    me.hear(Message::Dead(accusation("a", "b", 1)));
    me.now += seconds(1e6);
    me.events();
    me.hear(Message::Alive(alive("a", 9, 2)));
    assert!(matches!(me.events().as_slice(), [Event::Conflict { .. }]));
    me.hear(Message::Alive(alive("a", 2, 2)));
    assert!(matches!(me.events().as_slice(), [Event::Join(_)]));
}

#[test]
fn news_of_impossible_nodes_is_ignored() {
    let mut me = Me::new();
    let mut wrong = vec![
        alive("", 2, 1),
        alive("a", 2, 1),
        alive("a", 2, 1),
        alive("a", 2, 1),
    ];
    wrong[1].addr = Default::default();
    wrong[2].port = 0;
    wrong[3].vsn.protocol_min = 6;
    for alive in wrong {
        me.hear(Message::Alive(alive));
    }
    assert_eq!(me.events(), []);
    let mut silent = alive("a", 2, 1);
    silent.vsn = Versions::default();
    me.hear(Message::Alive(silent));
    assert!(
        matches!(me.events().as_slice(), [Event::Join(_)]),
        "it need not say what it speaks"
    );
}

#[test]
fn the_filter_decides_who_is_a_member() {
    let mut me = Me::with(|config| {
        config.filter = Some(Filter::new(|nodes| match nodes {
            nodes if nodes.iter().any(|node| node.name.as_str() == "bad") => {
                Err("is bad".to_owned())
            }
            _ => Ok(()),
        }));
    });
    me.hear(Message::Alive(alive("bad", 2, 1)));
    let mut silent = alive("a", 3, 1);
    silent.vsn = Versions::default();
    me.hear(Message::Alive(silent));
    assert_eq!(me.events(), []);
    let states = [
        state("a", 3, 1, NodeState::Alive),
        state("bad", 2, 1, NodeState::Alive),
    ];
    let refused = me
        .swim
        .merge_remote_state(me.now, true, &states, &mut me.rng);
    assert_eq!(refused, Err(MergeError::Refused("is bad".to_owned())));
    assert_eq!(me.events(), [], "all or nothing");
    let merged = me
        .swim
        .merge_remote_state(me.now, false, &states, &mut me.rng);
    assert_eq!(merged, Ok(()));
    assert!(matches!(me.events().as_slice(), [Event::Join(node)] if node.name.as_str() == "a"));
}

#[test]
fn a_merge_takes_over_what_is_newer() {
    let mut me = Me::knowing(&["a", "b", "c"]);
    me.merge(&[
        state("a", 2, 1, NodeState::Dead),
        state("b", 3, 1, NodeState::Left),
        state("c", 4, 1, NodeState::Other(9)),
        state("d", 5, 1, NodeState::Alive),
        state("e", 6, 1, NodeState::Dead),
    ]);
    assert_eq!(
        me.state_of("a"),
        Some((NodeState::Suspect, 1)),
        "it may refute"
    );
    assert_eq!(me.state_of("b"), Some((NodeState::Left, 1)));
    assert_eq!(me.state_of("c"), Some((NodeState::Alive, 1)));
    assert_eq!(me.state_of("d"), Some((NodeState::Alive, 1)));
    assert_eq!(me.state_of("e"), None, "never heard of");
    let known = me.swim.local_state();
    let known: Vec<_> = known.iter().map(|s| (s.name.as_str(), s.state)).collect();
    let expected = [
        ("a", NodeState::Suspect),
        ("b", NodeState::Left),
        ("c", NodeState::Alive),
        ("d", NodeState::Alive),
        ("me", NodeState::Alive),
    ];
    assert_eq!(known, expected);
}

#[test]
fn pools_with_protocols_that_do_not_fit_do_not_merge() {
    let mut me = Me::new();
    let mut old = state("old", 2, 1, NodeState::Alive);
    old.vsn = Versions {
        protocol_max: 1,
        protocol: 1,
        ..Versions::OURS
    };
    let refused = me
        .swim
        .merge_remote_state(me.now, false, &[old], &mut me.rng);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("node 'me' speaks memberlist protocol 2") && text.contains("1 to 1"),
        "{text}"
    );
    let mut new = state("new", 2, 1, NodeState::Alive);
    new.vsn.delegate = 9;
    let refused = me
        .swim
        .merge_remote_state(me.now, false, &[new.clone()], &mut me.rng);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains("node 'new' speaks serf protocol 9") && text.contains("2 to 5"),
        "{text}"
    );
    new.vsn = Versions::OURS;
    new.state = NodeState::Dead;
    new.vsn.protocol_min = 5; // Who is dead does not limit others.
    assert_eq!(
        me.swim
            .merge_remote_state(me.now, false, &[new], &mut me.rng),
        Ok(())
    );
    assert_eq!(me.events(), []);
}
