//! One server, as a gossip member describes it.

use crate::gossip::{Member, MemberStatus, ServerTags};
use crate::model::{NodeId, NodeName};
use std::net::SocketAddr;

/// A server of some datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The node's name, without the datacenter.
    pub name: NodeName,
    /// The node's UUID; empty from versions before 0.8.
    pub id: NodeId,
    /// Where its RPC port is reached: the gossip address with the port of its tags.
    pub rpc: SocketAddr,
    /// Where its gossip is received.
    pub gossip: SocketAddr,
    /// What is known of its life now.
    pub status: MemberStatus,
    /// What it says about itself.
    pub tags: ServerTags,
}

impl Server {
    /// A server in the pool of one datacenter; `None` for others, and for servers that left or belong to a segment.
    pub fn of_lan(member: &Member) -> Option<Self> {
        Self::of(member, member.name.clone()).filter(|server| server.tags.segment.is_empty())
    }

    /// A server in a pool of several datacenters, where names end in the datacenter's.
    pub fn of_wide(member: &Member) -> Option<Self> {
        let server = Self::of(member, member.name.clone())?;
        let suffix = format!(".{}", server.tags.datacenter);
        let name = member.name.as_str().strip_suffix(&suffix)?.into();
        Some(Self { name, ..server })
    }

    fn of(member: &Member, name: NodeName) -> Option<Self> {
        if matches!(member.status, MemberStatus::Left | MemberStatus::None) {
            return None;
        }
        let tags = ServerTags::parse(&member.tags).ok()?;
        let ip = member.addr.ip()?;
        Some(Self {
            name,
            id: tags.id.as_str().into(),
            rpc: SocketAddr::new(ip, tags.port),
            gossip: SocketAddr::new(ip, member.port),
            status: member.status,
            tags,
        })
    }

    /// Whether its word counts for a gate over a datacenter: it is there, or it may come back as it was.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.status, MemberStatus::Alive | MemberStatus::Failed)
    }
}
