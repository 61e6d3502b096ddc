//! Hosts, their network and their clocks, all of them in virtual time.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;
use std::time::Duration;
use std::time::Instant;

use crossway::gossip::serf::Serf;
use crossway::model::NodeName;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::gossip_sim::host::Host;
use crate::gossip_sim::host::Seen;
use crate::gossip_sim::host::Sent;
use crate::gossip_sim::traffic::Delivery;
use crate::gossip_sim::traffic::Entry;

/// How often a host that is alone tries to join.
const RETRY_JOIN: Duration = Duration::from_secs(5);

/// What the network does to traffic.
#[derive(Debug, Clone)]
pub(super) struct Net {
    /// Share of packets that are lost; half as many streams break.
    pub(super) loss: f64,
    /// Share of packets that arrive twice.
    pub(super) duplicates: f64,
    /// Longest way of a packet; the shortest is a tenth of it.
    pub(super) delay: Duration,
    /// Ways that are cut, in one direction.
    pub(super) cut: BTreeSet<(usize, usize)>,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: StdRng,
    pub(super) net: Net,
    pub(super) hosts: Vec<Host>,
    /// What everybody saw of everybody.
    pub(super) seen: Vec<Seen>,
    /// Packets that were sent.
    pub(super) packets: usize,
    /// User events that were sent.
    pub(super) events: Vec<Sent>,
    pub(super) last_crash: Option<Duration>,
    pub(super) names: Vec<NodeName>,
    pub(super) now: Instant,
    start: Instant,
    queue: BinaryHeap<Reverse<Entry>>,
    last_id: u64,
}

impl World {
    /// A world of hosts that do not run yet.
    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    pub(super) fn new(seed: u64, hosts: usize) -> Self {
        let start = Instant::now();
        let mut world = Self {
            seed,
            rng: StdRng::seed_from_u64(seed),
            net: Net {
                loss: 0.0,
                duplicates: 0.0,
                delay: Duration::from_millis(20),
                cut: BTreeSet::new(),
            },
            hosts: (0..hosts).map(|_| Host::default()).collect(),
            seen: Vec::new(),
            packets: 0,
            events: Vec::new(),
            last_crash: None,
            names: (0..hosts)
                .map(|i| NodeName::from(format!("n{i}").as_str()))
                .collect(),
            now: start,
            start,
            queue: BinaryHeap::new(),
            last_id: 0,
        };
        for host in 0..hosts {
            world.schedule_retry(host);
        }
        world
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Where a failure is.
    pub(super) fn place(&self) -> String {
        format!("seed {} at {:?}", self.seed, self.elapsed())
    }

    /// The hosts that run and do not leave.
    pub(super) fn running(&self) -> Vec<usize> {
        let hosts = self.hosts.iter().enumerate();
        let running = hosts.filter(|(_, host)| host.serf.is_some() && !host.leaving);
        running.map(|(index, _)| index).collect()
    }

    /// Gives a running host something to do.
    pub(super) fn with(&mut self, index: usize, act: impl FnOnce(&mut Serf, Instant, &mut StdRng)) {
        let host = &mut self.hosts[index];
        let now = self.now + host.ahead;
        if let Some(serf) = &mut host.serf {
            act(serf, now, &mut self.rng);
            self.settle(index);
        }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let delivery = self.queue.peek().map(|entry| entry.0.at);
            let tick = self.next_tick();
            let next = delivery.into_iter().chain(tick.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            if next > self.now {
                self.now = next;
                for host in &mut self.hosts {
                    host.ticks_now = 0;
                }
            }
            if let Some((_, index)) = tick.filter(|(at, _)| delivery.is_none_or(|d| *at <= d)) {
                self.tick(index);
            } else if let Some(Reverse(entry)) = self.queue.pop() {
                self.deliver(entry.to, entry.delivery);
            }
        }
        self.now = end;
    }

    fn next_tick(&self) -> Option<(Instant, usize)> {
        let hosts = self.hosts.iter().enumerate();
        let awake = hosts.filter(|(_, host)| host.paused.is_none());
        awake
            .filter_map(|(index, host)| Some((host.deadline? - host.ahead, index)))
            .min()
    }

    pub(super) fn tick(&mut self, index: usize) {
        self.hosts[index].ticks_now += 1;
        let ticks = self.hosts[index].ticks_now;
        assert!(ticks < 10, "{}: n{index} never sleeps", self.place());
        let mut forgets = false;
        self.with(index, |serf, now, rng| {
            let known = serf.swim().node_count();
            serf.tick(now, rng);
            forgets = serf.swim().node_count() < known;
        });
        if forgets {
            self.check_lives(index);
        }
    }

    pub(super) fn schedule(&mut self, after: Duration, to: usize, delivery: Delivery) {
        self.last_id += 1;
        let (at, id) = (self.now + after, self.last_id);
        self.queue.push(Reverse(Entry {
            at,
            id,
            to,
            delivery,
        }));
    }

    pub(super) fn schedule_retry(&mut self, index: usize) {
        let after = RETRY_JOIN.mul_f64(self.rng.random_range(0.5..1.5));
        self.schedule(after, index, Delivery::RetryJoin);
    }
}
