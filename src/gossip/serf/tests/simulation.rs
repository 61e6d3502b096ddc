//! Whole pools with trouble: members join, leave, crash and are made to leave while the network is cut. Once it is
//! whole, all agree on what became of whom.
//!
//! Each seed is one history. A failure names its seed, and `SEED=n` runs that one alone;
//! `CROSSWAY_SOAK=1` runs many more.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;

use super::pool::*;
use crate::gossip::serf::MemberStatus as S;
use crate::gossip::serf::*;

const SECOND: Duration = Duration::from_secs(1);
/// How long it may take to agree again: some exchanges of states, and attempts to reach each other.
const HEALED_WITHIN: Duration = Duration::from_secs(300);

/// What a host shall be in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    /// It left in order.
    Left,
    /// It crashed, and may have been made to leave.
    Crashed,
}

struct World {
    pool: Pool,
    fates: Vec<Fate>,
    /// Who could not join yet, and goes on trying.
    outside: BTreeSet<usize>,
}

impl World {
    fn new(seed: u64, hosts: usize) -> Self {
        let mut pool = Pool::new(seed, hosts);
        for host in &mut pool.hosts {
            host.config.timing.reconnect_interval = 5 * SECOND;
        }
        pool.assemble();
        let fates = vec![Fate::Runs; hosts];
        let outside = BTreeSet::new();
        Self {
            pool,
            fates,
            outside,
        }
    }

    fn with_fate(&self, fate: Fate) -> Vec<usize> {
        (0..self.fates.len())
            .filter(|host| self.fates[*host] == fate)
            .collect()
    }

    /// One thing happens.
    fn step(&mut self) {
        let pool = &mut self.pool;
        let host = pool.rng.random_range(0..self.fates.len());
        let choice = pool.rng.random_range(0..10);
        let running = self.with_fate(Fate::Runs);
        let enough = running.len() > 2;
        let out = self.is_out(host);
        let pool = &mut self.pool;
        match (choice, self.fates[host]) {
            (0..2, Fate::Runs) if enough => {
                pool.crash(host);
                self.fates[host] = Fate::Crashed;
            }
            (2, Fate::Runs) if enough => {
                pool.with(host, |serf, now, rng| serf.leave(now, rng));
                self.fates[host] = Fate::Left;
            }
            (3..5, Fate::Runs) => self.force_leave(host),
            (0..5, Fate::Left | Fate::Crashed) if out => {
                pool.start(host);
                self.fates[host] = Fate::Runs;
                self.outside.insert(host);
            }
            (5..7, _) => {
                let all = self.fates.len();
                let side: Vec<bool> = (0..all).map(|_| pool.rng.random()).collect();
                pool.cut.clear();
                for a in 0..all {
                    for b in 0..a {
                        if side[a] != side[b] {
                            pool.separate(a, b);
                        }
                    }
                }
            }
            (7, _) => pool.cut.clear(),
            (8, _) => {
                pool.with(running[0], |serf, now, rng| {
                    serf.user_event(now, "deploy", Bytes::new(), false, rng)
                        .unwrap();
                });
            }
            _ => {}
        }
    }

    /// A member makes a random other one leave, whatever it is.
    fn force_leave(&mut self, host: usize) {
        self.pool.with(host, |serf, now, rng| {
            let others = serf.members().filter(|member| member.name != *serf.name());
            let others: Vec<_> = others.map(|member| member.name.clone()).collect();
            if let Some(other) = others.choose(rng) {
                serf.force_leave(now, &other.clone(), false, Token(0), rng)
                    .unwrap();
            }
        });
    }

    /// Lets time pass, in which those who could not join try again.
    fn run(&mut self, time: Duration) {
        self.pool.run(time);
        self.stop_those_who_left();
        let running = self.with_fate(Fate::Runs);
        let outside = std::mem::take(&mut self.outside);
        for host in outside.into_iter().filter(|host| running.contains(host)) {
            let others: Vec<_> = running.iter().filter(|with| **with != host).collect();
            let with = **others.choose(&mut self.pool.rng).unwrap();
            if !self.pool.join(host, with) {
                self.outside.insert(host);
            }
        }
    }

    /// Parts of a pool that take each other for left do not look for each other any more, be it that they made each
    /// other leave while they were apart, or that only the dead knew of a restart. Then somebody has to join them.
    fn join_parts(&mut self) {
        let running = self.with_fate(Fate::Runs);
        for host in &running[1..] {
            if matches!(self.pool.status(*host, running[0]), None | Some(S::Left)) {
                self.outside.insert(*host);
            }
        }
    }

    fn is_out(&self, host: usize) -> bool {
        self.pool.hosts[host].serf.is_none()
    }

    fn stop_those_who_left(&mut self) {
        for host in self.with_fate(Fate::Left) {
            let told = &mut self.pool.hosts[host].told;
            if told.contains(&Output::Left) {
                told.clear();
                self.pool.crash(host);
            }
        }
    }

    /// What still keeps members from agreeing, if anything.
    fn disagreement(&self) -> Option<String> {
        let running = self.with_fate(Fate::Runs);
        for (host, fate) in self.fates.iter().enumerate() {
            let seen = running.iter().filter(|observer| **observer != host);
            let seen: Vec<_> = seen.map(|o| (*o, self.pool.status(*o, host))).collect();
            let fine = |status: Option<S>| match fate {
                Fate::Runs => status == Some(S::Alive),
                // Who joined later may never hear of the gone, and all who knew that it left may be gone.
                Fate::Left | Fate::Crashed => matches!(status, None | Some(S::Left | S::Failed)),
            };
            let known: Vec<_> = seen.iter().filter_map(|(_, status)| *status).collect();
            let same = known.windows(2).all(|pair| pair[0] == pair[1]);
            if !same || !seen.iter().all(|(_, status)| fine(*status)) {
                return Some(format!("n{host} is {fate:?}, but seen as {seen:?}"));
            }
        }
        None
    }
}

fn live(seed: u64, hosts: usize, time: Duration) -> Duration {
    let mut world = World::new(seed, hosts);
    let end = world.pool.now + time;
    world.pool.loss = [0.0, 0.05, 0.2][seed as usize % 3];
    while world.pool.now < end {
        let pause = world.pool.rng.random_range(100..8000);
        world.run(Duration::from_millis(pause));
        world.step();
    }
    world.pool.cut.clear();
    world.pool.loss = 0.0;
    let healed = world.pool.now;
    let mut why = world.disagreement();
    while why.is_some() {
        let time = world.pool.now - healed;
        assert!(time < HEALED_WITHIN, "seed {seed}: {why:?}");
        world.join_parts();
        world.run(SECOND);
        why = world.disagreement();
    }
    let time = world.pool.now - healed;
    world.pool.run(60 * SECOND);
    assert_eq!(
        world.disagreement(),
        None,
        "seed {seed}: they agreed, but do not any more"
    );
    time
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let alone = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    let soak = std::env::var("CROSSWAY_SOAK").is_ok_and(|value| value == "1");
    match alone {
        Some(seed) => seed..seed + 1,
        None if soak => 0..200 * few,
        None => 0..few,
    }
}

#[test]
fn all_agree_once_the_network_is_whole() {
    for seed in seeds(50) {
        live(seed, 3 + seed as usize % 7, 120 * SECOND);
    }
}

#[test]
fn large_pools_agree_as_well() {
    for seed in seeds(1) {
        live(seed, 50, 60 * SECOND);
    }
}
