//! Queries, and what serf itself asks by them: keys, and who has a name.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pool::*;
use crate::gossip::serf::*;
use crate::gossip::wire::Key;
use crate::gossip::wire::serf::Filter;

const SECOND: Duration = Duration::from_secs(1);

fn ask(pool: &mut Pool, host: usize, params: QueryParams) -> QueryId {
    pool.with(host, |serf, now, rng| serf.query(now, params, rng))
        .unwrap()
}

fn params(name: &str) -> QueryParams {
    QueryParams {
        name: name.into(),
        payload: Bytes::from_static(b"how?"),
        ..QueryParams::default()
    }
}

/// All agents that run answer the queries that they hear with their names.
fn answer(pool: &mut Pool) {
    for host in pool.running() {
        let told = std::mem::take(&mut pool.hosts[host].told);
        for output in told {
            if let Output::Query(query) = &output {
                let payload = Bytes::from(name(host).to_string());
                pool.with(host, |serf, now, rng| {
                    serf.respond(now, query, payload, rng)
                })
                .unwrap();
            }
            pool.hosts[host].told.push(output);
        }
    }
}

/// Who acknowledged a query, and who answered it with what; both sorted.
fn answers(pool: &Pool, host: usize, id: QueryId) -> (Vec<String>, Vec<(String, String)>) {
    let (mut acks, mut answers) = (Vec::new(), Vec::new());
    for output in &pool.hosts[host].told {
        match output {
            Output::QueryAck { query, from } if *query == id => acks.push(from.to_string()),
            Output::QueryAnswer {
                query,
                from,
                payload,
            } if *query == id => {
                let payload = String::from_utf8_lossy(payload).into_owned();
                answers.push((from.to_string(), payload));
            }
            _ => {}
        }
    }
    acks.sort();
    answers.sort();
    (acks, answers)
}

fn names(hosts: &[usize]) -> Vec<String> {
    hosts.iter().map(|host| name(*host).to_string()).collect()
}

#[test]
fn all_are_asked_and_answer_once() {
    let mut pool = Pool::joined(4);
    let query = ask(
        &mut pool,
        1,
        QueryParams {
            ack: true,
            ..params("load")
        },
    );
    pool.run(2 * SECOND);
    answer(&mut pool);
    pool.run(SECOND);
    let (acks, got) = answers(&pool, 1, query);
    assert_eq!(acks, names(&[0, 1, 2, 3]));
    assert_eq!(
        got,
        names(&[0, 1, 2, 3])
            .into_iter()
            .map(|n| (n.clone(), n))
            .collect::<Vec<_>>()
    );
    assert!(!pool.hosts[1].told.contains(&Output::QueryDone { query }));
    pool.run(SECOND);
    assert!(pool.hosts[1].told.contains(&Output::QueryDone { query }));
    // No acknowledgements unless they are wanted.
    let query = ask(&mut pool, 1, params("load"));
    pool.run(2 * SECOND);
    assert_eq!(answers(&pool, 1, query).0, names(&[]));
}

#[test]
fn a_query_waits_as_long_as_the_size_of_the_pool_demands() {
    let pool = Pool::joined(1);
    assert_eq!(pool.serf(0).query_timeout(), SECOND * 16 / 5);
    let pool = Pool::joined(9);
    assert_eq!(pool.serf(0).query_timeout(), SECOND * 16 / 5);
    let pool = Pool::joined(10);
    assert_eq!(pool.serf(0).query_timeout(), SECOND * 32 / 5);
}

#[test]
fn filters_say_who_is_asked() {
    let mut pool = Pool::joined(4);
    let nodes = Filter::Nodes(vec![name(0), name(2), name(3)]);
    let tag = |name: &str, pattern: &str| Filter::Tag {
        name: name.into(),
        pattern: pattern.into(),
    };
    for (filters, asked) in [
        (vec![nodes.clone()], &[0, 2, 3][..]),
        (vec![tag("id", "^[01]$")], &[0, 1]),
        (vec![nodes, tag("id", "2|3"), tag("role", "sul")], &[2, 3]),
        (vec![tag("missing", "^$")], &[0, 1, 2, 3]),
        (vec![tag("missing", "x")], &[]),
        (vec![tag("id", "(")], &[]),
        // So large that a careless engine would fill the memory.
        (vec![tag("id", "(.{1000}){1000}")], &[]),
    ] {
        let params = QueryParams {
            ack: true,
            filters,
            ..params("load")
        };
        let query = ask(&mut pool, 1, params);
        pool.run(3 * SECOND);
        assert_eq!(answers(&pool, 1, query).0, names(asked));
    }
}

#[test]
fn what_is_too_long_or_too_late_is_refused() {
    let mut pool = Pool::joined(2);
    let long = QueryParams {
        payload: Bytes::from(vec![0; 1024]),
        ..params("load")
    };
    let refused = pool.with(0, |serf, now, rng| serf.query(now, long, rng));
    assert!(refused.unwrap_err().to_string().contains("query 'load'"));

    ask(&mut pool, 0, params("load"));
    pool.run(SECOND);
    let told = pool.hosts[1].told.iter();
    let mut queries = told.filter_map(|output| match output {
        Output::Query(query) => Some(query.clone()),
        _ => None,
    });
    let query = queries.next().unwrap();
    assert_eq!((&*query.name, &*query.payload), ("load", &b"how?"[..]));
    assert_eq!(query.asker.target().address, address(0));
    let respond = |pool: &mut Pool, len| {
        let payload = Bytes::from(vec![0; len]);
        pool.with(1, |serf, now, rng| serf.respond(now, &query, payload, rng))
    };
    assert!(matches!(
        respond(&mut pool, 1024),
        Err(Error::TooLong { limit: 1024, .. })
    ));
    pool.run(3 * SECOND);
    assert_eq!(respond(&mut pool, 1), Err(Error::Late("load".into())));
}

#[test]
fn queries_that_wait_are_bounded() {
    let mut pool = Pool::joined(1);
    let mut last = None;
    for _ in 0..1024 {
        last = Some(ask(&mut pool, 0, params("load")));
    }
    let busy = pool.with(0, |serf, now, rng| serf.query(now, params("load"), rng));
    assert_eq!(busy, Err(Error::Busy(1024)));
    pool.with(0, |serf, _, _| serf.cancel_query(last.unwrap()));
    ask(&mut pool, 0, params("load"));
    pool.run(5 * SECOND);
    let told = pool.hosts[0].told.iter();
    let done = told.filter(|o| matches!(o, Output::QueryDone { .. }));
    assert_eq!(done.count(), 1024);
}

#[test]
fn answers_find_a_way_around() {
    let mut pool = Pool::joined(4);
    pool.separate(0, 3);
    for (relay_factor, reached) in [(0, false), (2, true)] {
        let params = QueryParams {
            ack: true,
            relay_factor,
            ..params("load")
        };
        let query = ask(&mut pool, 0, params);
        pool.run(2 * SECOND);
        answer(&mut pool);
        pool.run(SECOND);
        let (acks, got) = answers(&pool, 0, query);
        assert_eq!(acks.contains(&"n3".into()), reached);
        assert_eq!(got.iter().any(|(from, _)| from == "n3"), reached);
        // The same answer over several ways counts once.
        assert_eq!(acks.len(), 3 + usize::from(reached));
        pool.run(3 * SECOND);
        pool.hosts.iter_mut().for_each(|host| host.told.clear());
    }
}

fn key(byte: u8) -> Key {
    Key::new(&[byte; 16]).unwrap()
}

fn encrypted(hosts: usize) -> Pool {
    let mut pool = Pool::new(1, hosts);
    for host in &mut pool.hosts {
        host.config.keyring = Some(Keyring::new(key(1)));
    }
    pool.assemble();
    pool
}

fn operate(pool: &mut Pool, host: usize, operation: &KeyOperation) -> KeyReport {
    let id = pool
        .with(host, |serf, now, rng| serf.keys(now, operation, 0, rng))
        .unwrap();
    let report = |pool: &Pool| {
        let mut told = pool.hosts[host].told.iter();
        told.find_map(|output| match output {
            Output::KeyReport { query, report } if *query == id => Some(report.clone()),
            _ => None,
        })
    };
    pool.until("the report", |pool| report(pool).is_some());
    report(pool).unwrap()
}

fn counted(keys: &[(u8, usize)]) -> BTreeMap<String, usize> {
    keys.iter()
        .map(|(byte, n)| (key(*byte).to_base64(), *n))
        .collect()
}

#[test]
fn keys_are_rotated_on_all_members() {
    let mut pool = encrypted(3);
    let report = operate(&mut pool, 0, &KeyOperation::Install(key(2)));
    assert_eq!(
        (report.num_nodes, report.num_resp, report.num_err),
        (3, 3, 0)
    );
    assert_eq!(report.failure(), None);
    let listed = operate(&mut pool, 1, &KeyOperation::List);
    assert_eq!(listed.keys, counted(&[(1, 3), (2, 3)]));
    assert_eq!(listed.primary_keys, counted(&[(1, 3)]));
    assert_eq!(
        operate(&mut pool, 1, &KeyOperation::Use(key(2))).failure(),
        None
    );
    assert_eq!(
        operate(&mut pool, 2, &KeyOperation::Remove(key(1))).failure(),
        None
    );
    let listed = operate(&mut pool, 0, &KeyOperation::List);
    assert_eq!(listed.keys, counted(&[(2, 3)]));
    assert_eq!(listed.primary_keys, counted(&[(2, 3)]));
    for host in 0..3 {
        assert_eq!(pool.serf(host).keyring(), Some(&Keyring::new(key(2))));
    }
}

#[test]
fn reports_say_who_refused_and_why() {
    let mut pool = encrypted(3);
    let report = operate(&mut pool, 0, &KeyOperation::Use(key(9)));
    assert_eq!(report.failure().unwrap(), "3/3 nodes reported failure");
    assert!(report.messages[&name(1)].contains("not in the ring"));
    let report = operate(&mut pool, 0, &KeyOperation::Remove(key(1)));
    assert!(report.messages[&name(2)].contains("primary"));

    pool.hosts[2].disk_fault = Some("disk full".into());
    let report = operate(&mut pool, 0, &KeyOperation::Install(key(2)));
    assert_eq!((report.num_resp, report.num_err), (3, 1));
    assert_eq!(report.messages, [(name(2), "disk full".into())].into());

    // Who is gone does not answer; the report comes when the time of the query is over.
    pool.crash(1);
    let report = operate(&mut pool, 0, &KeyOperation::List);
    assert_eq!((report.num_nodes, report.num_resp), (3, 2));
    assert_eq!(report.failure().unwrap(), "2/3 nodes reported success");
}

#[test]
fn a_pool_without_encryption_has_no_keys() {
    let mut pool = Pool::joined(2);
    let listed = operate(&mut pool, 0, &KeyOperation::List);
    assert_eq!(listed.num_err, 2);
    let said = &listed.messages[&name(1)];
    assert_eq!(said, "Keyring is empty (encryption not enabled)");
    let changed = operate(&mut pool, 0, &KeyOperation::Install(key(1)));
    let said = &changed.messages[&name(1)];
    assert_eq!(said, "No keyring to modify (encryption not enabled)");
}

#[test]
fn a_long_list_of_keys_is_cut() {
    let mut pool = Pool::new(1, 2);
    let mut ring = Keyring::new(Key::new(&[0; 32]).unwrap());
    for byte in 1..60 {
        ring.install(Key::new(&[byte; 32]).unwrap());
    }
    pool.hosts[1].config.keyring = Some(ring);
    pool.assemble();
    let listed = operate(&mut pool, 0, &KeyOperation::List);
    let shown = listed.keys.len();
    assert!((15..30).contains(&shown), "{shown}");
    let said = &listed.messages[&name(1)];
    let cut = format!("truncated key list response, showing first {shown} of 60 keys");
    assert_eq!(*said, cut);
    assert_eq!(listed.primary_keys.len(), 1);
}

#[test]
fn an_answer_that_is_not_about_keys_is_an_error() {
    let mut report = KeyReport {
        num_nodes: 3,
        ..KeyReport::default()
    };
    report.count("a".into(), &[]);
    report.count("b".into(), &[0, 0x80]);
    report.count("c".into(), &[8, 0xc1]);
    assert_eq!((report.num_resp, report.num_err), (3, 3));
    assert!(report.messages[&NodeName::from("b")].contains("not about keys"));
    assert!(report.is_complete());
}

/// Four know n1 at its place; another node comes and claims the name.
fn conflict(decide: bool) -> Pool {
    let mut pool = Pool::new(1, 5);
    for host in &mut pool.hosts {
        host.config.resolve_conflicts = decide;
    }
    pool.hosts[4].config.swim.name = name(1);
    for host in 0..4 {
        pool.start(host);
        if host > 0 {
            pool.join(host, 0);
        }
    }
    pool.run(5 * SECOND);
    pool.start(4);
    pool.join(4, 0);
    pool.run(20 * SECOND);
    pool
}

#[test]
fn the_majority_decides_who_has_a_name() {
    let pool = conflict(true);
    let lost = |host: usize| pool.hosts[host].told.contains(&Output::ConflictLost);
    let losers: Vec<_> = (0..5).filter(|host| lost(*host)).collect();
    assert_eq!(losers, [4]);
}

/// Consul's setting.
#[test]
fn conflicts_are_only_reported_by_default() {
    let pool = conflict(false);
    let lost = |host: &Host| host.told.contains(&Output::ConflictLost);
    assert!(!pool.hosts.iter().any(lost));
    assert_eq!(pool.serf(1).member(&name(1)).unwrap().port, 8301);
}

#[test]
fn more_than_half_must_know_us() {
    let mut pool = Pool::joined(1);
    let mut lost = |answers, for_us| {
        pool.with(0, |serf, _, _| serf.decide_conflict(answers, for_us));
        pool.hosts[0].told.pop() == Some(Output::ConflictLost)
    };
    assert!(lost(0, 0));
    assert!(lost(4, 2));
    assert!(!lost(4, 3));
    assert!(!lost(3, 2));
    assert!(lost(3, 1));
}

#[test]
fn serfs_own_ping_is_acknowledged_and_not_told() {
    let mut pool = Pool::joined(3);
    let params = QueryParams {
        ack: true,
        ..params("_serf_ping")
    };
    let query = ask(&mut pool, 0, params);
    pool.run(3 * SECOND);
    assert_eq!(answers(&pool, 0, query).0, names(&[0, 1, 2]));
    let told = |o: &Output| matches!(o, Output::Query(_));
    assert!(!pool.hosts.iter().any(|host| host.told.iter().any(told)));
}
