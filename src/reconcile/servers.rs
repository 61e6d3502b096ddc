//! Which servers take part in Raft (pure).
//!
//! ```text
//!   member alive     -> added: first without a vote, with one when it has caught up and was stable for a while
//!   member left      -> removed
//!   member reaped    -> removed
//!   member failed    -> stays, and counts against the quorum; removed once a new server has taken its place
//! ```

use crate::consensus::{Peer, PeerStatus};
use crate::gossip::{Member, MemberStatus};
use crate::model::{Datacenter, NodeId, NodeName};
use crate::router::Server;
use crate::store::Key;
use std::collections::BTreeSet;
use std::time::Duration;

/// Care for dead and new servers (`autopilot`).
#[derive(Clone, Debug)]
pub struct Autopilot {
    /// Whether failed servers are removed when a new one has joined (`cleanup_dead_servers`).
    pub cleanup_dead_servers: bool,
    /// Fewest servers that stay (`min_quorum`).
    pub min_quorum: u32,
    /// How long a new server must be there before it votes (`server_stabilization_time`).
    pub stabilization: Duration,
    /// Most entries of the log that a new server may lack when it gets its vote (`max_trailing_logs`).
    pub max_trailing_logs: u64,
}

impl Default for Autopilot {
    fn default() -> Self {
        Self {
            cleanup_dead_servers: true,
            min_quorum: 0,
            stabilization: Duration::from_secs(10),
            max_trailing_logs: 250,
        }
    }
}

/// One step of the membership's way to what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Add this server without a vote, or write its new address.
    Add(Peer),
    /// Give this server a vote, once it has been there for a while.
    Promote(Peer),
    /// Remove this server.
    Remove {
        /// Which one.
        peer: Peer,
        /// Why.
        reason: &'static str,
    },
}

/// What the steps are found from.
pub(crate) struct Pool<'a> {
    /// The own datacenter.
    pub(crate) datacenter: &'a Datacenter,
    /// This server, which never removes itself.
    pub(crate) own: &'a NodeId,
    /// All members of the pool.
    pub(crate) members: &'a [Member],
    /// The servers of the Raft membership.
    pub(crate) peers: &'a [PeerStatus],
    /// Members that were seen in this term.
    pub(crate) seen: &'a BTreeSet<Key>,
}

impl Pool<'_> {
    fn servers(&self) -> impl Iterator<Item = Server> {
        let servers = self.members.iter().filter_map(Server::of_lan);
        servers.filter(|server| server.tags.datacenter == *self.datacenter)
    }

    fn member(&self, name: &NodeName) -> Option<&Member> {
        let key = Key::of(name.shared());
        self.members
            .iter()
            .find(|m| Key::of(m.name.shared()) == key)
    }

    /// A member that is this very server, whatever its status.
    fn member_of(&self, peer: &Peer) -> Option<&Member> {
        let same_id = |member: &&Member| {
            let id = member.tags.get("id").unwrap_or_default();
            id.is_empty() || id.eq_ignore_ascii_case(peer.id.as_str())
        };
        let by_id = self.members.iter().find(|member| {
            let id = member.tags.get("id").unwrap_or_default();
            id.eq_ignore_ascii_case(peer.id.as_str())
        });
        by_id.or_else(|| self.member(&peer.node).filter(same_id))
    }

    /// The next steps, removals first: an address that passed to a new server must be free before it is added.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = self.removals();
        steps.extend(self.additions());
        steps
    }

    fn removals(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let peers = self.peers.iter().map(|status| &status.peer);
        for peer in peers.filter(|peer| peer.id != *self.own) {
            let reason = match self.member_of(peer) {
                Some(member) if member.status == MemberStatus::Left => "it left",
                Some(_) => continue,
                None if self.is_replaced(peer) => "another server has its address",
                None if self.seen.contains(&Key::of(peer.node.shared())) => "it was reaped",
                None => continue,
            };
            steps.push(Step::Remove {
                peer: peer.clone(),
                reason,
            });
        }
        steps
    }

    /// Whether a live member has the peer's address under another id: the disk of that machine was replaced.
    fn is_replaced(&self, peer: &Peer) -> bool {
        self.servers().any(|server| {
            server.status == MemberStatus::Alive && server.rpc.to_string() == peer.address
        })
    }

    fn additions(&self) -> impl Iterator<Item = Step> {
        let bootstraps = self
            .servers()
            .filter(|server| server.tags.bootstrap)
            .count();
        let servers = self.servers().filter(move |server| {
            // Two servers that form datacenters of their own: adding one would end the other's data.
            let rival = server.tags.bootstrap && bootstraps > 1;
            server.status == MemberStatus::Alive && !rival && !server.id.is_empty()
        });
        let wanted = servers.map(|server| Peer {
            id: server.id,
            node: server.name,
            address: server.rpc.to_string(),
        });
        let others = wanted.filter(|peer| peer.id != *self.own);
        others.filter_map(|peer| {
            let known = self.peers.iter().find(|known| known.peer == peer);
            match known.map(|known| known.voter) {
                Some(true) => None,
                Some(false) => Some(Step::Promote(peer)),
                None => Some(Step::Add(peer)),
            }
        })
    }

    /// Servers in bootstrap mode besides this one, when this one is in it as well: nobody of them is added.
    pub(crate) fn rivals(&self) -> Vec<NodeName> {
        let rivals: Vec<_> = self
            .servers()
            .filter(|server| server.tags.bootstrap)
            .collect();
        match rivals.len() {
            0 | 1 => Vec::new(),
            _ => rivals.into_iter().map(|server| server.name).collect(),
        }
    }

    /// The servers that failed, or that only Raft still knows, if all of them can be removed at once: more than half of
    /// the voters stay, and at least `min_quorum`. Otherwise none.
    pub(crate) fn dead(&self, autopilot: &Autopilot) -> Vec<Peer> {
        if !autopilot.cleanup_dead_servers {
            return Vec::new();
        }
        let is_dead = |peer: &&PeerStatus| {
            let member = self.member_of(&peer.peer);
            peer.peer.id != *self.own && member.is_none_or(|m| m.status == MemberStatus::Failed)
        };
        let dead: Vec<_> = self.peers.iter().filter(is_dead).collect();
        let voters = self.peers.iter().filter(|peer| peer.voter).count();
        let lost = dead.iter().filter(|peer| peer.voter).count();
        let stay = voters.saturating_sub(lost);
        let safe = lost <= voters.saturating_sub(1) / 2;
        match safe && stay >= autopilot.min_quorum as usize {
            true => dead.into_iter().map(|dead| dead.peer.clone()).collect(),
            false => Vec::new(),
        }
    }

    /// Whether a server has nearly all of the log, so that its vote does not hold up commits.
    pub(crate) fn is_caught_up(&self, peer: &Peer, autopilot: &Autopilot) -> bool {
        let last = |id: &NodeId| {
            let known = self.peers.iter().find(|known| known.peer.id == *id);
            known.and_then(|known| known.last_log).unwrap_or(0)
        };
        last(&peer.id) > 0 && last(&peer.id) + autopilot.max_trailing_logs >= last(self.own)
    }
}
