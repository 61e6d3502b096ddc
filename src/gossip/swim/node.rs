//! A node of the pool as memberlist sees it.

use std::net::SocketAddr;

use crate::gossip::Target;
use crate::gossip::wire::Blob;
use crate::gossip::wire::NodeAddr;
use crate::gossip::wire::Versions;
use crate::gossip::wire::stream::NodeState;
use crate::gossip::wire::stream::PushNodeState;
use crate::model::NodeName;

/// A node of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Unique in the pool.
    pub name: NodeName,
    /// Its address, in the form in which it came.
    pub addr: NodeAddr,
    /// Port of packets and streams.
    pub port: u16,
    /// What it says about itself: [tags](crate::gossip::Tags).
    pub meta: Blob,
    /// The protocols that it speaks; all zero when it does not say.
    pub versions: Versions,
    /// Whether it lives.
    pub state: NodeState,
}

impl Node {
    /// Where it receives gossip; `None` when it has no address.
    pub fn target(&self) -> Option<Target> {
        Some(Target {
            name: self.name.clone(),
            address: SocketAddr::new(self.addr.ip()?, self.port),
        })
    }

    /// Whether it is dead, or has left.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, NodeState::Dead | NodeState::Left)
    }
}

impl From<&PushNodeState> for Node {
    fn from(said: &PushNodeState) -> Self {
        Self {
            name: said.name.clone(),
            addr: said.addr,
            port: said.port,
            meta: said.meta.clone(),
            versions: said.vsn,
            state: said.state,
        }
    }
}
