//! What is on its way between hosts.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use crossway::gossip::serf::Exchange;
use crossway::gossip::wire::Incoming;
use crossway::gossip::wire::Message;
use crossway::gossip::wire::message::Ping;
use crossway::gossip::wire::packet;
use crossway::gossip::wire::stream::PushPull;
use rand::Rng;

use crate::gossip_sim::world::World;

/// Something that arrives, or that a host does later. What is for one life of a host does not reach the next.
#[derive(Debug)]
pub(super) enum Delivery {
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
        life: u32,
        seq_no: u32,
    },
    /// The first half of an exchange of states, and what the sender has it for.
    Push {
        from: usize,
        life: u32,
        exchange: Exchange,
        state: PushPull,
    },
    /// The second.
    Pull {
        life: u32,
        exchange: Exchange,
        state: PushPull,
    },
    RetryJoin,
    Resume,
}

pub(super) struct Entry {
    pub(super) at: Instant,
    pub(super) id: u64,
    pub(super) to: usize,
    pub(super) delivery: Delivery,
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

pub(super) fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8 + 1], 8301))
}

pub(super) fn host_at(address: SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        IpAddr::V6(_) => panic!("nobody has an IPv6 address"),
    }
}

impl World {
    pub(super) fn deliver(&mut self, to: usize, delivery: Delivery) {
        let current = self.hosts[to].life;
        match delivery {
            Delivery::Resume => self.resume(to),
            Delivery::RetryJoin => {
                self.retry_join(to);
                self.schedule_retry(to);
            }
            _ if self.hosts[to].paused.is_some() => self.hosts[to].waiting.push(delivery),
            Delivery::Packet { from, body } => self.take_packet(to, from, &body),
            Delivery::StreamPing { from, life, ping } => {
                let serf = self.hosts[to].serf.as_ref();
                if let Some(ack) = serf.and_then(|serf| serf.answer_stream_ping(&ping)) {
                    let seq_no = ack.seq_no;
                    self.send_stream(to, from, Delivery::StreamPong { life, seq_no });
                }
            }
            Delivery::StreamPong { life, seq_no } if life == current => {
                self.with(to, |serf, _, _| serf.stream_ping_done(seq_no, true));
            }
            Delivery::Push {
                from,
                life,
                exchange,
                state,
            } => self.take_push(to, (from, life), exchange, &state),
            Delivery::Pull {
                life,
                exchange,
                state,
            } if life == current => {
                self.merge(to, exchange, &state);
                if matches!(exchange, Exchange::Join { .. }) {
                    self.with(to, |serf, now, rng| serf.joined(now, rng));
                }
            }
            Delivery::StreamPong { .. } | Delivery::Pull { .. } => {}
        }
    }

    fn take_packet(&mut self, to: usize, from: usize, body: &[u8]) {
        let packet = packet::open(body, &Incoming::default()).unwrap();
        let place = self.place();
        assert_eq!(packet.skipped, 0, "{place}: {:?}", packet.first_error);
        let news = |message: &Message| {
            matches!(
                message,
                Message::Alive(_) | Message::Suspect(_) | Message::Dead(_)
            )
        };
        let news = packet.messages.iter().any(news);
        for message in packet.messages {
            self.with(to, |serf, now, rng| {
                serf.handle_message(now, address(from), message, rng);
            });
        }
        if news {
            self.check_lives(to);
        }
    }

    fn take_push(
        &mut self,
        to: usize,
        (from, life): (usize, u32),
        exchange: Exchange,
        state: &PushPull,
    ) {
        if let Some(serf) = &self.hosts[to].serf {
            let theirs = Exchange::asked(state);
            let state_before = serf.local_state(theirs);
            let pull = Delivery::Pull {
                life,
                exchange,
                state: state_before,
            };
            self.send_stream(to, from, pull);
            self.merge(to, theirs, state);
        }
    }

    fn merge(&mut self, index: usize, exchange: Exchange, state: &PushPull) {
        self.with(index, |serf, now, rng| {
            serf.merge_remote_state(now, exchange, state, rng).unwrap();
        });
        self.check_lives(index);
    }

    pub(super) fn exchange(&mut self, from: usize, to: usize, exchange: Exchange) {
        let host = &self.hosts[from];
        if let Some(serf) = &host.serf {
            let (life, state) = (host.life, serf.local_state(exchange));
            let push = Delivery::Push {
                from,
                life,
                exchange,
                state,
            };
            self.send_stream(from, to, push);
        }
    }

    fn delay(&mut self) -> Duration {
        self.net.delay.mul_f64(self.rng.random_range(0.1..1.0))
    }

    pub(super) fn send_stream(&mut self, from: usize, to: usize, delivery: Delivery) {
        let (there, back) = ((from, to), (to, from));
        let cut = self.net.cut.contains(&there) || self.net.cut.contains(&back);
        if !cut && !self.rng.random_bool(self.net.loss / 2.0) {
            let after = self.delay() + self.delay();
            self.schedule(after, to, delivery);
        }
    }

    pub(super) fn send_packet(&mut self, from: usize, to: usize, body: &[u8]) {
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
}
