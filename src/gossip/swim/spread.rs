//! What is told to whom.

use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::Target;
use crate::gossip::swim::OutPacket;
use crate::gossip::swim::Output;
use crate::gossip::swim::Swim;
use crate::gossip::swim::Token;
use crate::gossip::swim::queue;
use crate::gossip::swim::queue::Broadcast;
use crate::gossip::swim::queue::Queue;
use crate::gossip::swim::queue::Room;
use crate::gossip::wire::Message;
use crate::gossip::wire::message::Kind;
use crate::gossip::wire::packet;
use crate::gossip::wire::packet::COMPOUND_OVERHEAD;
use crate::gossip::wire::packet::MAX_PARTS;
use crate::gossip::wire::stream::NodeState;
use crate::model::NodeName;

/// Pools of up to so many nodes exchange states at the full rate.
const PUSH_PULL_NODES: u32 = 32;

/// The broadcasts of the layer above, in the order in which they are sent. memberlist's own come before all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserQueue {
    /// serf: who joins and leaves.
    Intents,
    /// serf: queries.
    Queries,
    /// serf: user events.
    Events,
}

/// All broadcasts.
#[derive(Debug, Default)]
pub(super) struct Queues {
    own: Queue,
    intents: Queue,
    queries: Queue,
    events: Queue,
}

impl Queues {
    pub(super) fn is_empty(&self) -> bool {
        let Self {
            own,
            intents,
            queries,
            events,
        } = self;
        [own, intents, queries, events].iter().all(|q| q.is_empty())
    }

    fn user(&self, queue: UserQueue) -> &Queue {
        match queue {
            UserQueue::Intents => &self.intents,
            UserQueue::Queries => &self.queries,
            UserQueue::Events => &self.events,
        }
    }

    fn user_mut(&mut self, queue: UserQueue) -> &mut Queue {
        match queue {
            UserQueue::Intents => &mut self.intents,
            UserQueue::Queries => &mut self.queries,
            UserQueue::Events => &mut self.events,
        }
    }

    /// Nobody waits for this broadcast any more. Says whether somebody did.
    pub(super) fn forget(&mut self, done: Option<Token>) -> bool {
        done.is_some_and(|token| self.own.forget(token))
    }
}

impl Swim {
    /// Tells everybody a message of the layer above. `done` comes as an event once it was sent often enough.
    pub fn queue_user(&mut self, queue: UserQueue, message: &[u8], done: Option<Token>) {
        let framed = framed(message);
        self.queue(Some(queue), None, framed, done);
    }

    /// How many broadcasts of the layer above wait.
    pub fn user_queue_len(&self, queue: UserQueue) -> usize {
        self.queues.user(queue).len()
    }

    /// How many of our own broadcasts wait: news about nodes.
    pub fn queue_len(&self) -> usize {
        self.queues.own.len()
    }

    /// Drops the broadcasts of the layer above that were sent most often, until `max` are left.
    pub fn prune_user_queue(&mut self, queue: UserQueue, max: usize) {
        let mut finished = Vec::new();
        self.queues.user_mut(queue).prune(max, &mut finished);
        self.finish(finished);
    }

    /// Sends a message of the layer above to one node, in a packet of its own.
    pub fn send_user(&mut self, to: Target, message: &[u8]) {
        self.push_packet(to, &[framed(message)], None);
    }

    /// Tells everybody news about a node, instead of what waits about it.
    pub(super) fn broadcast(&mut self, about: &NodeName, message: &Message, done: Option<Token>) {
        match message.encode() {
            Ok(bytes) => self.queue(None, Some(about.clone()), bytes.into(), done),
            Err(error) => {
                tracing::error!("gossip: news about {about} cannot be sent: {error}");
                self.finish(done);
            }
        }
    }

    fn queue(
        &mut self,
        queue: Option<UserQueue>,
        about: Option<NodeName>,
        message: Bytes,
        done: Option<Token>,
    ) {
        let (head, part) = COMPOUND_OVERHEAD;
        if message.len() + head + part > self.config.packet_room {
            // It would wait for ever.
            tracing::error!(
                "gossip: a broadcast of {} bytes fits no packet",
                message.len()
            );
            self.finish(done);
            return;
        }
        let mut finished = Vec::new();
        let broadcast = Broadcast {
            about,
            message,
            done,
        };
        match queue {
            Some(queue) => self.queues.user_mut(queue),
            None => &mut self.queues.own,
        }
        .push(broadcast, &mut finished);
        self.finish(finished);
    }

    /// Sends a message, and with it what waits to be told and fits.
    pub(super) fn send(&mut self, to: Target, message: &Message, probe: Option<u32>) {
        let message = match message.encode() {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => {
                tracing::error!("gossip: a message to {to} cannot be sent: {error}");
                return;
            }
        };
        let (head, part) = COMPOUND_OVERHEAD;
        let used = head + part + message.len();
        let room = self.config.packet_room.saturating_sub(used);
        let mut parts = vec![message];
        parts.extend(self.waiting(room, MAX_PARTS - 1));
        self.push_packet(to, &parts, probe);
    }

    /// Sends these messages, and nothing with them.
    pub(super) fn send_exactly(&mut self, to: Target, messages: &[Message], probe: Option<u32>) {
        let parts: Result<Vec<_>, _> = messages.iter().map(Message::encode).collect();
        match parts {
            Ok(parts) => self.push_packet(to, &parts, probe),
            Err(error) => tracing::error!("gossip: a message to {to} cannot be sent: {error}"),
        }
    }

    fn push_packet<P: AsRef<[u8]>>(&mut self, to: Target, parts: &[P], probe: Option<u32>) {
        if self.config.require_node_names && to.name.is_empty() {
            tracing::debug!("gossip: a packet to {to} is dropped: the name of the node is needed");
            return;
        }
        let checksum = self
            .node(&to.name)
            .is_some_and(|node| node.versions.understands_checksum());
        match packet::compound(parts) {
            Ok(body) => self.outputs.push_back(Output::Packet(OutPacket {
                to,
                body,
                checksum,
                probe,
            })),
            Err(error) => tracing::error!("gossip: a packet to {to} cannot be sent: {error}"),
        }
    }

    /// What waits to be told and fits.
    fn waiting(&mut self, bytes: usize, parts: usize) -> Vec<Bytes> {
        let limit = queue::transmit_limit(self.config.timing.retransmit_mult, self.members.len());
        let mut room = Room {
            bytes,
            overhead: COMPOUND_OVERHEAD.1,
            parts,
        };
        let mut finished = Vec::new();
        let queues = &mut self.queues;
        let mut taken = Vec::new();
        for queue in [
            &mut queues.own,
            &mut queues.intents,
            &mut queues.queries,
            &mut queues.events,
        ] {
            taken.extend(queue.take(&mut room, limit, &mut finished));
        }
        self.finish(finished);
        taken
    }

    /// Tells some nodes what waits: also those that died lately, because they may be alive after all.
    pub(super) fn gossip(&mut self, now: Instant, rng: &mut dyn RngCore) {
        let timing = self.config.timing;
        let own = &self.config.name;
        let chosen = self.members.random(timing.gossip_nodes, rng, |record| {
            let gone_for = now.saturating_duration_since(record.changed);
            match record.node.state {
                _ if record.node.name == *own => true,
                NodeState::Alive | NodeState::Suspect => false,
                NodeState::Dead => gone_for > timing.gossip_to_the_dead_time,
                NodeState::Left | NodeState::Other(_) => true,
            }
        });
        let targets: Vec<_> = chosen.iter().filter_map(|r| r.node.target()).collect();
        for target in targets {
            let room = self.config.packet_room.saturating_sub(COMPOUND_OVERHEAD.0);
            let parts = self.waiting(room, MAX_PARTS);
            if parts.is_empty() {
                return;
            }
            self.push_packet(target, &parts, None);
        }
    }

    /// Asks for an exchange of all states with a random member.
    pub(super) fn push_pull(&mut self, now: Instant, rng: &mut dyn RngCore) {
        let interval = self.config.timing.push_pull_interval;
        self.push_pull_at = now + interval.saturating_mul(push_pull_scale(self.members.len()));
        let own = &self.config.name;
        let chosen = self.members.random(1, rng, |record| {
            record.node.name == *own || record.node.state != NodeState::Alive
        });
        let target = chosen.first().and_then(|record| record.node.target());
        self.outputs
            .extend(target.map(|to| Output::PushPull { to }));
    }
}

/// How many times slower large pools exchange states, so that their work does not grow with the square of their size.
fn push_pull_scale(nodes: usize) -> u32 {
    let threshold = f64::from(PUSH_PULL_NODES);
    match nodes as f64 <= threshold {
        true => 1,
        false => ((nodes as f64).log2() - threshold.log2()).ceil() as u32 + 1,
    }
}

/// A message of the layer above, with its kind.
fn framed(message: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(1 + message.len());
    out.push(Kind::User.into());
    out.extend_from_slice(message);
    out.into()
}
