//! What an agent finds again after a restart.

use std::time::Duration;

use super::pool::*;
use crate::gossip::serf::MemberStatus as S;
use crate::gossip::serf::*;

const SECOND: Duration = Duration::from_secs(1);

/// A pool whose last member keeps a snapshot.
fn pool(rejoins_after_leave: bool) -> Pool {
    let mut pool = Pool::new(1, 3);
    let config = &mut pool.hosts[2].config;
    config.snapshot = Some(Snapshot::default());
    config.rejoin_after_leave = rejoins_after_leave;
    pool.assemble();
    pool
}

fn heard(pool: &Pool) -> usize {
    let told = pool.hosts[2].told.iter();
    told.filter(|o| matches!(o, Output::UserEvent(_))).count()
}

fn tell(pool: &mut Pool, event: &str) {
    pool.with(0, |serf, now, rng| {
        serf.user_event(now, event, Bytes::new(), false, rng)
            .unwrap();
    });
    pool.run(5 * SECOND);
}

#[test]
fn a_restarted_agent_finds_its_pool() {
    let mut pool = pool(false);
    tell(&mut pool, "before");
    assert_eq!(heard(&pool), 1);
    let file = pool.hosts[2].file.clone();
    for line in [
        "alive: n0 10.0.0.1:8301\n",
        "alive: n1 10.0.0.2:8301\n",
        "event-clock: 1\n",
    ] {
        assert!(file.contains(line), "{file}");
    }
    let before = pool.serf(2).clock.time();
    pool.crash(2);
    pool.until("all see it", |pool| pool.all_see(2, Some(S::Failed)));
    pool.start(2);
    assert!(pool.serf(2).clock.time() >= before, "clocks go on");
    assert_eq!(pool.serf(2).members().count(), 3, "it rejoins by itself");
    pool.until("it is back", |pool| pool.all_see(2, Some(S::Alive)));
    // It heard of what happened before, and does not hear of it again.
    pool.run(100 * SECOND);
    assert_eq!(heard(&pool), 1);
    tell(&mut pool, "after");
    assert_eq!(heard(&pool), 2);
}

#[test]
fn it_turns_to_the_next_if_one_is_gone() {
    for gone in 0..2 {
        let mut pool = pool(false);
        pool.crash(2);
        pool.crash(gone);
        pool.start(2);
        let other = 1 - gone;
        assert_eq!(pool.status(2, other), Some(S::Alive));
    }
}

#[test]
fn who_left_stays_out_unless_it_shall_rejoin() {
    for rejoins in [false, true] {
        let mut pool = pool(rejoins);
        pool.with(2, |serf, now, rng| serf.leave(now, rng));
        pool.until("it has left", |pool| {
            pool.hosts[2].told.contains(&Output::Left)
        });
        assert!(pool.hosts[2].file.ends_with("leave\n"));
        pool.crash(2);
        pool.start(2);
        assert_eq!(pool.serf(2).members().count(), if rejoins { 3 } else { 1 });
        pool.run(30 * SECOND);
        let seen = if rejoins { S::Alive } else { S::Left };
        assert!(pool.all_see(2, Some(seen)));
    }
}

#[test]
fn the_failed_are_not_turned_to() {
    let mut pool = pool(false);
    pool.crash(0);
    pool.until("all see it", |pool| pool.all_see(0, Some(S::Failed)));
    let snapshot = Snapshot::read(pool.hosts[2].file.as_bytes(), false);
    let alive: Vec<_> = snapshot.alive.keys().cloned().collect();
    assert_eq!(alive, [name(1), name(2)]);
}
