//! Messages that nobody honest sends.

use std::time::Duration;

use proptest::prelude::*;

use super::pool::*;
use crate::gossip::serf::MemberStatus as S;
use crate::gossip::serf::*;
use crate::gossip::wire::serf::Endpoint;
use crate::gossip::wire::serf::Join;
use crate::gossip::wire::serf::Leave;
use crate::gossip::wire::serf::PushPull;
use crate::gossip::wire::serf::Query;
use crate::gossip::wire::serf::QueryResponse;
use crate::gossip::wire::serf::RelayHeader;
use crate::gossip::wire::serf::UserEvent;
use crate::gossip::wire::stream;

fn say(pool: &mut Pool, to: usize, message: &SerfMessage) {
    let message = Bytes::from(message.encode().unwrap());
    pool.with(to, |serf, now, rng| {
        serf.handle_stream_user(now, &message, rng)
    });
}

/// A time near the end of all time would stop the clocks of the pool.
#[test]
fn times_that_cannot_be_are_not_believed() {
    let mut pool = Pool::joined(2);
    let before = pool.serf(0).stats();
    let ltime = u64::MAX - 1;
    let leave = Leave {
        ltime,
        node: name(1),
        prune: true,
    };
    say(&mut pool, 0, &SerfMessage::Leave(leave));
    let join = Join {
        ltime,
        node: name(1),
    };
    say(&mut pool, 0, &SerfMessage::Join(join));
    let event = UserEvent {
        ltime,
        ..UserEvent::default()
    };
    say(&mut pool, 0, &SerfMessage::UserEvent(event));
    let query = Query {
        ltime,
        addr: address(1).ip().into(),
        port: 8301,
        ..Query::default()
    };
    say(&mut pool, 0, &SerfMessage::Query(query));
    let state = PushPull {
        ltime,
        status_ltimes: [(name(0), ltime), (name(1), ltime)].into(),
        left_members: vec![name(1)],
        event_ltime: ltime,
        query_ltime: ltime,
        ..PushPull::default()
    };
    let remote = stream::PushPull {
        user_state: SerfMessage::PushPull(state).encode().unwrap().into(),
        ..stream::PushPull::default()
    };
    pool.with(0, |serf, now, rng| {
        serf.merge_remote_state(now, Exchange::Regular, &remote, rng)
    })
    .unwrap();
    assert_eq!(pool.serf(0).stats(), before);
    assert_eq!(pool.status(0, 1), Some(S::Alive));
    assert_eq!(pool.hosts[0].told, []);
}

#[test]
fn answers_that_nobody_asked_for_are_ignored() {
    let mut pool = Pool::joined(2);
    let mut answer = QueryResponse {
        ltime: 1,
        id: 7,
        from: name(1),
        ..QueryResponse::default()
    };
    say(&mut pool, 0, &SerfMessage::QueryResponse(answer.clone()));
    let params = QueryParams {
        name: "load".into(),
        ..QueryParams::default()
    };
    let query = pool
        .with(0, |serf, now, rng| serf.query(now, params, rng))
        .unwrap();
    pool.hosts[0].told.clear();
    // Whoever invents members fills no memory.
    (answer.ltime, answer.id) = (query.ltime, query.id);
    for n in 0..1000 {
        answer.from = format!("invented-{n}").into();
        say(&mut pool, 0, &SerfMessage::QueryResponse(answer.clone()));
    }
    assert_eq!(pool.hosts[0].told.len(), 2 + 64);
}

#[test]
fn only_what_is_an_answer_by_its_size_is_passed_on() {
    let mut pool = Pool::joined(2);
    let mut relay = |len: usize| {
        let header = RelayHeader {
            dest_addr: Endpoint {
                ip: address(1).ip().into(),
                port: 8301,
                zone: String::new(),
            },
            dest_name: name(1),
        };
        let relay = SerfMessage::Relay(header, vec![0; len].into());
        let relay = Bytes::from(relay.encode().unwrap());
        let serf = pool.hosts[0].serf.as_mut().unwrap();
        serf.handle_stream_user(pool.now, &relay, &mut pool.rng);
        std::iter::from_fn(|| serf.poll_output()).count()
    };
    assert_eq!(relay(1024), 1);
    assert_eq!(relay(1025), 0);
    assert_eq!(relay(1 << 20), 0);
}

/// A message that is too long for a packet is taken, but cannot be passed on.
#[test]
fn a_long_event_does_not_clog_the_queue() {
    let mut pool = Pool::joined(2);
    let event = UserEvent {
        ltime: 5,
        name: "long".into(),
        payload: vec![0; 5000].into(),
        coalesce: false,
    };
    say(&mut pool, 0, &SerfMessage::UserEvent(event));
    assert_eq!(pool.serf(0).stats()["event_queue"], "0");
    assert_eq!(pool.hosts[0].told.len(), 1);
    pool.run(Duration::from_secs(5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_taken(messages in prop::collection::vec((0u8..11, any::<Vec<u8>>()), 1..9)) {
        let mut pool = Pool::joined(2);
        for (kind, mut message) in messages {
            message.insert(0, kind);
            let message = Bytes::from(message);
            pool.with(0, |serf, now, rng| serf.handle_stream_user(now, &message, rng));
            let remote = stream::PushPull { user_state: message, ..stream::PushPull::default() };
            pool.with(0, |serf, now, rng| {
                serf.merge_remote_state(now, Exchange::Regular, &remote, rng)
            }).unwrap();
        }
        pool.run(Duration::from_secs(1));
        prop_assert_eq!(pool.status(0, 1), Some(S::Alive));
    }
}
