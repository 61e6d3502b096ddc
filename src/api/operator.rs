//! The servers that agree on the log, for people who look after them.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::route::Consistency;
use crate::consensus::PeerStatus;
use crate::model::query::{DcSpecificRequest, RaftConfiguration, RaftServer, ReadRequest as _};
use crate::model::{Datacenter, NodeId};

/// The protocol version that Consul's servers of today show.
const RAFT_PROTOCOL: &str = "3";

/// How a server in the Raft configuration is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerName {
    /// By its node's UUID.
    Id(NodeId),
    /// By its RPC address with the port.
    Address(String),
}

impl Api {
    /// The servers in the Raft configuration, the leader's own view unless a stale one is asked for.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader in time.
    pub async fn raft_configuration(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<RaftConfiguration, Error> {
        let consistency = Consistency::of(&request.options());
        self.reach(&request.datacenter, consistency).await?;
        let server = |status: PeerStatus| RaftServer {
            id: status.peer.id,
            node: status.peer.node,
            address: status.peer.address,
            leader: status.leader,
            protocol_version: RAFT_PROTOCOL.to_owned(),
            voter: status.voter,
        };
        let servers = self.consensus().peers().into_iter().map(server);
        Ok(RaftConfiguration {
            servers: servers.collect(),
            index: 0, // As Consul, whose configuration is not in its state.
        })
    }

    /// Takes a server out of the Raft configuration, dead or not. One that is still running joins again by itself.
    ///
    /// # Errors
    /// No path to the datacenter, no leader in time, no such server, or the change could not be made.
    pub async fn raft_remove_peer(
        &self,
        datacenter: &Datacenter,
        name: &PeerName,
    ) -> Result<(), Error> {
        self.reach(datacenter, Consistency::Default).await?;
        let peers = self
            .consensus()
            .peers()
            .into_iter()
            .map(|status| status.peer);
        // Consul's words: whoever mistypes a name must not believe that the server is gone.
        let id = match name {
            PeerName::Id(id) => peers
                .map(|peer| peer.id)
                .find(|known| known == id)
                .ok_or_else(|| {
                    format!(
                        "id {:?} was not found in the Raft configuration",
                        id.as_str()
                    )
                }),
            PeerName::Address(address) => peers
                .into_iter()
                .find(|peer| peer.address == *address)
                .map(|peer| peer.id)
                .ok_or_else(|| {
                    format!("address {address:?} was not found in the Raft configuration")
                }),
        };
        let id = id.map_err(Error::Refused)?;
        let removed = self.consensus().expel_server(&id).await;
        removed.map_err(|error| Error::Internal(error.to_string()))
    }
}
