//! The handle that everybody else holds.

use crate::consensus::batch::Waiting;
use crate::consensus::elect::Contact;
use crate::consensus::entry::{CodecError, Sealed};
use crate::consensus::error::{Error, ProposeError};
use crate::consensus::forward::{Answer, Forwarder, Question, decode_question, encode_answer};
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::{Applied, blocking};
use crate::consensus::role::Role;
use crate::consensus::stats::{PeerStatus, RaftStats};
use crate::consensus::timing::Timing;
use crate::consensus::transport::{Peers, TransportError, receive};
use crate::consensus::types::{LogId, Peer, Raft};
use crate::consensus::verify::{Asker, caught_up};
use crate::model::Index;
use crate::store::{ApplyError, Command, Outcome, Store};
use bytes::Bytes;
use futures_util::future::join_all;
use openraft::LogIdOptionExt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{RwLock, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// Writes above this many bytes are worth a warning, as in Consul.
const LARGE: usize = 1 << 20;
/// How long a snapshot asked for by hand may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// An acknowledged write: it is on the disks of a quorum and in the state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Its Raft index. Writes that were committed together share it.
    pub index: Index,
    /// What it came to.
    pub outcome: Outcome,
}

/// As of whom a read must be new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The leader, as this server knows it.
    Leader,
    /// A leader that a quorum confirms.
    Quorum,
}

/// Raft on this server. Cloning it shares it.
#[derive(Clone)]
pub struct Consensus {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) propose_timeout: Duration,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) store: Store,
    pub(crate) applied: Applied,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) proposals: mpsc::Sender<Waiting>,
    /// Those who want a quorum to confirm that the leader leads.
    pub(crate) confirmers: mpsc::Sender<Asker>,
    /// Those who trust the leader.
    pub(crate) readers: mpsc::Sender<Asker>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) timing: Timing,
    pub(crate) peers: Arc<Peers>,
    pub(crate) forwarder: Forwarder,
    /// Held to write by who needs a moment without new proposals.
    pub(crate) gate: Arc<RwLock<()>>,
    pub(crate) tasks: Vec<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Consensus {
    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The state that Raft writes.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Writes a command. When this returns it is on the disks of a quorum, applied and published on the leader. Proposals
    /// that wait at the same time share one log entry and its index; no reader sees a part of them. A server that does
    /// not lead has the leader write it.
    ///
    /// # Errors
    /// [`ProposeError`] says whether nothing was written or the outcome is unknown.
    pub async fn propose(&self, command: Command) -> Result<Written, ProposeError> {
        let command = Sealed::new(command).map_err(|error| match error {
            CodecError::TooLarge { size, limit } => ProposeError::TooLarge { size, limit },
            other => ProposeError::Storage(other.to_string()),
        })?;
        if command.size() > LARGE {
            tracing::warn!(bytes = command.size(), "a very large write slows down Raft");
        }
        self.submit(command, false).await
    }

    async fn submit(&self, command: Sealed, from_peer: bool) -> Result<Written, ProposeError> {
        let (answer, written) = oneshot::channel();
        let ask = async {
            let waiting = Waiting {
                command,
                answer,
                from_peer,
            };
            let sent = self.inner.proposals.send(waiting).await;
            sent.map_err(|_| ProposeError::Shutdown)?;
            written.await.map_err(|_| ProposeError::Shutdown)?
        };
        tokio::time::timeout(self.inner.propose_timeout, ask)
            .await
            .unwrap_or(Err(ProposeError::Unknown))
    }

    /// Answers the question of a server that takes this one for the leader; see [`Forward`](crate::consensus::Forward).
    ///
    /// # Errors
    /// If the bytes are no question.
    pub async fn answer(&self, question: &[u8]) -> Result<Bytes, CodecError> {
        let answer = match decode_question(question)? {
            Question::Propose(commands) => {
                let writes = commands.into_iter().map(|command| async {
                    // What this version cannot read must not get into the log.
                    if let Err(error) = command.command() {
                        let refusal = ApplyError::refused(format!("the write is refused: {error}"));
                        return Err(ProposeError::Refused(refusal));
                    }
                    self.submit(command, true).await
                });
                Answer::Proposed(join_all(writes).await)
            }
            Question::Read { confirm } => {
                let askers = match confirm {
                    true => &self.inner.confirmers,
                    false => &self.inner.readers,
                };
                Answer::Read(self.ask(askers, true).await)
            }
            Question::Remove(id) => {
                let removed = self.remove_server(&id).await;
                Answer::Removed(removed.map_err(|error| error.to_string()))
            }
        };
        encode_answer(&answer)
    }

    /// Waits until the state here is as new as the leader's was at the time of the call: until it holds every write that
    /// was acknowledged before. One question serves all who ask meanwhile.
    ///
    /// # Errors
    /// If there is no leader, or it cannot be reached, or no quorum confirms it.
    pub async fn catch_up(&self, freshness: Freshness) -> Result<(), ProposeError> {
        let askers = match freshness {
            Freshness::Leader if self.leads_caught_up() => return Ok(()),
            Freshness::Leader => &self.inner.readers,
            Freshness::Quorum => &self.inner.confirmers,
        };
        let index = self.ask(askers, false).await?;
        let mut applied = self.inner.applied.clone();
        let there = |applied: &Option<LogId>| applied.index().unwrap_or(0) >= index;
        let reached = applied.wait_for(there).await;
        reached.map_err(|_| ProposeError::Shutdown).map(|_| ())
    }

    /// Whether this server leads and has applied what earlier leaders acknowledged.
    fn leads_caught_up(&self) -> bool {
        let Role::Leader { term } = *self.inner.role.borrow() else {
            return false;
        };
        caught_up(term)(&self.inner.applied.borrow())
    }

    async fn ask(&self, askers: &mpsc::Sender<Asker>, here: bool) -> Result<Index, ProposeError> {
        let (answer, index) = oneshot::channel();
        let sent = askers.send(Asker { answer, here }).await;
        sent.map_err(|_| ProposeError::Shutdown)?;
        index.await.map_err(|_| ProposeError::Shutdown)?
    }

    /// This server's role; the receiver is told of every change.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.inner.role.clone()
    }

    /// Who leads, this server included.
    pub fn leader(&self) -> Option<Peer> {
        let metrics = self.inner.raft.server_metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        let leader = match &*self.inner.role.borrow() {
            Role::Leader { .. } => self.inner.id,
            Role::Follower { leader } => return leader.clone(),
            Role::Candidate | Role::Stopped { .. } => return None,
        };
        membership.get_node(&leader).cloned()
    }

    /// All servers of the membership.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let metrics = self.inner.raft.metrics().borrow().clone();
        let leader = self.leader().map(|leader| leader.id);
        let membership = metrics.membership_config.membership();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let replicated = metrics.replication.unwrap_or_default();
        let last_log = |id: &u64| match *id == self.inner.id {
            true => self.inner.log.last().index(),
            false => replicated.get(id).copied().flatten().index(),
        };
        let status = |(id, peer): (&u64, &Peer)| PeerStatus {
            peer: peer.clone(),
            voter: voters.contains(id),
            leader: leader.as_ref() == Some(&peer.id),
            last_log: last_log(id),
        };
        membership.nodes().map(status).collect()
    }

    /// Since the leader was heard of; zero on the leader, `None` if never.
    pub fn last_contact(&self) -> Option<Duration> {
        if self.inner.role.borrow().is_leader() {
            return Some(Duration::ZERO);
        }
        let heard = self.inner.contact.heard().leader;
        heard.map(|heard| heard.elapsed())
    }

    /// Waits until everything committed before this call is applied here, and answers up to which index. Works on the
    /// leader alone.
    ///
    /// # Errors
    /// If this server does not lead, or no quorum confirms that it does.
    pub async fn barrier(&self) -> Result<Index, ProposeError> {
        let ask = self.ask(&self.inner.confirmers, true);
        tokio::time::timeout(self.inner.propose_timeout, ask)
            .await
            .unwrap_or(Err(ProposeError::NoQuorum))
    }

    /// Has a quorum confirm that this server leads, for a consistent read. One question serves all who ask meanwhile.
    ///
    /// # Errors
    /// As [`Consensus::barrier`].
    pub async fn verify_leader(&self) -> Result<(), ProposeError> {
        self.barrier().await.map(|_| ())
    }

    /// Figures for `/v1/agent/self` and `Status.RaftStats`.
    pub fn stats(&self) -> RaftStats {
        let metrics = self.inner.raft.metrics().borrow().clone();
        let peers = self.peers();
        let id = self.inner.id;
        let last_log = self.inner.log.last();
        let fault = self.inner.log.fault();
        let fault = fault.borrow();
        RaftStats {
            state: self.inner.role.borrow().as_str(),
            term: metrics.current_term,
            last_log_index: last_log.index().unwrap_or(0),
            last_log_term: last_log.map_or(0, |log_id| log_id.leader_id.term),
            commit_index: self.inner.log.committed().index().unwrap_or(0),
            applied_index: metrics.last_applied.index().unwrap_or(0),
            last_snapshot_index: metrics.snapshot.index().unwrap_or(0),
            last_snapshot_term: metrics.snapshot.map_or(0, |log_id| log_id.leader_id.term),
            num_peers: metrics
                .membership_config
                .voter_ids()
                .filter(|voter| *voter != id)
                .count(),
            peers,
            configuration_index: metrics.membership_config.log_id().index().unwrap_or(0),
            last_contact: self.last_contact(),
            last_fsync: self.inner.log.last_fsync(),
            disk_fault: fault.as_ref().map(|fault| fault.text.clone()),
        }
    }

    /// Writes a snapshot of the present state and answers its index.
    ///
    /// # Errors
    /// If Raft has ended or the disk does not take it in time.
    pub async fn snapshot(&self) -> Result<Index, Error> {
        let raft = &self.inner.raft;
        let applied = raft.metrics().borrow().last_applied;
        if raft.metrics().borrow().snapshot < applied {
            let asked = raft.trigger().snapshot().await;
            asked.map_err(|error| Error::Raft(error.to_string()))?;
        }
        let done = raft
            .wait(Some(SNAPSHOT_TIMEOUT))
            .metrics(|metrics| metrics.snapshot >= applied, "snapshot")
            .await
            .map_err(|error| Error::Raft(error.to_string()))?;
        Ok(done.snapshot.index().unwrap_or(0))
    }

    /// Serves a request that a peer's [`Transport`](crate::consensus::Transport) brought.
    ///
    /// # Errors
    /// If the bytes are no request.
    pub async fn receive(&self, request: Bytes) -> Result<Bytes, TransportError> {
        Ok(receive(self, &request).await?.reply)
    }

    /// Ends Raft here and closes the files. Other clones of the handle answer with an error from then on.
    ///
    /// # Errors
    /// If a task of Raft panicked.
    pub async fn shutdown(self) -> Result<(), Error> {
        self.inner.log.give_up();
        let ended = self.inner.raft.shutdown().await;
        let log = self.inner.log.clone();
        blocking(move || {
            log.close();
            Ok(())
        })
        .await?;
        ended.map_err(|error| Error::Raft(error.to_string()))
    }
}
