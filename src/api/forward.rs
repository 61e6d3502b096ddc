//! The way from a server to the leader of its datacenter: one RPC method between servers.

use crate::codec;
use crate::consensus::{Forward, ForwardError, Peer};
use crate::model::Datacenter;
use crate::rpc::{ClientError, Destination, Pool};
use async_trait::async_trait;
use bytes::Bytes;
use serde_bytes::ByteBuf;
use std::net::SocketAddr;
use std::time::Duration;

/// The method that takes a server's question. Its body and its reply are one raw string each, of bytes that `consensus`
/// alone understands. Only servers of the same datacenter may call it.
pub(crate) const METHOD: &str = "Consensus.Ask";

/// Asks the leader over the RPC port.
#[derive(Clone)]
pub struct Leader {
    pool: Pool,
    datacenter: Datacenter,
}

impl Leader {
    /// Reaches leaders of `datacenter` through `pool`.
    pub fn new(pool: Pool, datacenter: Datacenter) -> Self {
        Self { pool, datacenter }
    }

    /// Calls a method of the leader.
    ///
    /// # Errors
    /// As [`Pool::call`].
    pub async fn call(
        &self,
        leader: &Peer,
        method: &str,
        body: &[u8],
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let to = self.destination(leader).await?;
        self.pool.call(&to, method, body, limit).await
    }

    async fn destination(&self, leader: &Peer) -> Result<Destination, ClientError> {
        let unreached = |problem: String| {
            ClientError::Connect(format!(
                "the leader's address {}: {problem}",
                leader.address
            ))
        };
        let address = match leader.address.parse::<SocketAddr>() {
            Ok(address) => address,
            Err(_) => tokio::net::lookup_host(&leader.address)
                .await
                .map_err(|error| unreached(error.to_string()))?
                .next()
                .ok_or_else(|| unreached("no such host".to_owned()))?,
        };
        Ok(Destination {
            datacenter: self.datacenter.clone(),
            node: leader.node.clone(),
            address,
        })
    }
}

#[async_trait]
impl Forward for Leader {
    async fn ask(
        &self,
        leader: &Peer,
        question: Bytes,
        limit: Duration,
    ) -> Result<Bytes, ForwardError> {
        let unreached = |error: codec::Error| ForwardError::Unreached(error.to_string());
        let body = codec::to_vec(serde_bytes::Bytes::new(&question)).map_err(unreached)?;
        let called = self.call(leader, METHOD, &body, limit).await;
        let reply = called.map_err(|error| match error {
            // A server that refuses the method has done nothing.
            ClientError::Connect(_) | ClientError::Ended(_) | ClientError::Remote(_) => {
                ForwardError::Unreached(error.to_string())
            }
            _ => ForwardError::Lost(error.to_string()),
        })?;
        let reply: ByteBuf =
            codec::from_slice(&reply).map_err(|error| ForwardError::Lost(error.to_string()))?;
        Ok(reply.into_vec().into())
    }
}
