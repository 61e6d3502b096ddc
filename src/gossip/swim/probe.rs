//! Whether others live: one probe at a time, in a random order in which everybody has a turn.

use std::time::Duration;
use std::time::Instant;

use rand::RngCore;

use crate::gossip::swim::Event;
use crate::gossip::swim::Output;
use crate::gossip::swim::Swim;
use crate::gossip::swim::next_tick;
use crate::gossip::wire::Message;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::IndirectPing;
use crate::gossip::wire::message::Nack;
use crate::gossip::wire::message::Ping;
use crate::gossip::wire::stream::NodeState;
use crate::model::NodeName;

/// Lowest protocol whose agents say that there was no answer.
const NACK_PROTOCOL: u8 = 4;
/// Lowest protocol whose agents answer probes on streams.
const STREAM_PING_PROTOCOL: u8 = 3;

/// A probe that waits for its answer.
#[derive(Debug)]
pub(super) struct Probe {
    seq_no: u32,
    node: NodeName,
    /// The life of the node when the probe was sent: what it will be accused in.
    incarnation: u32,
    sent: Instant,
    /// When others are asked; `None` once they are.
    direct_until: Option<Instant>,
    until: Instant,
    expected_nacks: u32,
    nacks: u32,
    stream_answered: bool,
}

impl Probe {
    pub(super) fn deadline(&self) -> Instant {
        self.direct_until.unwrap_or(self.until).min(self.until)
    }

    /// Gives back time in which we did not run.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.until += by;
        self.direct_until = self.direct_until.map(|until| until + by);
    }
}

impl Swim {
    /// Says that a packet with this probe could not be sent because of the remote end, such as a refused connection.
    /// Others are asked at once.
    pub fn probe_not_sent(&mut self, seq_no: u32, rng: &mut dyn RngCore) {
        let current = self.probe.as_ref();
        if current.is_some_and(|p| p.seq_no == seq_no && p.direct_until.is_some()) {
            self.ask_others(rng);
        }
    }

    /// Says whether the node answered over a stream.
    pub fn stream_ping_done(&mut self, seq_no: u32, answered: bool) {
        if let Some(probe) = self.probe.as_mut().filter(|p| p.seq_no == seq_no) {
            probe.stream_answered |= answered;
        }
    }

    pub(super) fn next_seq_no(&mut self) -> u32 {
        self.seq_no = self.seq_no.wrapping_add(1);
        self.seq_no
    }

    /// Takes the current probe further, and starts the next when it is due.
    pub(super) fn advance_probe(&mut self, now: Instant, rng: &mut dyn RngCore) {
        if let Some(probe) = &self.probe {
            if now >= probe.until {
                self.probe_failed(now);
            } else if probe.direct_until.is_some_and(|until| now >= until) {
                tracing::debug!("gossip: {} did not answer in time", probe.node);
                self.ask_others(rng);
            }
        }
        // A probe that takes longer than the interval delays the next, which then starts at once.
        if self.probe.is_none() && now >= self.probe_at {
            self.probe_at = next_tick(self.probe_at, self.config.timing.probe_interval, now);
            self.start_probe(now, rng);
        }
    }

    fn start_probe(&mut self, now: Instant, rng: &mut dyn RngCore) {
        let timing = self.config.timing;
        let keep = timing.gossip_to_the_dead_time;
        let next = self.members.next_probe(&self.config.name, (now, keep), rng);
        let Some(record) = next.and_then(|name| self.members.get(&name)) else {
            return;
        };
        let (node, incarnation) = (record.node.clone(), record.incarnation);
        let Some(target) = node.target() else {
            return;
        };
        let seq_no = self.next_seq_no();
        self.probe = Some(Probe {
            seq_no,
            node: node.name.clone(),
            incarnation,
            sent: now,
            direct_until: Some(now + timing.probe_timeout),
            until: now + self.awareness.scale(timing.probe_interval),
            expected_nacks: 0,
            nacks: 0,
            stream_answered: false,
        });
        let ping = Message::Ping(self.ping(seq_no, node.name.clone()));
        if node.state == NodeState::Alive {
            self.send(target, &ping, Some(seq_no));
        } else {
            // A suspect shall hear of it at once, to refute.
            let suspect = Message::Suspect(self.accusation(node.name, incarnation));
            self.send_exactly(target, &[ping, suspect], Some(seq_no));
        }
    }

    pub(super) fn ping(&self, seq_no: u32, node: NodeName) -> Ping {
        Ping {
            seq_no,
            node,
            source_addr: self.config.advertise.ip().into(),
            source_port: self.config.advertise.port(),
            source_node: self.config.name.clone(),
        }
    }

    pub(super) fn accusation(&self, node: NodeName, incarnation: u32) -> Accusation {
        Accusation {
            incarnation,
            node,
            from: self.config.name.clone(),
        }
    }

    /// Asks some members to probe the node, and asks itself over a stream.
    fn ask_others(&mut self, rng: &mut dyn RngCore) {
        let own = &self.config.name;
        let Some(probe) = &mut self.probe else { return };
        probe.direct_until = None;
        let Some(record) = self.members.get(&probe.node) else {
            return;
        };
        let (node, seq_no, deadline) = (record.node.clone(), probe.seq_no, probe.until);
        let helpers = self.config.timing.indirect_checks;
        let helpers = self.members.random(helpers, rng, |record| {
            let name = &record.node.name;
            name == own || *name == node.name || record.node.state != NodeState::Alive
        });
        let helpers: Vec<_> = helpers.into_iter().map(|r| r.node.clone()).collect();
        for helper in helpers {
            let nack = helper.versions.protocol_max >= NACK_PROTOCOL;
            if let Some(probe) = self.probe.as_mut().filter(|_| nack) {
                probe.expected_nacks += 1;
            }
            let request = Message::IndirectPing(IndirectPing {
                seq_no,
                target: node.addr,
                port: node.port,
                node: node.name.clone(),
                nack,
                source_addr: self.config.advertise.ip().into(),
                source_port: self.config.advertise.port(),
                source_node: self.config.name.clone(),
            });
            if let Some(to) = helper.target() {
                self.send(to, &request, None);
            }
        }
        let to = node.target();
        if let Some(to) = to.filter(|_| node.versions.protocol_max >= STREAM_PING_PROTOCOL) {
            let ping = self.ping(seq_no, node.name);
            self.outputs
                .push_back(Output::StreamPing { to, ping, deadline });
        }
    }

    /// An answer: to our probe, or to one that we sent for another.
    pub(super) fn take_ack(&mut self, now: Instant, ack: Ack) {
        let Some(probe) = self.probe.take_if(|probe| probe.seq_no == ack.seq_no) else {
            self.relay_ack(&ack);
            return;
        };
        self.awareness.improve();
        self.probe_at = self.probe_at.max(now);
        let record = self.members.get(&probe.node);
        // What comes late, or through others, says nothing about the way.
        if let Some(record) = record.filter(|_| probe.direct_until.is_some()) {
            let node = record.node.clone();
            self.event(Event::Pong {
                node,
                rtt: now.saturating_duration_since(probe.sent),
                payload: ack.payload.0,
            });
        }
    }

    pub(super) fn take_nack(&mut self, nack: Nack) {
        if let Some(probe) = self.probe.as_mut().filter(|p| p.seq_no == nack.seq_no) {
            probe.nacks = (probe.nacks + 1).min(probe.expected_nacks);
        }
    }

    fn probe_failed(&mut self, now: Instant) {
        let Some(probe) = self.probe.take() else {
            return;
        };
        let name = &probe.node;
        if probe.stream_answered {
            tracing::warn!(
                "gossip: {name} answers on streams but not to packets: does the network let UDP through?"
            );
            self.awareness.improve();
            return;
        }
        // Helpers that do not even say that there was no answer: the fault may be ours.
        match probe.expected_nacks {
            0 => self.awareness.worsen(1),
            expected => self.awareness.worsen(expected - probe.nacks),
        }
        tracing::info!("gossip: suspect that {name} has failed, it did not answer");
        let accusation = self.accusation(probe.node, probe.incarnation);
        self.suspect(now, accusation);
    }
}
