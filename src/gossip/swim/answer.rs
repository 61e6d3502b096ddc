//! What is answered to the probes of others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use crate::gossip::Target;
use crate::gossip::swim::Swim;
use crate::gossip::wire::Message;
use crate::gossip::wire::NodeAddr;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::IndirectPing;
use crate::gossip::wire::message::Nack;
use crate::gossip::wire::message::Ping;
use crate::model::NodeName;

/// Most probes that wait for an answer for others: a flood of requests takes no more memory than this.
const MAX_RELAYS: usize = 1024;

/// Probes that we sent for others, by their number.
#[derive(Debug, Default)]
pub(super) struct Relays(BTreeMap<u32, Relay>);

#[derive(Debug)]
struct Relay {
    /// Who asked.
    to: Target,
    /// The number that it asked with.
    seq_no: u32,
    /// Whether it wants to hear that there was no answer.
    nack: bool,
    until: Instant,
}

impl Relays {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.values().map(|relay| relay.until).min()
    }
}

impl Swim {
    /// The answer to a probe that came over a stream; `None` when somebody else is meant.
    pub fn answer_stream_ping(&self, ping: &Ping) -> Option<Ack> {
        self.is_meant(ping).then(|| Ack {
            seq_no: ping.seq_no,
            ..Ack::default()
        })
    }

    fn is_meant(&self, ping: &Ping) -> bool {
        let meant = ping.node.is_empty() || ping.node == self.config.name;
        if !meant {
            tracing::warn!(
                "gossip: {} probes {} at our address: did this agent change its name?",
                ping.source_node,
                ping.node
            );
        }
        meant
    }

    pub(super) fn answer_ping(&mut self, from: SocketAddr, ping: Ping) {
        if !self.is_meant(&ping) {
            return;
        }
        let ack = Message::Ack(Ack {
            seq_no: ping.seq_no,
            payload: self.ack_payload.clone(),
        });
        let to = source(ping.source_node, ping.source_addr, ping.source_port, from);
        self.send(to, &ack, None);
    }

    pub(super) fn relay_ping(&mut self, now: Instant, from: SocketAddr, request: IndirectPing) {
        let Some(ip) = request.target.ip() else {
            return;
        };
        // Agents of the first protocol did not send ports.
        let port = match request.port {
            0 => self.config.advertise.port(),
            port => port,
        };
        if self.relays.0.len() >= MAX_RELAYS {
            tracing::debug!("gossip: too many probes for others: one is dropped");
            return;
        }
        let seq_no = self.next_seq_no();
        let IndirectPing {
            source_node,
            source_addr,
            source_port,
            ..
        } = request;
        let relay = Relay {
            to: source(source_node, source_addr, source_port, from),
            seq_no: request.seq_no,
            nack: request.nack,
            until: now + self.config.timing.probe_timeout,
        };
        self.relays.0.insert(seq_no, relay);
        let ping = Message::Ping(self.ping(seq_no, request.node.clone()));
        let target = Target {
            name: request.node,
            address: SocketAddr::new(ip, port),
        };
        self.send(target, &ping, None);
    }

    pub(super) fn relay_ack(&mut self, ack: &Ack) {
        if let Some(relay) = self.relays.0.remove(&ack.seq_no) {
            let answer = Message::Ack(Ack {
                seq_no: relay.seq_no,
                ..Ack::default()
            });
            self.send(relay.to, &answer, None);
        }
    }

    pub(super) fn expire_relays(&mut self, now: Instant) {
        let over = |_: &u32, relay: &mut Relay| now >= relay.until;
        let expired: Vec<_> = self.relays.0.extract_if(.., over).collect();
        for (_, relay) in expired.into_iter().filter(|(_, relay)| relay.nack) {
            let answer = Message::Nack(Nack {
                seq_no: relay.seq_no,
            });
            self.send(relay.to, &answer, None);
        }
    }
}

/// Where an answer goes: to the address that the sender gave, because with gateways the packet came from elsewhere.
fn source(name: NodeName, addr: NodeAddr, port: u16, from: SocketAddr) -> Target {
    let said = addr.ip().filter(|_| port > 0);
    Target {
        name,
        address: said.map_or(from, |ip| SocketAddr::new(ip, port)),
    }
}
