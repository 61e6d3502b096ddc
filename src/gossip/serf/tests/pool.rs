//! Members of one pool in one process: virtual time, a network that can be cut, and no I/O.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::collections::BinaryHeap;

use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::time::Duration;

use crate::gossip::Target;
use crate::gossip::serf::*;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::packet;

/// How long a packet travels at most.
const DELAY: Duration = Duration::from_millis(8);

/// A packet on its way: where from and to, and its bytes.
type Flight = Reverse<(Instant, u64, usize, usize, Vec<u8>)>;

/// One host, whose agent runs or does not.
pub(in crate::gossip::serf) struct Host {
    pub(in crate::gossip::serf) serf: Option<Serf>,
    pub(in crate::gossip::serf) config: Config,
    /// Everything that the agent told, but for what travels.
    pub(in crate::gossip::serf) told: Vec<Output>,
    /// Its snapshot file.
    pub(in crate::gossip::serf) file: String,
    /// Why its keys cannot be saved.
    pub(in crate::gossip::serf) disk_fault: Option<String>,
    deadline: Option<Instant>,
}

pub(in crate::gossip::serf) struct Pool {
    pub(in crate::gossip::serf) now: Instant,
    pub(in crate::gossip::serf) rng: StdRng,
    pub(in crate::gossip::serf) hosts: Vec<Host>,
    /// Pairs of hosts between which nothing passes, packets or streams.
    pub(in crate::gossip::serf) cut: BTreeSet<(usize, usize)>,
    /// Share of packets that are lost.
    pub(in crate::gossip::serf) loss: f64,
    flights: BinaryHeap<Flight>,
    flown: u64,
    /// Ticks at the present time: they must come to an end.
    ticks_now: u32,
}

pub(in crate::gossip::serf) fn name(host: usize) -> NodeName {
    format!("n{host}").into()
}

pub(in crate::gossip::serf) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 8301))
}

fn host_at(address: SocketAddr) -> usize {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        other => panic!("{other}"),
    }
}

pub(in crate::gossip::serf) fn config(host: usize) -> Config {
    let tags = Tags::from_iter([("role", "consul"), ("id", &*host.to_string())]);
    Config::new(swim::Config::new(name(host), address(host)), tags)
}

impl Pool {
    /// Hosts whose agents do not run yet.
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    pub(in crate::gossip::serf) fn new(seed: u64, hosts: usize) -> Self {
        let host = |host| Host {
            serf: None,
            config: config(host),
            told: Vec::new(),
            file: String::new(),
            disk_fault: None,
            deadline: None,
        };
        Self {
            now: Instant::now(),
            ticks_now: 0,
            rng: StdRng::seed_from_u64(seed),
            hosts: (0..hosts).map(host).collect(),
            cut: BTreeSet::new(),
            loss: 0.0,
            flights: BinaryHeap::new(),
            flown: 0,
        }
    }

    /// Members that all know each other.
    pub(in crate::gossip::serf) fn joined(hosts: usize) -> Self {
        let mut pool = Self::new(1, hosts);
        pool.assemble();
        pool
    }

    /// Starts all agents, has all join the first one, and waits until all know each other.
    pub(in crate::gossip::serf) fn assemble(&mut self) {
        for host in 0..self.hosts.len() {
            self.start(host);
            if host > 0 {
                assert!(self.join(host, 0));
            }
        }
        let all = self.hosts.len();
        self.until("all know each other", |pool| {
            (0..all).all(|host| pool.serf(host).members().count() == all)
        });
        self.run(Duration::from_secs(3));
        for host in &mut self.hosts {
            host.told.clear();
        }
    }

    pub(in crate::gossip::serf) fn serf(&self, host: usize) -> &Serf {
        self.hosts[host].serf.as_ref().expect("the agent runs")
    }

    pub(in crate::gossip::serf) fn running(&self) -> Vec<usize> {
        let hosts = self.hosts.iter().enumerate();
        let running = hosts.filter(|(_, host)| host.serf.is_some());
        running.map(|(index, _)| index).collect()
    }

    /// Starts an agent, from its snapshot file if it keeps one.
    pub(in crate::gossip::serf) fn start(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        let mut config = host.config.clone();
        let file = host.file.as_bytes();
        if config.snapshot.is_some() {
            config.snapshot = Some(Snapshot::read(file, config.rejoin_after_leave));
        }
        host.serf = Some(Serf::new(config, self.now, &mut self.rng).unwrap());
        self.settle(index);
    }

    /// Stops an agent without a word.
    pub(in crate::gossip::serf) fn crash(&mut self, index: usize) {
        self.hosts[index].serf = None;
        self.hosts[index].deadline = None;
    }

    /// Does something with an agent, and what comes of it.
    pub(in crate::gossip::serf) fn with<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Serf, Instant, &mut StdRng) -> T,
    ) -> T {
        let serf = self.hosts[index].serf.as_mut().expect("the agent runs");
        let result = act(serf, self.now, &mut self.rng);
        self.settle(index);
        result
    }

    pub(in crate::gossip::serf) fn separate(&mut self, a: usize, b: usize) {
        self.cut.insert((a.min(b), a.max(b)));
    }

    fn apart(&self, a: usize, b: usize) -> bool {
        self.cut.contains(&(a.min(b), a.max(b)))
    }

    /// Joins as Consul does: the past does not count.
    pub(in crate::gossip::serf) fn join(&mut self, host: usize, with: usize) -> bool {
        let met = self.exchange(host, with, Exchange::Join { ignore_old: true });
        if met {
            self.with(host, |serf, now, rng| serf.joined(now, rng));
        }
        met
    }

    /// Exchanges states over a stream, if there is a way and both run.
    pub(in crate::gossip::serf) fn exchange(
        &mut self,
        from: usize,
        to: usize,
        why: Exchange,
    ) -> bool {
        let both = self.hosts[from].serf.is_some() && self.hosts[to].serf.is_some();
        if !both || from == to || self.apart(from, to) {
            return false;
        }
        let sent = self.serf(from).local_state(why);
        let other = Exchange::asked(&sent);
        let answer = self.serf(to).local_state(other);
        self.with(to, |s, now, rng| {
            s.merge_remote_state(now, other, &sent, rng)
        })
        .unwrap();
        self.with(from, |s, now, rng| {
            s.merge_remote_state(now, why, &answer, rng)
        })
        .unwrap();
        true
    }

    /// Lets time pass.
    pub(in crate::gossip::serf) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let flight = self.flights.peek().map(|Reverse((at, ..))| *at);
            let ticks = self.hosts.iter().enumerate();
            let ticks = ticks.filter_map(|(i, host)| Some((host.deadline?, i)));
            let tick = ticks.min();
            let next = flight.into_iter().chain(tick.map(|(at, _)| at)).min();
            let Some(next) = next.filter(|at| *at <= end) else {
                break;
            };
            if next > self.now {
                self.now = next;
                self.ticks_now = 0;
            }
            match tick.filter(|(at, _)| *at <= next) {
                Some((_, host)) => {
                    self.with(host, |serf, now, rng| serf.tick(now, rng));
                    self.ticks_now += 1;
                    assert!(self.ticks_now < 1000, "ticks do not do what is due");
                }
                None => self.land(),
            }
        }
        self.now = end;
    }

    /// Lets time pass until something is so; that must not take long.
    pub(in crate::gossip::serf) fn until(
        &mut self,
        what: &str,
        so: impl Fn(&Self) -> bool,
    ) -> Duration {
        let start = self.now;
        while !so(self) {
            assert!(self.now - start < Duration::from_secs(400), "never: {what}");
            self.run(Duration::from_millis(50));
        }
        self.now - start
    }

    fn land(&mut self) {
        let Some(Reverse((_, _, from, to, body))) = self.flights.pop() else {
            return;
        };
        if self.hosts[to].serf.is_none() || self.apart(from, to) {
            return;
        }
        let packet = packet::open(&body, &Incoming::default()).unwrap();
        assert_eq!(packet.skipped, 0, "{:?}", packet.first_error);
        for message in packet.messages {
            self.with(to, |serf, now, rng| {
                serf.handle_message(now, address(from), message, rng);
            });
        }
    }

    /// Does what an agent wants, and asks when it is due next.
    fn settle(&mut self, index: usize) {
        while let Some(output) = self.hosts[index].serf.as_mut().and_then(Serf::poll_output) {
            match output {
                Output::Packet(packet) => {
                    if self.rng.random_bool(1.0 - self.loss) {
                        let after = DELAY.mul_f64(self.rng.random_range(0.1..1.0));
                        let to = host_at(packet.to.address);
                        self.flown += 1;
                        let flight = (self.now + after, self.flown, index, to, packet.body);
                        self.flights.push(Reverse(flight));
                    }
                }
                Output::StreamPing { to, ping, .. } => {
                    let to = host_at(to.address);
                    let reached = !self.apart(index, to);
                    let other = self.hosts[to].serf.as_ref().filter(|_| reached);
                    let ack = other.and_then(|serf| serf.answer_stream_ping(&ping));
                    let serf = self.hosts[index].serf.as_mut().unwrap();
                    serf.stream_ping_done(ping.seq_no, ack.is_some());
                }
                Output::PushPull { to } => {
                    self.exchange(index, host_at(to.address), Exchange::Regular);
                }
                Output::Reconnect { to } => {
                    self.exchange(index, host_at(to.address), Exchange::Meet);
                    self.hosts[index].told.push(Output::Reconnect { to });
                }
                Output::Rejoin { to } => self.rejoin(index, to),
                Output::SaveKeyring { token, .. } => {
                    let saved = self.hosts[index].disk_fault.clone().map_or(Ok(()), Err);
                    let (now, rng) = (self.now, &mut self.rng);
                    let serf = self.hosts[index].serf.as_mut().unwrap();
                    serf.keyring_saved(now, token, saved, rng);
                }
                Output::Snapshot(Write::Append(text)) => self.hosts[index].file.push_str(&text),
                Output::Snapshot(Write::Replace(text)) => self.hosts[index].file = text,
                other => self.hosts[index].told.push(other),
            }
        }
        let host = &mut self.hosts[index];
        host.deadline = host.serf.as_ref().and_then(Serf::next_deadline);
    }

    fn rejoin(&mut self, index: usize, to: Vec<Target>) {
        let mut to = to.into_iter().map(|target| host_at(target.address));
        if to.any(|host| self.exchange(index, host, Exchange::Meet)) {
            self.with(index, |serf, now, rng| serf.joined(now, rng));
        }
    }

    /// What an agent takes a host for; `None` if it does not know it.
    pub(in crate::gossip::serf) fn status(
        &self,
        observer: usize,
        host: usize,
    ) -> Option<MemberStatus> {
        let member = self.serf(observer).member(&name(host));
        member.map(|member| member.status)
    }

    /// Whether all agents that run, but for the host itself, take it for this.
    pub(in crate::gossip::serf) fn all_see(
        &self,
        host: usize,
        status: Option<MemberStatus>,
    ) -> bool {
        let observers = self.running().into_iter().filter(|o| *o != host);
        let mut statuses = observers.map(|observer| self.status(observer, host));
        statuses.all(|seen| seen == status)
    }

    /// What an agent told about what became of a host.
    pub(in crate::gossip::serf) fn changes(
        &self,
        observer: usize,
        host: usize,
    ) -> Vec<MemberChange> {
        let told = self.hosts[observer].told.iter();
        let changes = told.filter_map(|output| match output {
            Output::Member(change, member) if member.name == name(host) => Some(*change),
            _ => None,
        });
        changes.collect()
    }
}
