//! Whole pools of gossip (serf on swim) in virtual time, with everything that networks, clocks and hosts do to them.
//!
//! Each seed is one history, the same whenever it runs. 200 seeds run always, 10,000 with `CROSSWAY_SOAK=1`; a failure
//! names its seed, and `SEED=n` runs that one alone.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.
#![allow(clippy::print_stdout)] // The figures.

mod checks;
mod host;
mod speed;
mod traffic;
mod world;

use std::time::Duration;

use rand::Rng;

use crate::gossip_sim::world::World;

/// What happens to a pool besides joins, leaves and crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Nothing.
    Calm,
    /// Packets get lost, arrive twice, and late.
    Loss,
    /// Groups of hosts, or single ways, are cut off.
    Partitions,
    /// Two hosts do not reach each other, but all others reach both.
    Link,
    /// Hosts stand still.
    Pauses,
    /// Clocks jump ahead, as after a suspension that only the clock noticed.
    Jumps,
    /// All of that.
    Chaos,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::Calm,
    Trouble::Loss,
    Trouble::Partitions,
    Trouble::Link,
    Trouble::Pauses,
    Trouble::Jumps,
    Trouble::Chaos,
];

/// Longest time that a host stands still.
const LONGEST_PAUSE: Duration = Duration::from_secs(12);
/// Within this time everybody has exchanged states with somebody, and so gets what packets did not bring.
const EXCHANGED_WITHIN: Duration = Duration::from_secs(120);
/// Longest time after the last trouble until all agree again.
const HEALED_WITHIN: Duration = Duration::from_secs(300);

fn soak() -> bool {
    std::env::var("CROSSWAY_SOAK").is_ok_and(|value| value == "1")
}

fn seeds() -> std::ops::Range<u64> {
    let alone = std::env::var("SEED").ok().map(|seed| seed.parse().unwrap());
    match alone {
        Some(seed) => seed..seed + 1,
        None if soak() => 0..10_000,
        None => 0..200,
    }
}

#[test]
fn pools_survive_whatever_happens_to_them() {
    let mut slowest = (Duration::ZERO, 0);
    for seed in seeds() {
        let healed = live(seed).0;
        slowest = slowest.max((healed, seed));
    }
    println!(
        "slowest to agree again: {:?} (seed {})",
        slowest.0, slowest.1
    );
}

#[test]
fn a_seed_has_one_history() {
    for seed in [1, 5, 11] {
        assert_eq!(live(seed), live(seed));
    }
}

/// One history. Gives how long it took to agree after the last trouble, and how much happened.
fn live(seed: u64) -> (Duration, usize, usize) {
    let trouble = TROUBLES[(seed % 7) as usize];
    let size = match seed {
        _ if seed >= 200 && seed % 100 == 99 => 50,
        _ if seed % 20 == 9 => 10 + (seed / 20 % 9) as usize,
        _ => 3 + (seed / 7 % 4) as usize,
    };
    let mut world = World::new(seed, size);
    for host in 0..size {
        world.start(host);
        let with = world.rng.random_range(0..=host.saturating_sub(1));
        world.run(Duration::from_millis(50));
        world.join(host, with);
    }
    make_trouble(&mut world, trouble);
    end_trouble(&mut world);
    let last = world.elapsed();
    agree(&mut world, trouble);
    let healed = world.elapsed() - last;
    let before = world.seen.len();
    world.run(Duration::from_secs(10));
    agree(&mut world, trouble); // An old intent may still get around, and changes nothing.
    let quiet = world.seen.len() == before;
    assert!(
        quiet,
        "{}: still news: {:?}",
        world.place(),
        &world.seen[before..]
    );
    if harmless(trouble) {
        world.assert_no_false_death();
    }
    if trouble == Trouble::Calm {
        world.assert_leavers_left();
        if world.lost_event().is_some() {
            world.run(EXCHANGED_WITHIN);
        }
        assert_eq!(world.lost_event(), None, "{}", world.place());
    }
    (healed, world.seen.len(), world.packets)
}

fn agree(world: &mut World, trouble: Trouble) {
    let end = world.elapsed() + HEALED_WITHIN;
    while let Some(why) = world.disagreement() {
        let place = world.place();
        assert!(world.elapsed() < end, "{place}, {trouble:?}: {why}");
        world.run(Duration::from_secs(1));
    }
}

/// Trouble that is no reason to take anybody for dead: a jump of a clock is none, who stands still may accuse nobody
/// wrongly, and there are others who reach whom one host does not reach (C029).
fn harmless(trouble: Trouble) -> bool {
    let harmless = [
        Trouble::Calm,
        Trouble::Pauses,
        Trouble::Jumps,
        Trouble::Link,
    ];
    harmless.contains(&trouble)
}

/// Half a minute of it.
fn make_trouble(world: &mut World, trouble: Trouble) {
    let any = trouble == Trouble::Chaos;
    let delay = world.rng.random_range(5..150);
    world.net.delay = Duration::from_millis(delay);
    if any || trouble == Trouble::Loss {
        world.net.loss = [0.02, 0.1, 0.3][world.rng.random_range(0..3)];
        world.net.duplicates = 0.02;
        world.net.delay *= 4;
    }
    let end = world.elapsed() + Duration::from_secs(30);
    while world.elapsed() < end {
        let pause = world.rng.random_range(100..4000);
        world.run(Duration::from_millis(pause));
        change_hosts(world, trouble);
        if any || trouble == Trouble::Partitions {
            cut(world);
        }
        let host = world.rng.random_range(0..world.hosts.len());
        if trouble == Trouble::Link {
            let other = world.rng.random_range(0..world.hosts.len());
            world.net.cut = [(host, other), (other, host)].into();
        }
        let time = Duration::from_millis(
            world
                .rng
                .random_range(100..LONGEST_PAUSE.as_millis() as u64),
        );
        if world.rng.random_bool(0.3) && (any || trouble == Trouble::Pauses) {
            world.pause(host, time);
        }
        if world.rng.random_bool(0.3) && (any || trouble == Trouble::Jumps) {
            world.hosts[host].ahead += time * 10;
        }
    }
}

/// Hosts start, crash, leave, change what they say about themselves, and tell each other things.
fn change_hosts(world: &mut World, trouble: Trouble) {
    let host = world.rng.random_range(0..world.hosts.len());
    let choice = world.rng.random_range(0..16);
    let running = world.running();
    // Two hosts cannot spare a third that reaches both.
    let spare = running.len() > 2 && trouble != Trouble::Link;
    match (choice, running.contains(&host)) {
        (0..2, true) if spare => world.crash(host),
        (2, true) if spare => world.leave(host),
        (3..6, true) => {
            let value = "x".repeat(world.rng.random_range(0..400));
            world.set_tags(host, &value);
        }
        (6..9, true) => world.user_event(host),
        (9, true) => {
            let whom = world.rng.random_range(0..world.hosts.len());
            if !running.contains(&whom) {
                world.force_leave(host, whom);
            }
        }
        (0..10, false) if !world.hosts[host].leaving => {
            world.start(host);
            if let Some(&with) = running.first() {
                world.join(host, with);
            }
        }
        _ => {}
    }
}

/// Cuts the pool in two, or single ways, or mends everything.
fn cut(world: &mut World) {
    let hosts = world.hosts.len();
    match world.rng.random_range(0..6) {
        0 => world.net.cut.clear(),
        1 => {
            let side: Vec<bool> = (0..hosts).map(|_| world.rng.random()).collect();
            let ways = (0..hosts).flat_map(|a| (0..hosts).map(move |b| (a, b)));
            world.net.cut = ways.filter(|(a, b)| side[*a] != side[*b]).collect();
        }
        2 => {
            let way = (
                world.rng.random_range(0..hosts),
                world.rng.random_range(0..hosts),
            );
            world.net.cut.insert(way);
        }
        _ => {}
    }
}

/// The network works again, and who stands still wakes up within its time.
fn end_trouble(world: &mut World) {
    world.net.loss = 0.0;
    world.net.duplicates = 0.0;
    world.net.cut.clear();
    world.net.delay = Duration::from_millis(20);
    world.run(LONGEST_PAUSE);
}
