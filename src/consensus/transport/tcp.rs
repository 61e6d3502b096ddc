//! [`Transport`] over the peers' RPC ports.
//!
//! Each peer has two connections, so that heartbeats and votes never wait behind the parts of a snapshot.

use crate::consensus::transport::dial::Dialler;
use crate::consensus::transport::link::Link;
use crate::consensus::transport::wire::Greeting;
use crate::consensus::transport::{Lane, Transport, TransportError};
use crate::consensus::types::Peer;
use crate::model::{NodeId, NodeName};
use crate::net::Tls;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a peer that owes an answer may be silent before it is dialled anew.
const PROMPT_STALL: Duration = Duration::from_secs(3);
/// The same for snapshots: the last part is answered when all of it is in the peer's state and on its disk.
const BULK_STALL: Duration = Duration::from_secs(15);

/// Reaches the other servers of the datacenter on their RPC ports. Connections are made when they are needed, and end
/// with this value.
pub struct RaftTransport {
    tls: Arc<Tls>,
    me: Greeting,
    addresses: Mutex<HashMap<NodeId, String>>,
    links: Mutex<HashMap<(String, Lane), Link>>,
}

impl RaftTransport {
    /// Dials as this node, with the certificate of `tls` if there is one.
    pub fn new(tls: Arc<Tls>, id: NodeId, node: NodeName) -> Self {
        Self {
            tls,
            me: Greeting { node, id },
            addresses: Mutex::default(),
            links: Mutex::default(),
        }
    }

    /// Replaces what is known from elsewhere, gossip say, of where servers are (`host:port`). It goes before the
    /// membership, which a datacenter whose servers have all moved could not change.
    pub fn set_addresses(&self, addresses: HashMap<NodeId, String>) {
        *self.addresses.lock() = addresses;
    }

    fn address(&self, peer: &Peer) -> String {
        let known = self.addresses.lock().get(&peer.id).cloned();
        known.unwrap_or_else(|| peer.address.clone())
    }

    fn link(&self, address: &str, lane: Lane) -> Link {
        let mut links = self.links.lock();
        links.retain(|_, link| !link.is_over());
        let link = links.entry((address.to_owned(), lane)).or_insert_with(|| {
            let dialler = Dialler::new(address.to_owned(), self.tls.clone(), self.me.clone());
            let stall = match lane {
                Lane::Prompt => PROMPT_STALL,
                Lane::Bulk => BULK_STALL,
            };
            Link::start(dialler, stall)
        });
        link.clone()
    }
}

#[async_trait]
impl Transport for RaftTransport {
    async fn call(&self, peer: &Peer, lane: Lane, request: Bytes) -> Result<Bytes, TransportError> {
        let address = self.address(peer);
        let link = self.link(&address, lane);
        if let Some(answer) = link.call(request.clone()).await {
            return answer;
        }
        // It fell idle at this very moment.
        let again = self.link(&address, lane).call(request).await;
        again.unwrap_or_else(|| Err(TransportError(format!("{peer}: no connection"))))
    }
}
