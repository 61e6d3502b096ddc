//! What news about a node means. Lives are numbered by the node itself; news about an older life is no news.

use std::time::Instant;

use rand::RngCore;

use crate::gossip::swim::Event;
use crate::gossip::swim::Node;
use crate::gossip::swim::Swim;
use crate::gossip::swim::Token;
use crate::gossip::swim::members::Record;
use crate::gossip::swim::suspicion;
use crate::gossip::swim::suspicion::Suspicion;
use crate::gossip::wire::Message;
use crate::gossip::wire::Versions;
use crate::gossip::wire::fields::MAX_ENTRIES;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Alive;
use crate::gossip::wire::stream::NodeState;

impl Swim {
    /// Somebody says that a node is alive; maybe we ourselves, in a life that we do not live.
    pub(super) fn alive(&mut self, now: Instant, said: Alive, rng: &mut dyn RngCore) {
        let own = said.node == self.config.name;
        if (own && self.left) || !self.acceptable(&said) {
            return;
        }
        let reclaims = match self.members.get(&said.node) {
            Some(record) if moved(&record.node, &said) => {
                if !self.may_move(now, record) {
                    self.conflict(&said);
                    return;
                }
                let (old, name) = (record.node.addr.ip(), &said.node);
                tracing::info!(
                    "gossip: {name} comes back from {:?}, was {old:?}",
                    said.addr.ip()
                );
                true
            }
            _ => false,
        };
        if own {
            self.defend(&said);
            return;
        }
        let known = self.members.get(&said.node);
        let life = known.map_or(0, |record| record.incarnation);
        if said.incarnation <= life && !reclaims {
            return;
        }
        if known.is_none() && self.members.len() >= MAX_ENTRIES {
            tracing::warn!("gossip: {} is ignored: the pool is too large", said.node);
            return;
        }
        self.accept(now, said, None, rng);
    }

    /// Takes over what is said about a living node; also what we say ourselves.
    pub(super) fn accept(
        &mut self,
        now: Instant,
        said: Alive,
        done: Option<Token>,
        rng: &mut dyn RngCore,
    ) {
        self.suspicions.remove(&said.node);
        let message = Message::Alive(said.clone());
        self.broadcast(&said.node, &message, done);
        let mut node = node_of(&said);
        let Some(record) = self.members.get_mut(&said.node) else {
            let record = Record {
                node: node.clone(),
                incarnation: said.incarnation,
                changed: now,
            };
            self.members.insert(record, rng);
            self.event(Event::Join(node));
            return;
        };
        if node.versions == Versions::default() {
            node.versions = record.node.versions; // It does not say.
        }
        let before = std::mem::replace(&mut record.node, node.clone());
        record.incarnation = said.incarnation;
        if before.state != NodeState::Alive {
            record.changed = now;
        }
        if before.is_gone() {
            self.event(Event::Join(node));
        } else if before.meta != node.meta {
            self.event(Event::Update(node));
        }
    }

    /// Others say that we are alive. If that is not what we say, they must hear it from us.
    fn defend(&mut self, said: &Alive) {
        let Some(record) = self.members.get(&said.node) else {
            return;
        };
        let same = said.meta == record.node.meta && said.vsn == record.node.versions;
        let life = record.incarnation;
        if said.incarnation < life || (said.incarnation == life && same) {
            return;
        }
        tracing::warn!("gossip: others know another life of this agent; refutes it");
        self.refute(said.incarnation);
    }

    /// Begins a life that is later than the one that others talk of.
    fn refute(&mut self, accused: u32) {
        self.incarnation = self.incarnation.max(accused);
        let record = self.members.get(&self.config.name);
        let meta = record.map(|record| record.node.meta.clone());
        let alive = self.own_alive(meta.unwrap_or_default());
        if let Some(record) = self.members.get_mut(&alive.node) {
            record.incarnation = alive.incarnation;
        }
        self.awareness.worsen(1); // Whoever is accused has reason to doubt itself.
        self.broadcast(&alive.node.clone(), &Message::Alive(alive), None);
    }

    /// Whether news of a living node may count at all.
    fn acceptable(&self, said: &Alive) -> bool {
        let name = &said.node;
        if name.is_empty() || said.addr.is_unset() || said.port == 0 {
            tracing::warn!("gossip: ignores a node without name or address ('{name}')");
            return false;
        }
        let silent = said.vsn == Versions::default();
        if !silent && !self.config.versions.speaks_with(&said.vsn) {
            tracing::warn!(
                "gossip: ignores {name}, which speaks no protocol of ours: {:?}",
                said.vsn
            );
            return false;
        }
        let Some(filter) = &self.config.filter else {
            return true;
        };
        if silent {
            tracing::warn!("gossip: ignores {name}: it does not say which protocols it speaks");
            return false;
        }
        match filter.admit(&[node_of(said)]) {
            Ok(()) => true,
            Err(reason) => {
                tracing::warn!("gossip: ignores {name}: {reason}");
                false
            }
        }
    }

    /// Whether a node may take the name of another one: that has left, or has been dead for long enough.
    fn may_move(&self, now: Instant, record: &Record) -> bool {
        let gone_for = now.saturating_duration_since(record.changed);
        match record.node.state {
            NodeState::Left => true,
            NodeState::Dead => self.config.dead_node_reclaim.is_some_and(|t| gone_for > t),
            _ => false,
        }
    }

    fn conflict(&mut self, said: &Alive) {
        let other = node_of(said);
        if let Some(existing) = self.node(&said.node).cloned() {
            tracing::error!(
                "gossip: two nodes claim the name {}: {:?} keeps it, {:?} is ignored",
                said.node,
                existing.target().map(|target| target.address),
                other.target().map(|target| target.address)
            );
            self.event(Event::Conflict { existing, other });
        }
    }

    /// Somebody suspects a node.
    pub(super) fn suspect(&mut self, now: Instant, said: Accusation) {
        let Some(record) = self.members.get(&said.node) else {
            return;
        };
        if said.incarnation < record.incarnation {
            return;
        }
        if let Some(suspicion) = self.suspicions.get_mut(&said.node) {
            if suspicion.confirm(&said.from) {
                self.broadcast(&said.node.clone(), &Message::Suspect(said), None);
            }
            return;
        }
        if record.node.state != NodeState::Alive {
            return;
        }
        if said.node == self.config.name {
            tracing::warn!("gossip: refutes that {} suspects us", said.from);
            self.refute(said.incarnation);
            return;
        }
        self.set_state(now, &said, NodeState::Suspect);
        self.suspicions
            .insert(said.node.clone(), self.suspicion(now, &said));
        self.broadcast(&said.node.clone(), &Message::Suspect(said), None);
    }

    fn suspicion(&self, now: Instant, said: &Accusation) -> Suspicion {
        let timing = &self.config.timing;
        let nodes = self.members.len();
        // Two probe intervals less than those after which it would be dead by all others' own probes.
        let wanted = timing.suspicion_mult.saturating_sub(2);
        // Neither we nor the suspect can confirm.
        let needed = match nodes < wanted as usize + 2 {
            true => 0,
            false => wanted,
        };
        let min = suspicion::min_time(timing.suspicion_mult, nodes, timing.probe_interval);
        let max = min.saturating_mul(timing.suspicion_max_timeout_mult);
        Suspicion::new(said.from.clone(), needed, (min, max), now)
    }

    /// Takes those for dead who did not refute in time.
    pub(super) fn expire_suspicions(&mut self, now: Instant) {
        let over = self
            .suspicions
            .iter()
            .filter(|(_, suspicion)| now >= suspicion.deadline());
        let expired: Vec<_> = over
            .map(|(name, suspicion)| (name.clone(), suspicion.confirmed()))
            .collect();
        for (name, confirmed) in expired {
            tracing::info!("gossip: {name} has failed: {confirmed} others suspected it as well");
            let life = self
                .members
                .get(&name)
                .map_or(0, |record| record.incarnation);
            let accusation = self.accusation(name, life);
            self.dead(now, accusation, None);
        }
    }

    /// Somebody takes a node for dead, or the node itself says that it leaves.
    pub(super) fn dead(&mut self, now: Instant, said: Accusation, done: Option<Token>) {
        let Some(record) = self.members.get(&said.node) else {
            return;
        };
        if said.incarnation < record.incarnation {
            return;
        }
        self.suspicions.remove(&said.node);
        if record.node.is_gone() {
            return;
        }
        if said.node == self.config.name && !self.left {
            tracing::warn!("gossip: refutes that {} takes us for dead", said.from);
            self.refute(said.incarnation);
            return;
        }
        let state = match said.node == said.from {
            true => NodeState::Left,
            false => NodeState::Dead,
        };
        self.set_state(now, &said, state);
        self.broadcast(&said.node.clone(), &Message::Dead(said.clone()), done);
        if let Some(node) = self.node(&said.node).cloned() {
            self.event(Event::Leave(node));
        }
    }

    fn set_state(&mut self, now: Instant, said: &Accusation, state: NodeState) {
        if let Some(record) = self.members.get_mut(&said.node) {
            record.incarnation = said.incarnation;
            record.node.state = state;
            record.changed = now;
        }
    }
}

fn node_of(said: &Alive) -> Node {
    Node {
        name: said.node.clone(),
        addr: said.addr,
        port: said.port,
        meta: said.meta.clone(),
        versions: said.vsn,
        state: NodeState::Alive,
    }
}

/// Whether the address is another one, whatever the form in which it is written.
fn moved(node: &Node, said: &Alive) -> bool {
    node.addr.ip() != said.addr.ip() || node.port != said.port
}
