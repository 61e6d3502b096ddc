//! Who is there: memberlist's protocol (SWIM with Lifeguard), as Consul 1.8 sets it up. Pure: what comes in are opened
//! messages and the time, what goes out are [`Output`]s.
//!
//! ```text
//!   handle_message    packets that were opened          poll_output: packets to seal and send,
//!   merge_remote_state  streams                 Swim                 streams to open,
//!   tick              next_deadline has come                         events for serf
//!   update_meta, leave, queue_user ...
//! ```
//!
//! | file | what it decides |
//! | --- | --- |
//! | `probe` | who is asked whether it lives: directly, through others, over a stream |
//! | `answer` | what is answered to the probes of others |
//! | `state` | what news about a node means: alive, suspect, dead, left |
//! | `merge` | what the state of another node means as a whole |
//! | `spread` | what is told to whom |
//! | `suspicion`, `awareness` | how long a suspect may defend itself; how far we trust ourselves |
//! | `queue`, `members` | broadcasts that wait; nodes, and the order of probes |
//!
//! After each call, take all outputs and ask for the next deadline again.

mod answer;
mod awareness;
mod config;
mod members;
mod merge;
mod node;
mod output;
mod probe;
mod queue;
mod spread;
mod state;
mod suspicion;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use rand::Rng;
use rand::RngCore;

pub use config::Config;
pub use config::Filter;
pub use config::Timing;
pub use merge::MergeError;
pub use node::Node;
pub use output::Event;
pub use output::OutPacket;
pub use output::Output;
pub use output::Token;
pub use spread::UserQueue;

use crate::gossip::swim::answer::Relays;
use crate::gossip::swim::awareness::Awareness;
use crate::gossip::swim::members::Members;
use crate::gossip::swim::probe::Probe;
use crate::gossip::swim::spread::Queues;
use crate::gossip::swim::suspicion::Suspicion;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Message;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Alive;
use crate::model::NodeName;

/// One member of one pool.
#[derive(Debug)]
pub struct Swim {
    config: Config,
    members: Members,
    /// Our life. Raised to refute what others say of us, and to change our meta.
    incarnation: u32,
    awareness: Awareness,
    suspicions: BTreeMap<NodeName, Suspicion>,
    queues: Queues,
    /// The number of the last probe that was sent, for us or for others.
    seq_no: u32,
    probe: Option<Probe>,
    relays: Relays,
    ack_payload: Blob,
    left: bool,
    probe_at: Instant,
    gossip_at: Instant,
    push_pull_at: Instant,
    outputs: VecDeque<Output>,
}

impl Swim {
    /// A pool with one member: we. The first output is the event that we joined.
    pub fn new(config: Config, now: Instant, rng: &mut dyn RngCore) -> Self {
        let timing = config.timing;
        // A random start, so that agents that start together do not act together.
        let mut soon = |within: Duration| now + within.mul_f64(rng.random_range(0.0..1.0));
        let mut swim = Self {
            members: Members::default(),
            incarnation: 0,
            awareness: Awareness::new(timing.awareness_max_multiplier),
            suspicions: BTreeMap::new(),
            queues: Queues::default(),
            seq_no: 0,
            probe: None,
            relays: Relays::default(),
            ack_payload: Blob::default(),
            left: false,
            probe_at: soon(timing.probe_interval) + timing.probe_interval,
            gossip_at: soon(timing.gossip_interval),
            push_pull_at: soon(timing.push_pull_interval) + timing.push_pull_interval,
            outputs: VecDeque::new(),
            config,
        };
        let alive = swim.own_alive(swim.config.meta.clone());
        swim.accept(now, alive, None, rng);
        swim
    }

    /// What the pool is set up with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What we know of a node, until some time after its death.
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.members.get(name).map(|record| &record.node)
    }

    /// All nodes that we know, sorted by name: we too, and those that died or left not long ago.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.members.iter().map(|record| &record.node)
    }

    /// How many nodes we know: the size of the pool that timeouts and retransmissions are computed from.
    pub fn node_count(&self) -> usize {
        self.members.len()
    }

    /// Our own life: never falls while this agent runs.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// The latest life of a node that we know of.
    pub fn incarnation_of(&self, name: &NodeName) -> Option<u32> {
        self.members.get(name).map(|record| record.incarnation)
    }

    /// Whether there is somebody else.
    pub fn has_peers(&self) -> bool {
        self.nodes()
            .any(|node| !node.is_gone() && node.name != self.config.name)
    }

    /// Whether we have left the pool.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// 0 while we work well; rises when our probes fail for reasons that seem to be our own.
    pub fn health_score(&self) -> u32 {
        self.awareness.score()
    }

    /// Takes a message out of a packet that came from `from`.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: Message,
        rng: &mut dyn RngCore,
    ) {
        match message {
            Message::Ping(ping) => self.answer_ping(from, ping),
            Message::IndirectPing(request) => self.relay_ping(now, from, request),
            Message::Ack(ack) => self.take_ack(now, ack),
            Message::Nack(nack) => self.take_nack(nack),
            Message::Suspect(accusation) => self.suspect(now, accusation),
            Message::Alive(alive) => self.alive(now, alive, rng),
            Message::Dead(accusation) => self.dead(now, accusation, None),
            Message::User(message) => self.event(Event::User { from, message }),
        }
    }

    /// Does what is due. To be called when [`next_deadline`](Self::next_deadline) has come; at other times it does no
    /// harm.
    pub fn tick(&mut self, now: Instant, rng: &mut dyn RngCore) {
        self.forgive_pause(now);
        self.expire_relays(now);
        self.advance_probe(now, rng);
        self.expire_suspicions(now);
        if now >= self.push_pull_at {
            self.push_pull(now, rng);
        }
        if now >= self.gossip_at {
            self.gossip_at = next_tick(self.gossip_at, self.config.timing.gossip_interval, now);
            self.gossip(now, rng);
        }
    }

    /// When [`tick`](Self::tick) has to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let probe = match &self.probe {
            Some(probe) => probe.deadline(),
            None => self.probe_at,
        };
        // Who has nothing to say, or nobody to say it to, need not wake up for it.
        let talks = self.members.len() > 1 && !self.queues.is_empty();
        let gossip = talks.then_some(self.gossip_at);
        let suspicion = self.suspicions.values().map(Suspicion::deadline).min();
        [probe, self.push_pull_at]
            .into_iter()
            .chain(gossip)
            .chain(suspicion)
            .chain(self.relays.deadline())
            .min()
    }

    /// What shall be done next. To be asked after each call, until there is nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Changes what we say about ourselves. `done` comes as an event once that was sent often enough, at once if there
    /// is nobody to send it to.
    pub fn update_meta(
        &mut self,
        now: Instant,
        meta: Blob,
        done: Option<Token>,
        rng: &mut dyn RngCore,
    ) {
        if self.left {
            self.finish(done);
            return;
        }
        let alive = self.own_alive(meta);
        self.accept(now, alive, done, rng);
        self.finish_if_alone(done);
    }

    /// Tells everybody that we leave. `done` comes as an event once that was sent often enough, at once if there is
    /// nobody to send it to. The agent shall run until then, and may run longer: it answers, but nobody counts on it.
    pub fn leave(&mut self, now: Instant, done: Option<Token>) {
        if self.left {
            self.finish(done);
            return;
        }
        self.left = true;
        let farewell = Accusation {
            incarnation: self.incarnation,
            node: self.config.name.clone(),
            from: self.config.name.clone(),
        };
        self.dead(now, farewell, done);
        self.finish_if_alone(done);
    }

    /// What the next answers to probes carry: from serf, an encoded coordinate.
    pub fn set_ack_payload(&mut self, payload: Bytes) {
        self.ack_payload = Blob(payload);
    }

    /// Changes how many bytes the messages of a packet may take, because the pool begins or ends to encrypt.
    pub fn set_packet_room(&mut self, bytes: usize) {
        self.config.packet_room = bytes;
    }

    /// A new life of ours.
    fn own_alive(&mut self, meta: Blob) -> Alive {
        self.incarnation = self.incarnation.saturating_add(1);
        Alive {
            incarnation: self.incarnation,
            node: self.config.name.clone(),
            addr: self.config.advertise.ip().into(),
            port: self.config.advertise.port(),
            meta,
            vsn: self.config.versions,
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn finish(&mut self, tokens: impl IntoIterator<Item = Token>) {
        for token in tokens {
            self.event(Event::Broadcast(token));
        }
    }

    fn finish_if_alone(&mut self, done: Option<Token>) {
        if !self.has_peers() && self.queues.forget(done) {
            self.finish(done);
        }
    }

    /// If we did not run for longer than an answer may take, nobody was able to defend itself to us meanwhile: all their
    /// deadlines move. memberlist would take many for dead at once.
    fn forgive_pause(&mut self, now: Instant) {
        let due = match &self.probe {
            Some(probe) => probe.deadline(),
            None => self.probe_at,
        };
        let late = now.saturating_duration_since(due);
        if late <= self.config.timing.probe_timeout {
            return;
        }
        tracing::warn!("gossip: this agent did not run for {late:?}; waits longer for others");
        for suspicion in self.suspicions.values_mut() {
            suspicion.postpone(late);
        }
        if let Some(probe) = &mut self.probe {
            probe.postpone(late);
        }
    }
}

/// The first tick after `now` of a clock that ticked at `last`.
fn next_tick(last: Instant, interval: Duration, now: Instant) -> Instant {
    let behind = now.saturating_duration_since(last).as_nanos();
    let Some(missed) = behind.checked_div(interval.as_nanos()) else {
        return now; // An interval of zero.
    };
    last + interval.saturating_mul(u32::try_from(missed).unwrap_or(u32::MAX).saturating_add(1))
}

#[cfg(test)]
mod tests;
