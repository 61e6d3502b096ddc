//! Which servers exist, and what all of them can do: pure over the members of the gossip pools.
//!
//! ```text
//!   members of a pool --> Router::update(area) --> datacenter -> servers, in the order in which to ask them
//!                                                     |-> lookup by id, name, Raft address
//!                                                     |-> gates:  does every server know federation states? which ACL mode?
//!                                                     '-> expect: may this server form a new datacenter?
//! ```
//!
//! A pool's servers are replaced as a whole at every change, so nothing of an old address or a reaped member stays
//! behind, and the status of each server is the present one. Only the order of preference lives on.

mod acl;
mod admission;
mod expect;
mod gates;
mod server;
mod shared;

pub use acl::{SeenAcls, Upgrade, acl_mode, upgrade_is_due};
pub use admission::LanAdmission;
pub use expect::{Answer, Bootstrap, Verdict, bootstrap, conclude};
pub use gates::{FEDERATION_STATES, Gate};
pub use server::Server;
pub use shared::Servers;

use crate::gossip::{Member, MemberStatus};
use crate::model::{Datacenter, NodeId, NodeName};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Where servers are learned from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The pool of the own datacenter.
    Lan,
    /// The pool of the servers of all datacenters.
    Wan,
    /// A pool that an edition adds.
    Extra(String),
}

/// All known servers by datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    local: Datacenter,
    areas: BTreeMap<Area, BTreeMap<Datacenter, Vec<Server>>>,
}

impl Router {
    /// A router of a server in `local` that knows nobody yet.
    pub fn new(local: Datacenter) -> Self {
        Self {
            local,
            areas: BTreeMap::new(),
        }
    }

    /// The datacenter this server belongs to.
    pub fn local(&self) -> &Datacenter {
        &self.local
    }

    /// Takes over the present members of a pool. Servers that were known keep their place in the order of preference, new
    /// ones come last. Members that left are forgotten; failed ones stay, with their status.
    pub fn update(&mut self, area: &Area, members: &[Member]) {
        let mut found: BTreeMap<Datacenter, Vec<Server>> = BTreeMap::new();
        let servers = members.iter().filter_map(|member| match area {
            Area::Lan => Server::of_lan(member),
            Area::Wan | Area::Extra(_) => Server::of_wide(member),
        });
        for server in servers {
            if *area == Area::Lan && server.tags.datacenter != self.local {
                continue;
            }
            let datacenter = server.tags.datacenter.clone();
            found.entry(datacenter).or_default().push(server);
        }
        let before = self.areas.remove(area).unwrap_or_default();
        for (datacenter, servers) in &mut found {
            let order = before.get(datacenter).map_or(&[][..], Vec::as_slice);
            let place = |server: &Server| order.iter().position(|old| old.name == server.name);
            servers.sort_by_key(|server| place(server).unwrap_or(usize::MAX));
        }
        self.areas.insert(area.clone(), found);
    }

    /// Known datacenters, the own one always among them.
    pub fn datacenters(&self) -> BTreeSet<Datacenter> {
        let known = self.areas.values().flat_map(BTreeMap::keys).cloned();
        known.chain([self.local.clone()]).collect()
    }

    /// Whether the datacenter is known.
    pub fn has_datacenter(&self, datacenter: &Datacenter) -> bool {
        let mut areas = self.areas.values();
        *datacenter == self.local || areas.any(|area| area.contains_key(datacenter))
    }

    /// The servers of a datacenter in the order in which to ask them: those that answer gossip first. One that does not
    /// may still be reachable another way, so it is only put last (case C029). A server in several pools counts once, as
    /// the innermost pool knows it.
    pub fn servers(&self, datacenter: &Datacenter) -> Vec<&Server> {
        let mut names = BTreeSet::new();
        let all = self.areas.values().filter_map(|area| area.get(datacenter));
        let mut servers: Vec<&Server> = all
            .flatten()
            .filter(|server| names.insert(server.name.clone()))
            .collect();
        servers.sort_by_key(|server| server.status == MemberStatus::Failed);
        servers
    }

    /// The server of a datacenter to ask now.
    pub fn head(&self, datacenter: &Datacenter) -> Option<&Server> {
        self.servers(datacenter).into_iter().next()
    }

    /// Notes that a request to a server failed: if it is the first of its datacenter, it becomes the last.
    pub fn notify_failed(&mut self, datacenter: &Datacenter, name: &NodeName) {
        if self.head(datacenter).is_none_or(|head| head.name != *name) {
            return;
        }
        let lists = self.areas.values_mut();
        for servers in lists.filter_map(|area| area.get_mut(datacenter)) {
            if let Some(at) = servers.iter().position(|server| server.name == *name) {
                let server = servers.remove(at);
                servers.push(server);
            }
        }
    }

    /// A live server of this datacenter by its UUID.
    pub fn server_by_id(&self, id: &NodeId) -> Option<&Server> {
        self.lookup().find(|server| server.id == *id)
    }

    /// A live server of this datacenter by its node name, whatever its case.
    pub fn server_by_name(&self, name: &NodeName) -> Option<&Server> {
        let mut servers = self.lookup();
        servers.find(|server| server.name.as_str().eq_ignore_ascii_case(name.as_str()))
    }

    /// A live server of this datacenter by the address of its RPC port, which is its Raft address.
    pub fn server_by_address(&self, address: &SocketAddr) -> Option<&Server> {
        self.lookup().find(|server| server.rpc == *address)
    }

    /// The server lookup: servers of this datacenter that are there, from whatever pool.
    pub fn lookup(&self) -> impl Iterator<Item = &Server> {
        let servers = self.servers(&self.local).into_iter();
        servers.filter(|server| server.status != MemberStatus::Failed)
    }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
