//! How fast news reaches everybody, compared with what serf promises.

use std::collections::BTreeSet;
use std::time::Duration;

use crossway::gossip::serf::MemberChange;
use crossway::gossip::swim::Timing;

use crate::gossip_sim::soak;
use crate::gossip_sim::world::World;

/// By when everybody knows everything: two exchanges of states in a pool of 50.
const LATEST: Duration = Duration::from_secs(120);

/// The figures of several runs, sorted.
struct Figures {
    what: &'static str,
    times: Vec<Duration>,
}

impl Figures {
    fn new(what: &'static str) -> Self {
        let times = Vec::new();
        Self { what, times }
    }

    fn share(&mut self, share: f64) -> Duration {
        self.times.sort();
        self.times[((self.times.len() - 1) as f64 * share) as usize]
    }

    fn print(&mut self, promise: Duration) {
        let [median, p99, max] = [0.5, 0.99, 1.0].map(|share| self.share(share));
        let what = self.what;
        println!("{what}: median {median:?}, p99 {p99:?}, max {max:?}; promised {promise:?}");
    }
}

/// serf's figure for the time until everybody knows something: an epidemic that reaches, of `n` nodes,
/// `n / (1 + (n - 1) e^(-t/2 * fanout))` within `t` rounds of gossip, until less than half a node is missing.
fn promise(nodes: usize, timing: &Timing) -> Duration {
    let n = nodes as f64;
    let rounds = ((n - 1.0) * (2.0 * n - 1.0)).ln() / (timing.gossip_nodes as f64 / 2.0);
    timing.gossip_interval.mul_f64(rounds)
}

/// Lets time pass until all running hosts saw something of a host. Gives the times at which the first and the last did.
fn spread(world: &mut World, subject: usize, change: MemberChange) -> (Duration, Duration) {
    let from = world.elapsed();
    let observers: BTreeSet<_> = world
        .running()
        .into_iter()
        .filter(|h| *h != subject)
        .collect();
    loop {
        let seen = world.seen.iter();
        let seen = seen.filter(|seen| (seen.subject, seen.change) == (subject, change));
        let seen = seen.filter(|seen| seen.at >= from && observers.contains(&seen.observer));
        let times: Vec<_> = seen.map(|seen| seen.at).collect();
        if let (Some(first), Some(last)) = (times.first(), times.last())
            && times.len() == observers.len()
        {
            return (*first, *last);
        }
        let place = world.place();
        assert!(
            world.elapsed() < from + LATEST,
            "{place}: not all saw {change:?} of n{subject}"
        );
        world.run(Duration::from_secs(1));
    }
}

fn pool(seed: u64, size: usize) -> World {
    let mut world = World::new(seed, size);
    for host in 0..size - 1 {
        world.start(host);
        world.join(host, 0);
    }
    agree(&mut world);
    world
}

fn agree(world: &mut World) {
    let end = world.elapsed() + LATEST;
    while let Some(why) = world.disagreement() {
        assert!(world.elapsed() < end, "{}: {why}", world.place());
        world.run(Duration::from_secs(1));
    }
}

/// A host joins, leaves in order or crashes, in pools without other trouble.
#[test]
fn news_reaches_everybody_as_fast_as_serf_promises() {
    let timing = Timing::lan();
    let runs = if soak() { 50 } else { 1 };
    for size in [5, 50] {
        let mut join = Figures::new("join");
        let mut leave = Figures::new("leave");
        let mut detect = Figures::new("detection of a death");
        let mut death = Figures::new("death, once detected");
        for seed in 0..runs {
            let mut world = pool(seed, size);
            world.start(size - 1);
            world.join(size - 1, 1);
            let (first, last) = spread(&mut world, size - 1, MemberChange::Join);
            join.times.push(last - first);
            agree(&mut world);

            world.leave(2);
            let (first, last) = spread(&mut world, 2, MemberChange::Leave);
            leave.times.push(last - first);
            agree(&mut world);

            let start = world.elapsed();
            world.crash(3);
            let (first, last) = spread(&mut world, 3, MemberChange::Failed);
            detect.times.push(first - start);
            death.times.push(last - first);
            agree(&mut world);
        }
        let promise = promise(size, &timing);
        println!("{size} nodes, {runs} runs:");
        for figures in [&mut join, &mut leave, &mut death] {
            figures.print(promise);
            let median = figures.share(0.5);
            assert!(
                median <= promise,
                "{}: {median:?}, {promise:?}",
                figures.what
            );
            // A node sends each news to about 8 others in a pool of 50, so that one event of 60 misses somebody,
            // who then learns it from an exchange of states.
            let most = figures.share(0.9);
            assert!(most <= promise, "{}: {most:?}, {promise:?}", figures.what);
        }
        // Somebody probes it within two intervals, if all probe at random; then it may defend itself.
        let nodes = (size as f64).log10().max(1.0);
        let defence = timing.probe_interval.mul_f64(4.0 * nodes);
        detect.print(3 * timing.probe_interval + defence);
        assert!(detect.share(1.0) <= 6 * defence + 9 * timing.probe_interval);
    }
}
