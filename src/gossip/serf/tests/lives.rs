//! Joins, leaves, failures, and what tags and events say.

use std::time::Duration;

use super::pool::*;
use crate::gossip::serf::MemberChange as C;
use crate::gossip::serf::MemberStatus as S;
use crate::gossip::serf::*;

const SECOND: Duration = Duration::from_secs(1);

fn events(pool: &Pool, host: usize) -> Vec<String> {
    let told = pool.hosts[host].told.iter();
    let events = told.filter_map(|output| match output {
        Output::UserEvent(event) => Some(event.name.clone()),
        _ => None,
    });
    events.collect()
}

fn tell(pool: &mut Pool, host: usize, event: &str) {
    pool.with(host, |serf, now, rng| {
        let payload = Bytes::from_static(b"payload");
        serf.user_event(now, event, payload, false, rng).unwrap();
    });
}

fn said(pool: &Pool, host: usize, wanted: &Output) -> bool {
    pool.hosts[host].told.contains(wanted)
}

#[test]
fn members_know_each_other_and_their_tags() {
    let pool = Pool::joined(5);
    for observer in 0..5 {
        let members: Vec<_> = pool.serf(observer).members().collect();
        assert_eq!(members.len(), 5);
        for (host, member) in members.into_iter().enumerate() {
            assert_eq!((&member.name, member.status), (&name(host), S::Alive));
            assert_eq!(member.addr.ip(), Some(address(host).ip()));
            assert_eq!(member.tags.get("id"), Some(&*host.to_string()));
        }
    }
}

#[test]
fn the_first_output_is_that_we_are_a_member() {
    let mut pool = Pool::new(1, 1);
    pool.start(0);
    assert_eq!(pool.changes(0, 0), [C::Join]);
    assert_eq!(pool.status(0, 0), Some(S::Alive));
}

#[test]
fn who_leaves_in_order_has_left_for_everybody() {
    let mut pool = Pool::joined(4);
    pool.with(3, |serf, now, rng| serf.leave(now, rng));
    assert!(pool.serf(3).is_leaving());
    let took = pool.until("it has left", |pool| said(pool, 3, &Output::Left));
    assert!(took <= 13 * SECOND, "{took:?}");
    assert!(took >= 3 * SECOND, "its farewell needs time: {took:?}");
    for observer in 0..3 {
        assert_eq!(pool.changes(observer, 3), [C::Leave]);
        assert_eq!(pool.status(observer, 3), Some(S::Left));
    }
    // It is not looked for.
    pool.crash(3);
    pool.run(200 * SECOND);
    let looks = |output: &Output| matches!(output, Output::Reconnect { .. });
    assert!(
        !pool.hosts[..3]
            .iter()
            .any(|host| host.told.iter().any(looks))
    );
}

#[test]
fn who_is_alone_leaves_at_once_and_once() {
    let mut pool = Pool::joined(1);
    pool.with(0, |serf, now, rng| {
        serf.leave(now, rng);
        serf.leave(now, rng);
    });
    assert_eq!(pool.changes(0, 0), [C::Leave]);
    let left = pool.hosts[0].told.iter();
    assert_eq!(left.filter(|o| **o == Output::Left).count(), 1);
    let tags = Tags::default();
    let refused = pool.with(0, |serf, now, rng| serf.set_tags(now, tags, Token(1), rng));
    assert_eq!(refused, Err(Error::Leaving));
}

/// Nobody may wait for ever for a network that is gone.
#[test]
fn who_is_cut_off_leaves_as_well() {
    let mut pool = Pool::joined(3);
    pool.separate(0, 1);
    pool.separate(0, 2);
    pool.with(0, |serf, now, rng| serf.leave(now, rng));
    let took = pool.until("it has left", |pool| said(pool, 0, &Output::Left));
    assert!(took <= 13 * SECOND + SECOND / 10, "{took:?}");
}

/// Case C029: two members do not reach each other, but a third one reaches both. Nobody is taken for failed.
#[test]
fn who_is_reached_by_others_has_not_failed() {
    let mut pool = Pool::joined(3);
    pool.separate(1, 2);
    pool.run(300 * SECOND);
    for observer in 0..3 {
        for host in 0..3 {
            assert_eq!(pool.changes(observer, host), []);
        }
    }
    // What one of them says reaches the other.
    tell(&mut pool, 1, "deploy");
    pool.run(5 * SECOND);
    assert_eq!(events(&pool, 2), ["deploy"]);
}

#[test]
fn who_crashes_has_failed_and_is_looked_for() {
    let mut pool = Pool::joined(4);
    pool.crash(2);
    pool.until("all see it", |pool| pool.all_see(2, Some(S::Failed)));
    assert_eq!(pool.changes(0, 2), [C::Failed]);
    let looks = |host: &Host| {
        let mut told = host.told.iter();
        told.any(|o| matches!(o, Output::Reconnect { to } if to.name == name(2)))
    };
    pool.until("they look for it", |pool| pool.hosts.iter().any(looks));
    // It comes back without joining anybody: whoever finds it brings it back.
    pool.start(2);
    let back = |pool: &Pool| pool.all_see(2, Some(S::Alive));
    pool.until("it is back", back);
    assert_eq!(pool.changes(0, 2), [C::Failed, C::Join]);
    assert_eq!(pool.serf(2).members().count(), 4);
}

/// However large the pool, a failed member gets about one attempt per interval.
#[test]
fn all_together_look_for_a_failed_member_once_per_interval() {
    let mut pool = Pool::joined(6);
    pool.crash(5);
    pool.until("all see it", |pool| pool.all_see(5, Some(S::Failed)));
    pool.run(50 * 30 * SECOND);
    let told = pool.hosts.iter().flat_map(|host| &host.told);
    let looks = told.filter(|o| matches!(o, Output::Reconnect { .. }));
    let looks = looks.count();
    assert!((30..70).contains(&looks), "{looks}");
}

#[test]
fn a_failed_member_can_be_made_to_leave() {
    let mut pool = Pool::joined(4);
    pool.crash(3);
    pool.until("all see it", |pool| pool.all_see(3, Some(S::Failed)));
    pool.with(1, |serf, now, rng| {
        serf.force_leave(now, &name(3), false, Token(7), rng)
            .unwrap();
    });
    pool.until("it has left", |pool| pool.all_see(3, Some(S::Left)));
    assert_eq!(pool.changes(2, 3), [C::Failed, C::Leave]);
    let (token, sent) = (Token(7), true);
    pool.until("it was told", |pool| {
        said(pool, 1, &Output::Done { token, sent })
    });
    // Whoever comes later is told by an exchange; nobody resurrects it.
    pool.run(100 * SECOND);
    assert!(pool.all_see(3, Some(S::Left)));
}

#[test]
fn a_pruned_member_is_forgotten_by_all() {
    let mut pool = Pool::joined(4);
    pool.crash(3);
    pool.until("all see it", |pool| pool.all_see(3, Some(S::Failed)));
    pool.with(1, |serf, now, rng| {
        serf.force_leave(now, &name(3), true, Token(7), rng)
            .unwrap();
    });
    pool.until("it is forgotten", |pool| pool.all_see(3, None));
    assert_eq!(pool.changes(2, 3), [C::Failed, C::Leave, C::Reap]);
    pool.run(100 * SECOND);
    assert!(pool.all_see(3, None));
    // It may come back under its name.
    pool.start(3);
    assert!(pool.join(3, 0));
    pool.until("it is back", |pool| pool.all_see(3, Some(S::Alive)));
}

/// Consul answered such a command with success and did nothing (case C027).
#[test]
fn only_others_who_are_known_can_be_made_to_leave() {
    let mut pool = Pool::joined(2);
    let mut force = |host: NodeName| {
        pool.with(0, |serf, now, rng| {
            serf.force_leave(now, &host, false, Token(1), rng)
        })
    };
    assert_eq!(force(name(0)), Err(Error::Ourselves(name(0))));
    let unknown = force("n9.dc2".into()).unwrap_err();
    assert!(unknown.to_string().contains("n9.dc2"), "{unknown}");
}

#[test]
fn who_lives_refutes_that_it_leaves() {
    let mut pool = Pool::joined(4);
    pool.with(1, |serf, now, rng| {
        serf.force_leave(now, &name(3), true, Token(7), rng)
            .unwrap();
    });
    assert_eq!(pool.status(1, 3), Some(S::Leaving));
    pool.until("it refutes", |pool| {
        (0..4).all(|observer| pool.status(observer, 3) == Some(S::Alive))
    });
    pool.run(10 * SECOND);
    pool.crash(3);
    pool.until("it failed", |pool| pool.all_see(3, Some(S::Failed)));
}

/// Packets may all get lost: whoever compares states hears of the intent, and who it is about refutes it.
#[test]
fn exchanges_carry_who_means_to_leave() {
    let mut pool = Pool::joined(3);
    pool.with(0, |serf, now, rng| {
        serf.force_leave(now, &name(2), false, Token(7), rng)
            .unwrap();
    });
    assert!(pool.exchange(0, 1, Exchange::Regular));
    assert_eq!(pool.status(1, 2), Some(S::Leaving));
    assert!(pool.exchange(1, 2, Exchange::Regular));
    assert!(pool.exchange(1, 2, Exchange::Regular));
    assert_eq!(pool.status(1, 2), Some(S::Alive));
}

/// What others know of us from before a restart, or from while we were cut off, is outdated by what we say now.
#[test]
fn who_hears_of_a_later_life_of_its_own_says_that_it_is_here() {
    let mut pool = Pool::joined(3);
    let known = crate::gossip::wire::serf::PushPull {
        status_ltimes: [(name(2), 50)].into(),
        ..Default::default()
    };
    let remote = crate::gossip::wire::stream::PushPull {
        user_state: SerfMessage::PushPull(known).encode().unwrap().into(),
        ..Default::default()
    };
    pool.with(2, |serf, now, rng| {
        serf.merge_remote_state(now, Exchange::Regular, &remote, rng)
            .unwrap();
    });
    assert_eq!(pool.serf(2).members.ltime(&name(2)), 51);
    pool.until("the others hear of it", |pool| {
        (0..2).all(|observer| pool.serf(observer).members.ltime(&name(2)) == 51)
    });
}

/// Made to leave while cut off: when the others come back, one hears of it before it does itself.
#[test]
fn who_was_made_to_leave_behind_its_back_says_that_it_is_here() {
    let mut pool = Pool::joined(4);
    for other in 0..2 {
        pool.separate(other, 2);
        pool.separate(other, 3);
    }
    pool.until("it is lost", |pool| {
        pool.status(0, 3) == Some(S::Failed) && pool.status(1, 3) == Some(S::Failed)
    });
    pool.with(0, |serf, now, rng| {
        serf.force_leave(now, &name(3), false, Token(7), rng)
            .unwrap();
    });
    pool.until("it has left", |pool| pool.status(1, 3) == Some(S::Left));
    pool.cut.clear();
    pool.separate(0, 3); // The others hear of it before it does.
    pool.separate(1, 3);
    assert!(pool.exchange(2, 0, Exchange::Meet));
    assert_eq!(pool.status(2, 3), Some(S::Leaving));
    pool.cut.clear();
    pool.until("it is here", |pool| {
        (0..4).all(|observer| pool.status(observer, 3) == Some(S::Alive))
    });
}

#[test]
fn the_gone_are_forgotten_after_their_time() {
    let mut pool = Pool::new(1, 4);
    for host in &mut pool.hosts {
        host.config.timing.reconnect_timeout = 120 * SECOND;
        host.config.timing.tombstone_timeout = 60 * SECOND;
    }
    pool.assemble();
    pool.crash(2);
    pool.with(3, |serf, now, rng| serf.leave(now, rng));
    pool.until("it has left", |pool| said(pool, 3, &Output::Left));
    pool.crash(3);
    pool.until("it failed", |pool| pool.all_see(2, Some(S::Failed)));
    pool.run(85 * SECOND);
    assert!(
        pool.all_see(3, None),
        "left, and forgotten after 60 to 75 s"
    );
    assert!(pool.all_see(2, Some(S::Failed)), "failed, and still known");
    pool.run(60 * SECOND);
    assert!(pool.all_see(2, None));
    assert_eq!(pool.changes(0, 2), [C::Failed, C::Reap]);
    assert_eq!(pool.changes(0, 3), [C::Leave, C::Reap]);
}

#[test]
fn nothing_wakes_up_for_nothing() {
    let mut pool = Pool::joined(2);
    pool.run(60 * SECOND);
    let serf = pool.serf(0);
    assert_eq!(serf.next_deadline(), serf.swim().next_deadline());
    assert_eq!(
        (serf.reap_at, serf.reconnect_at, serf.record_at),
        (None, None, None)
    );
}

#[test]
fn changed_tags_reach_all() {
    let mut pool = Pool::joined(4);
    let tags = Tags::from_iter([("role", "node"), ("new", "yes")]);
    pool.with(2, |serf, now, rng| {
        serf.set_tags(now, tags.clone(), Token(9), rng).unwrap();
    });
    pool.until("all know", |pool| {
        (0..4).all(|observer| pool.serf(observer).member(&name(2)).unwrap().tags == tags)
    });
    assert_eq!(pool.serf(2).tags(), &tags);
    assert_eq!(pool.changes(0, 2), [C::Update]);
    let (token, sent) = (Token(9), true);
    pool.until("told", |pool| said(pool, 2, &Output::Done { token, sent }));

    let long = Tags::from_iter([("x", &*"y".repeat(600))]);
    let refused = pool.with(2, |serf, now, rng| serf.set_tags(now, long, Token(1), rng));
    assert!(refused.unwrap_err().to_string().contains("512"));
    assert_eq!(pool.serf(2).tags(), &tags);
}

#[test]
fn tags_that_are_too_long_are_refused_at_the_start() {
    let mut config = config(0);
    config.tags.set("x", "y".repeat(600));
    let pool = Pool::new(1, 0);
    let mut rng = pool.rng.clone();
    assert!(Serf::new(config, pool.now, &mut rng).is_err());
}

#[test]
fn a_command_does_not_wait_for_ever() {
    let mut pool = Pool::new(1, 3);
    for host in &mut pool.hosts {
        host.config.timing.broadcast_timeout = SECOND / 100;
    }
    pool.assemble();
    let tags = Tags::from_iter([("role", "node")]);
    pool.with(0, |serf, now, rng| {
        serf.set_tags(now, tags, Token(3), rng).unwrap();
    });
    pool.run(5 * SECOND);
    let told = pool.hosts[0].told.iter();
    let done: Vec<_> = told.filter(|o| matches!(o, Output::Done { .. })).collect();
    let (token, sent) = (Token(3), false);
    assert_eq!(done, [&Output::Done { token, sent }]);
}

#[test]
fn an_event_reaches_all_once() {
    let mut pool = Pool::joined(5);
    tell(&mut pool, 2, "deploy");
    pool.run(20 * SECOND);
    tell(&mut pool, 1, "deploy");
    // Packets bring it, and exchanges once more.
    pool.run(120 * SECOND);
    for host in 0..5 {
        assert_eq!(events(&pool, host), ["deploy", "deploy"]);
    }
}

#[test]
fn events_are_bounded() {
    let mut pool = Pool::joined(1);
    let mut tell = |name: &str, len: usize| {
        let payload = Bytes::from(vec![0; len]);
        pool.with(0, |serf, now, rng| {
            serf.user_event(now, name, payload, true, rng)
        })
    };
    assert_eq!(tell("deploy", 400), Ok(()));
    let refused = tell("deploy", 507).unwrap_err().to_string();
    assert!(refused.contains("event 'deploy'"), "{refused}");
    assert!(refused.contains("limit of 512"), "{refused}");
    // The message has names and numbers, too.
    assert!(matches!(
        tell("d", 490),
        Err(Error::TooLong { size: 513.., .. })
    ));
    assert_eq!(events(&pool, 0), ["deploy"]);
}

#[test]
fn who_joins_decides_whether_the_past_counts() {
    let mut pool = Pool::joined(2);
    pool.hosts.extend((2..4).map(|host| {
        let mut more = Pool::new(1, host + 1).hosts;
        more.pop().unwrap()
    }));
    tell(&mut pool, 0, "past");
    pool.run(5 * SECOND);
    for (host, ignore_old) in [(2, true), (3, false)] {
        pool.start(host);
        assert!(pool.exchange(host, 0, Exchange::Join { ignore_old }));
        pool.with(host, |serf, now, rng| serf.joined(now, rng));
    }
    tell(&mut pool, 1, "present");
    pool.run(120 * SECOND);
    assert_eq!(events(&pool, 2), ["present"]);
    assert_eq!(events(&pool, 3), ["past", "present"]);
}

#[test]
fn members_learn_where_they_are() {
    let mut pool = Pool::new(1, 4);
    pool.hosts[3].config.coordinates = false;
    pool.assemble();
    pool.run(120 * SECOND);
    let serf = pool.serf(0);
    let own = serf.coordinate();
    assert_ne!(own, &Coordinate::default());
    assert_eq!(serf.coordinate_of(&name(0)), Some(own));
    let other = serf.coordinate_of(&name(1)).unwrap();
    let rtt = own.distance(other);
    assert!(rtt > SECOND / 1000 && rtt < SECOND / 50, "{rtt:?}");
    assert_eq!(serf.coordinate_of(&name(3)), None);
    assert_eq!(serf.stats()["coordinate_resets"], "0");
    assert_eq!(pool.serf(3).coordinate(), &Coordinate::default());
    assert!(!pool.serf(3).stats().contains_key("coordinate_resets"));
}

#[test]
fn figures_are_serfs() {
    let mut pool = Pool::joined(3);
    pool.crash(2);
    pool.until("all see it", |pool| pool.all_see(2, Some(S::Failed)));
    let stats = pool.serf(0).stats();
    let expected = [
        ("members", "3"),
        ("failed", "1"),
        ("left", "0"),
        ("event_time", "1"),
        ("query_time", "1"),
        ("intent_queue", "0"),
        ("encrypted", "false"),
    ];
    for (key, value) in expected {
        assert_eq!(stats[key], value, "{key}");
    }
}
