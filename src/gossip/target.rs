//! Where to send gossip.

use std::fmt;
use std::net::SocketAddr;

use crate::model::NodeName;

/// A peer to send to: its address, and its name, by which gossip finds it through mesh gateways.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Empty while it is not known; pools that span datacenters need it.
    pub name: NodeName,
    /// Where it receives packets and streams.
    pub address: SocketAddr,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.is_empty() {
            true => write!(f, "{}", self.address),
            false => write!(f, "{}/{}", self.name, self.address),
        }
    }
}
