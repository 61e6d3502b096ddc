//! When servers that expect each other form a new datacenter (`bootstrap_expect`).
//!
//! Each server decides alone, from the members it sees and from what the others say about their Raft peers. One alone then
//! writes the first membership, the server with the lowest id, so that two views can never make two clusters; the others
//! hear of it through Raft.

use crate::gossip::{Member, MemberStatus};
use crate::model::{Datacenter, NodeId, NodeName};
use crate::router::Server;

/// What the members say about forming a datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    /// Not enough servers are there.
    Wait {
        /// Servers that are there, this one included.
        have: u32,
    },
    /// A member makes it unsafe; it must be changed first.
    Blocked {
        /// Which one, and why.
        reason: String,
    },
    /// Enough servers are there. Ask the others for their Raft peers before anything is formed.
    Ask {
        /// All servers that would form the datacenter, by id, this one included.
        servers: Vec<Server>,
    },
}

/// Looks at the members of the pool.
pub fn bootstrap(expect: u32, local: &Datacenter, members: &[Member]) -> Bootstrap {
    let mut servers = Vec::new();
    for server in members.iter().filter_map(Server::of_lan) {
        let alive = server.status == MemberStatus::Alive;
        if !alive || server.tags.datacenter != *local {
            continue;
        }
        let name = &server.name;
        let theirs = server.tags.expect;
        if server.tags.bootstrap {
            let reason = format!(
                "{name} is in bootstrap mode: it forms the datacenter, and this server joins it; leave out bootstrap_expect \
                 here or bootstrap there"
            );
            return Bootstrap::Blocked { reason };
        }
        if theirs != 0 && theirs != expect {
            let reason = format!(
                "{name} expects {theirs} servers and this one {expect}: set the same bootstrap_expect on all"
            );
            return Bootstrap::Blocked { reason };
        }
        servers.push(server);
    }
    let voters = servers.iter().filter(|s| !s.tags.non_voter).count();
    let have = u32::try_from(voters).unwrap_or(u32::MAX);
    if have < expect {
        return Bootstrap::Wait { have };
    }
    servers.sort_by(|a, b| a.id.cmp(&b.id));
    Bootstrap::Ask { servers }
}

/// What a server answered to `Status.Peers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// So many Raft peers; none when it waits as well.
    Peers(usize),
    /// Nothing, for this reason.
    Silent(String),
}

/// What follows from the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This server writes the first membership.
    Form,
    /// Another server will write it.
    Follow {
        /// Which one.
        name: NodeName,
    },
    /// The datacenter exists already: its leader will add this server.
    Exists {
        /// Who has peers.
        name: NodeName,
    },
    /// Not all have answered: ask again.
    Again {
        /// Who did not answer, and why.
        reason: String,
    },
}

/// Draws the conclusion for the server `own` from the servers, in the order of their ids, and what the others answered.
pub fn conclude(own: &NodeId, answers: &[(&Server, Answer)]) -> Verdict {
    let with_peers =
        |(_, answer): &&(&Server, Answer)| matches!(answer, Answer::Peers(n) if *n > 0);
    if let Some((server, _)) = answers.iter().find(with_peers) {
        let name = server.name.clone();
        return Verdict::Exists { name };
    }
    for (server, answer) in answers {
        if let Answer::Silent(why) = answer {
            let reason = format!("{} did not say which Raft peers it has: {why}", server.name);
            return Verdict::Again { reason };
        }
    }
    match answers.iter().find(|(server, _)| server.id < *own) {
        Some((first, _)) => Verdict::Follow {
            name: first.name.clone(),
        },
        None => Verdict::Form,
    }
}
