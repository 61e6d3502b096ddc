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

use crate::consensus::elect::would_vote;
use crate::consensus::entry::{decode_record, encode_record};
use crate::consensus::handle::Consensus;
use crate::consensus::types::{LogId, Peer, Raft, SnapshotMeta, Types, Vote};
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

/// An index that no log reaches.
const NOWHERE: u64 = u64::MAX / 2;

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
    /// Whether a vote for a server with this log would be given.
    PreVote {
        last_log: Option<LogId>,
    },
    /// From a leader that hands over: stand for election now.
    TakeOver,
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
    PreVote(bool),
    TakeOver(Result<(), String>),
    WrongServer(u64),
}

/// What a request that arrived came to.
pub(crate) struct Received {
    pub(crate) reply: Bytes,
    /// The term of the leader that sent it, if it is the newest one.
    pub(crate) led: Option<u64>,
}

/// Serves one request of a peer.
pub(crate) async fn receive(
    consensus: &Consensus,
    bytes: &[u8],
) -> Result<Received, TransportError> {
    let envelope: Envelope = decode_record(bytes).map_err(bad("raft request"))?;
    let inner = &consensus.inner;
    let (reply, led) = if envelope.to == inner.id {
        answer(consensus, envelope.request).await
    } else {
        (Reply::WrongServer(inner.id), None)
    };
    if let Some(term) = led {
        inner.contact.leader_spoke(term);
    }
    let reply = encode_record(&reply).map_err(bad("raft answer"))?.into();
    Ok(Received { reply, led })
}

/// The answer, and the term of the leader that asked.
async fn answer(consensus: &Consensus, request: Request) -> (Reply, Option<u64>) {
    let (inner, raft) = (&consensus.inner, &consensus.inner.raft);
    match request {
        Request::Append(request) => {
            let vote = request.vote;
            let answer = raft.append_entries(request).await;
            let accepted = matches!(
                answer,
                Ok(AppendEntriesResponse::Success | AppendEntriesResponse::Conflict)
            );
            // A vote that is not committed comes from one who is about to stand for election.
            let led = (accepted && vote.is_committed()).then_some(vote.leader_id().term);
            (Reply::Append(answer), led)
        }
        Request::Vote(request) => {
            let answer = raft.vote(request).await;
            if answer.as_ref().is_ok_and(|answer| answer.vote_granted) {
                inner.contact.voted();
            }
            (Reply::Vote(answer), None)
        }
        Request::Snapshot(chunk) => {
            let term = chunk.vote.leader_id().term;
            let answer = raft.install_snapshot(chunk.into()).await;
            let led = answer.is_ok().then_some(term);
            (Reply::Snapshot(answer), led)
        }
        Request::PreVote { last_log } => {
            let leads = inner.role.borrow().is_leader();
            let logs = (last_log, inner.log.last());
            let would = would_vote(&inner.contact.heard(), &inner.timing, leads, logs);
            (Reply::PreVote(would), None)
        }
        Request::TakeOver => {
            let taken = consensus.take_over().await;
            (
                Reply::TakeOver(taken.map_err(|error| error.to_string())),
                None,
            )
        }
    }
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

impl From<Failure> for TransportError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(error) | Failure::Network(error) => error,
        }
    }
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
    async fn call(&self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        let envelope = Envelope {
            to: self.to,
            request,
        };
        let lane = match &envelope.request {
            Request::Snapshot(_) => Lane::Bulk,
            _ => Lane::Prompt,
        };
        let bytes = encode_record(&envelope)
            .map_err(bad("raft request"))
            .map_err(Failure::Network)?;
        let call = self.transport.call(&self.peer, lane, bytes.into());
        let reply = tokio::time::timeout(limit, call)
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
        match self.call(Request::Append(request), option.hard_ttl()).await {
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
        match self.call(Request::Snapshot(chunk), option.hard_ttl()).await {
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
        match self.call(Request::Vote(request), option.hard_ttl()).await {
            Ok(Reply::Vote(answer)) => self.remote(answer),
            Ok(_) => Err(self.confused()),
            Err(failure) => Err(failure.into_rpc()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(BACKOFF))
    }
}

/// Asks peers what openraft does not ask.
pub(crate) struct Peers {
    raft: Raft,
    transport: Arc<dyn Transport>,
    limit: Duration,
}

impl Peers {
    pub(crate) fn new(raft: Raft, transport: Arc<dyn Transport>, limit: Duration) -> Self {
        Self {
            raft,
            transport,
            limit,
        }
    }

    async fn ask(&self, to: u64, request: Request) -> Result<Reply, TransportError> {
        let peer = {
            let metrics = self.raft.server_metrics();
            let metrics = metrics.borrow();
            metrics
                .membership_config
                .membership()
                .get_node(&to)
                .cloned()
        };
        let peer = peer.ok_or_else(|| TransportError(format!("no server {to:016x}")))?;
        let transport = self.transport.clone();
        let client = Client {
            to,
            peer,
            transport,
        };
        Ok(client.call(request, self.limit).await?)
    }

    /// Whether a peer would vote for this server. One that does not answer would not.
    pub(crate) async fn would_vote(&self, peer: u64, last_log: Option<LogId>) -> bool {
        let reply = self.ask(peer, Request::PreVote { last_log }).await;
        matches!(reply, Ok(Reply::PreVote(true)))
    }

    /// Asks a peer to stand for election at once.
    pub(crate) async fn take_over(&self, peer: u64) -> Result<(), TransportError> {
        match self.ask(peer, Request::TakeOver).await? {
            Reply::TakeOver(taken) => taken.map_err(TransportError),
            _ => Err(TransportError("it answered another question".to_owned())),
        }
    }

    /// Tells a peer of a vote that is newer than the leader's, so that it lets go of the leader. The request asks for
    /// entries behind a log that nobody has: the peer takes note of the vote and refuses the rest.
    pub(crate) async fn announce(&self, peer: u64, vote: Vote) -> Result<(), TransportError> {
        let nothing = AppendEntriesRequest {
            vote,
            prev_log_id: Some(LogId::new(*vote.leader_id(), NOWHERE)),
            entries: Vec::new(),
            leader_commit: None,
        };
        self.ask(peer, Request::Append(nothing)).await.map(|_| ())
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
