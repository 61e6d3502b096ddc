//! Hosts, their network and their clocks, all of them in virtual time.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use crossway::gossip::swim::Config;
use crossway::gossip::swim::Event;
use crossway::gossip::swim::Output;
use crossway::gossip::swim::Swim;
use crossway::gossip::swim::Timing;
use crossway::gossip::swim::Token;
use crossway::gossip::wire::Incoming;
use crossway::gossip::wire::Message;
use crossway::gossip::wire::message::Ping;
use crossway::gossip::wire::packet;
use crossway::gossip::wire::stream::NodeState;
use crossway::gossip::wire::stream::PushNodeState;
use crossway::model::NodeName;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;

/// The farewell that a host waits for when it leaves.
const FAREWELL: Token = Token(1);
/// How often a host tries to reach a failed one again, or anybody if it is alone. serf does that every 30 s.
const RECONNECT: Duration = Duration::from_secs(5);

/// What the network does to traffic.
#[derive(Debug, Clone)]
pub struct Net {
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of packets that arrive twice.
    pub duplicates: f64,
    /// Longest way of a packet; the shortest is a tenth of it.
    pub delay: Duration,
    /// Ways that are cut, in one direction.
    pub cut: BTreeSet<(usize, usize)>,
}

/// What one host saw of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    Join,
    Update,
    Dead,
    Left,
}

#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub at: Duration,
    pub observer: usize,
    pub subject: usize,
    pub sight: Sight,
}

#[derive(Default)]
pub struct Host {
    /// `None` when it does not run.
    pub swim: Option<Swim>,
    /// Counts its starts: what was meant for an earlier life does not reach a later one.
    pub life: u32,
    /// Until when it stands still; what arrives meanwhile waits.
    pub paused: Option<Instant>,
    waiting: Vec<Delivery>,
    /// How far its clock is ahead.
    pub ahead: Duration,
    /// Whom it takes for alive, from the events it got.
    alive: BTreeSet<usize>,
    /// Whom it lost, and tries to reach again.
    failed: BTreeSet<usize>,
    /// The latest lives that it knew of.
    lives: Vec<u32>,
    /// Ever crashed, left or paused: may be taken for dead without being so.
    pub troubled: bool,
    pub leaving: bool,
    deadline: Option<Instant>,
    ticks_now: u32,
}

enum Delivery {
    Packet {
        from: usize,
        body: Vec<u8>,
    },
    StreamPing {
        from: usize,
        life: u32,
        ping: Ping,
    },
    StreamPong {
        seq_no: u32,
        life: u32,
    },
    Push {
        from: usize,
        life: u32,
        join: bool,
        state: Vec<PushNodeState>,
    },
    Pull {
        life: u32,
        join: bool,
        state: Vec<PushNodeState>,
    },
    Reconnect,
    Resume,
    Stop {
        life: u32,
    },
}

struct Entry {
    at: Instant,
    id: u64,
    to: usize,
    delivery: Delivery,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.id).cmp(&(other.at, other.id))
    }
}

pub struct World {
    pub seed: u64,
    pub rng: StdRng,
    pub net: Net,
    pub hosts: Vec<Host>,
    pub seen: Vec<Seen>,
    /// Packets that were sent.
    pub packets: usize,
    names: Vec<NodeName>,
    start: Instant,
    now: Instant,
    queue: BinaryHeap<Reverse<Entry>>,
    last_id: u64,
}

fn name(host: usize) -> NodeName {
    format!("n{host}").as_str().into()
}

fn host_of(name: &NodeName) -> usize {
    name.as_str().trim_start_matches('n').parse().unwrap()
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 8301))
}

fn host_at(address: SocketAddr) -> usize {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        std::net::IpAddr::V6(_) => panic!("nobody has an IPv6 address"),
    }
}

impl World {
    /// A world of hosts that do not run yet.
    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    pub fn new(seed: u64, hosts: usize) -> Self {
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
            names: (0..hosts).map(name).collect(),
            start,
            now: start,
            queue: BinaryHeap::new(),
            last_id: 0,
        };
        for host in 0..hosts {
            world.schedule_reconnect(host);
        }
        world
    }

    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    /// Where a failure is.
    pub fn place(&self) -> String {
        format!("seed {} at {:?}", self.seed, self.elapsed())
    }

    pub fn running(&self) -> Vec<usize> {
        let hosts = self.hosts.iter().enumerate();
        let running = hosts.filter(|(_, host)| host.swim.is_some() && !host.leaving);
        running.map(|(index, _)| index).collect()
    }

    /// Starts a host, which knows nobody.
    pub fn start(&mut self, index: usize) {
        let hosts = self.hosts.len();
        let mut config = Config::new(self.names[index].clone(), address(index));
        config.timing = Timing::lan();
        let now = self.now + self.hosts[index].ahead;
        let host = &mut self.hosts[index];
        config.meta = vec![host.life as u8].as_slice().into();
        host.life += 1;
        host.swim = Some(Swim::new(config, now, &mut self.rng));
        host.leaving = false;
        host.alive.clear();
        host.failed.clear();
        host.lives = vec![0; hosts];
        self.settle(index);
    }

    pub fn crash(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        host.swim = None;
        host.waiting.clear();
        host.paused = None;
        host.deadline = None;
        host.troubled = true;
    }

    pub fn pause(&mut self, index: usize, time: Duration) {
        let host = &mut self.hosts[index];
        host.troubled = true;
        host.paused = Some(self.now + time);
        self.schedule(time, index, Delivery::Resume);
    }

    pub fn leave(&mut self, index: usize) {
        self.hosts[index].troubled = true;
        self.hosts[index].leaving = true;
        self.with(index, |swim, now, _| swim.leave(now, Some(FAREWELL)));
    }

    /// Lets a host ask another one to exchange all states.
    pub fn join(&mut self, index: usize, with: usize) {
        self.push_pull(index, with, true);
    }

    /// Gives a running host something to do.
    pub fn with(&mut self, index: usize, act: impl FnOnce(&mut Swim, Instant, &mut StdRng)) {
        let host = &mut self.hosts[index];
        let now = self.now + host.ahead;
        if let Some(swim) = &mut host.swim {
            act(swim, now, &mut self.rng);
            self.settle(index);
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let event = self.queue.peek().map(|entry| entry.0.at);
            let ticks = self.hosts.iter().enumerate();
            let tick = ticks
                .filter(|(_, host)| host.paused.is_none())
                .filter_map(|(index, host)| Some((host.deadline? - host.ahead, index)))
                .min();
            let next = event.into_iter().chain(tick.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            if next > self.now {
                self.now = next;
                for host in &mut self.hosts {
                    host.ticks_now = 0;
                }
            }
            match tick.filter(|(at, _)| event.is_none_or(|event| *at <= event)) {
                Some((_, index)) => self.tick(index),
                None => {
                    let Some(Reverse(entry)) = self.queue.pop() else {
                        break;
                    };
                    self.deliver(entry.to, entry.delivery);
                }
            }
        }
        self.now = end;
    }

    fn tick(&mut self, index: usize) {
        self.hosts[index].ticks_now += 1;
        let ticks = self.hosts[index].ticks_now;
        assert!(ticks < 10, "{}: n{index} never sleeps", self.place());
        let mut forgets = false;
        self.with(index, |swim, now, rng| {
            let known = swim.node_count();
            swim.tick(now, rng);
            forgets = swim.node_count() < known;
        });
        if forgets {
            self.check_lives(index);
        }
    }

    fn schedule(&mut self, after: Duration, to: usize, delivery: Delivery) {
        self.last_id += 1;
        let (at, id) = (self.now + after, self.last_id);
        self.queue.push(Reverse(Entry {
            at,
            id,
            to,
            delivery,
        }));
    }

    fn schedule_reconnect(&mut self, index: usize) {
        let after = RECONNECT.mul_f64(self.rng.random_range(0.5..1.5));
        self.schedule(after, index, Delivery::Reconnect);
    }

    fn deliver(&mut self, to: usize, delivery: Delivery) {
        match delivery {
            Delivery::Resume => self.resume(to),
            Delivery::Reconnect => {
                self.reconnect(to);
                self.schedule_reconnect(to);
            }
            _ if self.hosts[to].paused.is_some() => self.hosts[to].waiting.push(delivery),
            Delivery::Stop { life } if self.hosts[to].life == life => self.crash(to),
            Delivery::Stop { .. } => {}
            Delivery::Packet { from, body } => {
                let packet = packet::open(&body, &Incoming::default()).unwrap();
                assert_eq!(
                    packet.skipped,
                    0,
                    "{}: {:?}",
                    self.place(),
                    packet.first_error
                );
                let news = packet.messages.iter().any(|message| {
                    matches!(
                        message,
                        Message::Alive(_) | Message::Suspect(_) | Message::Dead(_)
                    )
                });
                for message in packet.messages {
                    self.with(to, |swim, now, rng| {
                        swim.handle_message(now, address(from), message, rng);
                    });
                }
                if news {
                    self.check_lives(to);
                }
            }
            Delivery::StreamPing { from, life, ping } => {
                let swim = self.hosts[to].swim.as_ref();
                if let Some(ack) = swim.and_then(|swim| swim.answer_stream_ping(&ping)) {
                    let seq_no = ack.seq_no;
                    self.send_stream(to, from, Delivery::StreamPong { seq_no, life });
                }
            }
            Delivery::StreamPong { seq_no, life } => {
                if self.hosts[to].life == life {
                    self.with(to, |swim, _, _| swim.stream_ping_done(seq_no, true));
                }
            }
            Delivery::Push {
                from,
                life,
                join,
                state,
            } => self.take_push(to, (from, life), join, &state),
            Delivery::Pull { life, join, state } => {
                if self.hosts[to].life == life {
                    self.merge(to, join, &state);
                }
            }
        }
    }

    fn resume(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if host.paused.is_none_or(|until| until > self.now) {
            return;
        }
        host.paused = None;
        let waiting = std::mem::take(&mut host.waiting);
        if self.rng.random() && self.hosts[index].swim.is_some() {
            self.tick(index);
        }
        for delivery in waiting {
            self.deliver(index, delivery);
        }
    }

    fn take_push(
        &mut self,
        to: usize,
        (from, life): (usize, u32),
        join: bool,
        state: &[PushNodeState],
    ) {
        if let Some(swim) = &self.hosts[to].swim {
            let answer = swim.local_state();
            let pull = Delivery::Pull {
                life,
                join,
                state: answer,
            };
            self.send_stream(to, from, pull);
            self.merge(to, join, state);
        }
    }

    fn merge(&mut self, index: usize, join: bool, state: &[PushNodeState]) {
        self.with(index, |swim, now, rng| {
            swim.merge_remote_state(now, join, state, rng).unwrap();
        });
        self.check_lives(index);
    }

    /// What is above in an agent: who is alone joins all addresses it knows, others look for one that failed.
    fn reconnect(&mut self, index: usize) {
        let host = &self.hosts[index];
        if host.swim.is_none() || host.paused.is_some() || host.leaving {
            return;
        }
        let alone = host.alive.len() == 1;
        let with = match alone {
            true => (0..self.hosts.len()).filter(|i| *i != index).collect(),
            false => host
                .failed
                .iter()
                .copied()
                .choose_multiple(&mut self.rng, 1),
        };
        for with in with {
            self.join(index, with);
        }
    }

    fn push_pull(&mut self, from: usize, to: usize, join: bool) {
        let host = &self.hosts[from];
        if let Some(swim) = &host.swim {
            let (life, state) = (host.life, swim.local_state());
            let push = Delivery::Push {
                from,
                life,
                join,
                state,
            };
            self.send_stream(from, to, push);
        }
    }

    fn delay(&mut self) -> Duration {
        self.net.delay.mul_f64(self.rng.random_range(0.1..1.0))
    }

    /// Streams lose nothing, but break while packets get lost at all.
    fn send_stream(&mut self, from: usize, to: usize, delivery: Delivery) {
        let (there, back) = ((from, to), (to, from));
        let cut = self.net.cut.contains(&there) || self.net.cut.contains(&back);
        if !cut && !self.rng.random_bool(self.net.loss / 2.0) {
            let after = self.delay() + self.delay();
            self.schedule(after, to, delivery);
        }
    }

    fn send_packet(&mut self, from: usize, to: usize, body: &[u8]) {
        self.packets += 1;
        if self.net.cut.contains(&(from, to)) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(self.net.duplicates));
        for _ in 0..copies {
            if !self.rng.random_bool(self.net.loss) {
                let after = self.delay();
                let body = body.to_vec();
                self.schedule(after, to, Delivery::Packet { from, body });
            }
        }
    }

    /// Does what a host wants, and asks when it is due next.
    fn settle(&mut self, index: usize) {
        while let Some(output) = self.hosts[index].swim.as_mut().and_then(Swim::poll_output) {
            match output {
                Output::Packet(packet) => {
                    assert!(packet.body.len() <= 1400, "{}", self.place());
                    self.send_packet(index, host_at(packet.to.address), &packet.body);
                }
                Output::StreamPing { to, ping, .. } => {
                    let life = self.hosts[index].life;
                    let from = index;
                    let ping = Delivery::StreamPing { from, life, ping };
                    self.send_stream(index, host_at(to.address), ping);
                }
                Output::PushPull { to } => self.push_pull(index, host_at(to.address), false),
                Output::Event(event) => self.note(index, event),
            }
        }
        let host = &mut self.hosts[index];
        host.deadline = host.swim.as_ref().and_then(Swim::next_deadline);
    }

    /// Joins and leaves of one node alternate, and a host is never its own enemy.
    fn note(&mut self, observer: usize, event: Event) {
        let place = self.place();
        let host = &mut self.hosts[observer];
        let (node, sight) = match event {
            Event::Join(node) => (node, Sight::Join),
            Event::Update(node) => (node, Sight::Update),
            Event::Leave(node) if node.state == NodeState::Left => (node, Sight::Left),
            Event::Leave(node) => (node, Sight::Dead),
            Event::Broadcast(FAREWELL) => {
                let life = host.life;
                self.schedule(Duration::from_secs(3), observer, Delivery::Stop { life });
                return;
            }
            Event::Pong { .. } => return,
            other => panic!("{place}: {other:?}"),
        };
        let subject = host_of(&node.name);
        let (fits, failed) = match sight {
            Sight::Join => (host.alive.insert(subject), false),
            Sight::Update => (host.alive.contains(&subject), false),
            Sight::Dead | Sight::Left => (host.alive.remove(&subject), sight == Sight::Dead),
        };
        assert!(fits, "{place}: n{observer} sees {sight:?} of n{subject}");
        let enemy = observer == subject && (failed || sight == Sight::Left);
        assert!(!enemy || host.leaving, "{place}: n{observer} buries itself");
        match failed {
            true => host.failed.insert(subject),
            false => host.failed.remove(&subject),
        };
        self.seen.push(Seen {
            at: self.now - self.start,
            observer,
            subject,
            sight,
        });
    }

    /// The number of a node's life never falls, in nobody's eyes, unless the node was forgotten in between.
    fn check_lives(&mut self, index: usize) {
        let place = self.place();
        let host = &mut self.hosts[index];
        let Some(swim) = &host.swim else {
            return;
        };
        for (subject, before) in host.lives.iter_mut().enumerate() {
            let known = swim.incarnation_of(&self.names[subject]);
            let back = known.is_some_and(|life| life < *before);
            assert!(
                !back,
                "{place}: n{subject} goes back to {known:?} for n{index}"
            );
            *before = known.unwrap_or_default();
        }
    }

    /// What still keeps hosts from agreeing, if anything.
    pub fn disagreement(&self) -> Option<String> {
        let running = self.running();
        for &observer in &running {
            let swim = self.hosts[observer].swim.as_ref()?;
            for (subject, host) in self.hosts.iter().enumerate() {
                let known = swim.node(&self.names[subject]);
                let fine = match &host.swim {
                    Some(truth) if !host.leaving => known.is_some_and(|node| {
                        let own = truth.node(&self.names[subject]).unwrap();
                        node.state == NodeState::Alive
                            && node.meta == own.meta
                            && swim.incarnation_of(&node.name) == Some(truth.incarnation())
                    }),
                    _ => known.is_none_or(|node| node.is_gone()),
                };
                if !fine {
                    return Some(format!("n{observer} takes n{subject} for {known:?}"));
                }
            }
            if swim.queue_len() > 0 {
                return Some(format!(
                    "n{observer} still has to tell {}",
                    swim.queue_len()
                ));
            }
        }
        None
    }
}
