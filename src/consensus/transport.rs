//! The seam for several servers: openraft's requests as bytes to a peer, its answers as bytes back.
//!
//! A [`Transport`] knows addresses and connections and nothing of Raft; this file knows Raft and nothing of connections.
//! `tcp` is the one over the RPC ports: `dial` makes a connection, `link` keeps and uses it, `serve` is the other side,
//! and `wire` says what stands on it.

mod dial;
mod link;
mod serve;
mod tcp;
mod wire;

pub use serve::serve_raft;
pub use tcp::RaftTransport;

use crate::consensus::entry::{decode_record, encode_record};
use crate::consensus::types::{Peer, Raft, SnapshotMeta, Types, Vote};
use async_trait::async_trait;
use bytes::Bytes;
use openraft::error::{
    InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long to leave an unreachable peer alone before the next try.
const BACKOFF: Duration = Duration::from_millis(200);

/// A request did not reach its peer, or no answer came back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// How urgent a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Heartbeats, log entries and votes.
    Prompt,
    /// Parts of a snapshot. Nothing prompt may wait behind them.
    Bulk,
}

/// Carries one Raft request to a peer's [`receive`](crate::consensus::Consensus::receive) and brings the answer back.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Sends `request` to `peer`. Cancelled when Raft's own timeout passes.
    ///
    /// # Errors
    /// If there is no answer.
    async fn call(&self, peer: &Peer, lane: Lane, request: Bytes) -> Result<Bytes, TransportError>;
}

/// A request with the server it is meant for: an address may have passed to another one.
#[derive(Serialize, Deserialize)]
struct Envelope {
    to: u64,
    request: Request,
}

#[derive(Serialize, Deserialize)]
enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    Snapshot(Chunk),
}

/// openraft's own form writes the bytes as a list of numbers.
#[derive(Serialize, Deserialize)]
struct Chunk {
    vote: Vote,
    meta: SnapshotMeta,
    offset: u64,
    #[serde(with = "serde_bytes")]
    data: Vec<u8>,
    done: bool,
}

#[derive(Serialize, Deserialize)]
enum Reply {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Snapshot(Result<InstallSnapshotResponse<u64>, RaftError<u64, InstallSnapshotError>>),
    WrongServer(u64),
}

/// What a request that arrived came to.
pub(crate) struct Received {
    pub(crate) reply: Bytes,
    /// Whether it came from the leader of the newest term.
    pub(crate) from_leader: bool,
}

/// Serves one request of a peer.
pub(crate) async fn receive(
    raft: &Raft,
    id: u64,
    bytes: &[u8],
) -> Result<Received, TransportError> {
    let envelope: Envelope = decode_record(bytes).map_err(bad("raft request"))?;
    let mut from_leader = false;
    let reply = if envelope.to == id {
        match envelope.request {
            Request::Append(request) => {
                let answer = raft.append_entries(request).await;
                from_leader = matches!(
                    answer,
                    Ok(AppendEntriesResponse::Success | AppendEntriesResponse::Conflict)
                );
                Reply::Append(answer)
            }
            Request::Vote(request) => Reply::Vote(raft.vote(request).await),
            Request::Snapshot(chunk) => {
                let answer = raft.install_snapshot(chunk.into()).await;
                from_leader = answer.is_ok();
                Reply::Snapshot(answer)
            }
        }
    } else {
        Reply::WrongServer(id)
    };
    let reply = encode_record(&reply).map_err(bad("raft answer"))?.into();
    Ok(Received { reply, from_leader })
}

fn bad<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> TransportError {
    move |error| TransportError(format!("{what}: {error}"))
}

impl From<Chunk> for InstallSnapshotRequest<Types> {
    fn from(chunk: Chunk) -> Self {
        Self {
            vote: chunk.vote,
            meta: chunk.meta,
            offset: chunk.offset,
            data: chunk.data,
            done: chunk.done,
        }
    }
}

/// Makes a client per peer.
pub(crate) struct Network(pub(crate) Arc<dyn Transport>);

impl RaftNetworkFactory<Types> for Network {
    type Network = Client;

    async fn new_client(&mut self, target: u64, node: &Peer) -> Client {
        Client {
            to: target,
            peer: node.clone(),
            transport: self.0.clone(),
        }
    }
}

/// The way to one peer.
pub(crate) struct Client {
    to: u64,
    peer: Peer,
    transport: Arc<dyn Transport>,
}

/// Why there is no reply, before it is put into openraft's generic type.
enum Failure {
    Unreachable(TransportError),
    Network(TransportError),
}

impl Failure {
    fn into_rpc<E: std::error::Error>(self) -> RPCError<u64, Peer, E> {
        match self {
            Self::Unreachable(error) => RPCError::Unreachable(Unreachable::new(&error)),
            Self::Network(error) => RPCError::Network(NetworkError::new(&error)),
        }
    }
}

impl Client {
    async fn call(&self, request: Request, option: &RPCOption) -> Result<Reply, Failure> {
        let envelope = Envelope {
            to: self.to,
            request,
        };
        let lane = match &envelope.request {
            Request::Append(_) | Request::Vote(_) => Lane::Prompt,
            Request::Snapshot(_) => Lane::Bulk,
        };
        let bytes = encode_record(&envelope)
            .map_err(bad("raft request"))
            .map_err(Failure::Network)?;
        let call = self.transport.call(&self.peer, lane, bytes.into());
        let reply = tokio::time::timeout(option.hard_ttl(), call)
            .await
            .map_err(|_| Failure::Network(TransportError(format!("{} is slow", self.peer))))?
            .map_err(Failure::Unreachable)?;
        match decode_record(&reply).map_err(bad("raft answer")) {
            Ok(Reply::WrongServer(found)) => Err(Failure::Unreachable(TransportError(format!(
                "{} is now another server ({found:016x})",
                self.peer
            )))),
            Ok(reply) => Ok(reply),
            Err(error) => Err(Failure::Network(error)),
        }
    }

    #[expect(clippy::result_large_err, reason = "openraft's error type")]
    fn remote<T, E: std::error::Error>(
        &self,
        answer: Result<T, E>,
    ) -> Result<T, RPCError<u64, Peer, E>> {
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.to, error)))
    }

    fn confused<E: std::error::Error>(&self) -> RPCError<u64, Peer, E> {
        let text = format!("{} answered another question", self.peer);
        Failure::Network(TransportError(text)).into_rpc()
    }
}

impl RaftNetwork<Types> for Client {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, Peer, RaftError<u64>>> {
        match self.call(Request::Append(request), &option).await {
            Ok(Reply::Append(answer)) => self.remote(answer),
            Ok(_) => Err(self.confused()),
            Err(failure) => Err(failure.into_rpc()),
        }
    }

    async fn install_snapshot(
        &mut self,
        request: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Result<
        InstallSnapshotResponse<u64>,
        RPCError<u64, Peer, RaftError<u64, InstallSnapshotError>>,
    > {
        let chunk = Chunk {
            vote: request.vote,
            meta: request.meta,
            offset: request.offset,
            data: request.data,
            done: request.done,
        };
        match self.call(Request::Snapshot(chunk), &option).await {
            Ok(Reply::Snapshot(answer)) => self.remote(answer),
            Ok(_) => Err(self.confused()),
            Err(failure) => Err(failure.into_rpc()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, Peer, RaftError<u64>>> {
        match self.call(Request::Vote(request), &option).await {
            Ok(Reply::Vote(answer)) => self.remote(answer),
            Ok(_) => Err(self.confused()),
            Err(failure) => Err(failure.into_rpc()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}

/// For a server that is alone: reaches nobody.
pub(crate) struct Alone;

#[async_trait]
impl Transport for Alone {
    async fn call(&self, peer: &Peer, _: Lane, _: Bytes) -> Result<Bytes, TransportError> {
        Err(TransportError(format!(
            "this server is not set up to reach {peer}"
        )))
    }
}
