//! Folds questions about how new the state is: one question to the quorum, or to the leader, answers all who asked before
//! it was sent.

use crate::consensus::batch::{fatal, forwarded, not_leader};
use crate::consensus::error::ProposeError;
use crate::consensus::forward::Forwarder;
use crate::consensus::log_store::Fault;
use crate::consensus::machine::Applied;
use crate::consensus::role::Role;
use crate::consensus::types::{LogId, Raft};
use crate::model::Index;
use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::{mpsc, oneshot, watch};

/// Askers that may wait before further ones are held back.
const QUEUE: usize = 4096;

/// Who asked.
pub(crate) struct Asker {
    /// Takes an index: whatever was written before the question is in the state up to there.
    pub(crate) answer: oneshot::Sender<Result<Index, ProposeError>>,
    /// Whether only this server's own leadership counts.
    pub(crate) here: bool,
}

/// What a [`Verifier`] works with.
pub(crate) struct Parts {
    pub(crate) raft: Raft,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) fault: watch::Receiver<Option<Fault>>,
    pub(crate) applied: Applied,
    pub(crate) forwarder: Forwarder,
    /// Whether the leader must have a quorum confirm that it leads.
    pub(crate) confirm: bool,
}

/// Answers until the queue closes.
pub(crate) struct Verifier {
    parts: Parts,
    incoming: mpsc::Receiver<Asker>,
}

impl Verifier {
    pub(crate) fn new(parts: Parts) -> (Self, mpsc::Sender<Asker>) {
        let (send, incoming) = mpsc::channel(QUEUE);
        (Self { parts, incoming }, send)
    }

    pub(crate) async fn run(mut self) {
        let mut askers = Vec::new();
        while self.incoming.recv_many(&mut askers, QUEUE).await > 0 {
            askers.retain(|asker| !asker.answer.is_closed());
            let leader = match &*self.parts.role.borrow() {
                Role::Follower { leader } => leader.clone(),
                _ => None,
            };
            if let Some(leader) = leader {
                let here = askers.extract_if(.., |asker| asker.here);
                let refused = ProposeError::NotLeader {
                    leader: leader.clone(),
                };
                tell(here, &Err(refused));
                if !askers.is_empty() {
                    let forwarder = &self.parts.forwarder;
                    let answer = forwarder.read_index(&leader, self.parts.confirm).await;
                    tell(askers.drain(..), &answer);
                }
            } else if !askers.is_empty() {
                let answer = match self.parts.confirm {
                    true => self.parts.confirm().await,
                    false => self.parts.own_index().await,
                };
                tell(askers.drain(..), &answer);
            }
        }
    }
}

fn tell(askers: impl Iterator<Item = Asker>, answer: &Result<Index, ProposeError>) {
    for asker in askers {
        let _ = asker.answer.send(answer.clone()); // The asker may have given up.
    }
}

/// Whether the leader of this term has applied what earlier ones acknowledged: the first entry of its own comes after all
/// of that.
pub(crate) fn caught_up(term: u64) -> impl Fn(&Option<LogId>) -> bool {
    move |applied| applied.is_some_and(|log_id| log_id.leader_id.term >= term)
}

impl Parts {
    /// The leader's index.
    async fn own_index(&mut self) -> Result<Index, ProposeError> {
        let Role::Leader { term } = *self.role.borrow() else {
            return Err(not_leader(&self.role.borrow()).unwrap_or(ProposeError::NoLeader));
        };
        tokio::select! {
            biased;
            applied = self.applied.wait_for(caught_up(term)) => match applied {
                Ok(applied) => Ok(applied.map_or(0, |log_id| log_id.index)),
                Err(_) => Err(ProposeError::Shutdown),
            },
            lost = self.role.wait_for(|role| *role != Role::Leader { term }) => Err(match lost {
                Ok(role) => not_leader(&role).unwrap_or(ProposeError::NoLeader),
                Err(_) => ProposeError::Shutdown,
            }),
        }
    }

    async fn confirm(&mut self) -> Result<Index, ProposeError> {
        if let Some(fault) = &*self.fault.borrow() {
            return Err(ProposeError::Storage(fault.text.clone()));
        }
        not_leader(&self.role.borrow()).map_or(Ok(()), Err)?;
        tokio::select! {
            confirmed = self.raft.ensure_linearizable() => match confirmed {
                Ok(log_id) => Ok(log_id.map_or(0, |log_id| log_id.index)),
                Err(RaftError::Fatal(error)) => Err(fatal(error)),
                Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                    Err(forwarded(forward))
                }
                Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(_))) => {
                    Err(ProposeError::NoQuorum)
                }
            },
            fault = self.fault.wait_for(Option::is_some) => Err(match fault {
                Ok(fault) => ProposeError::Storage(fault.as_ref().map(|f| f.text.clone()).unwrap_or_default()),
                Err(_) => ProposeError::Shutdown,
            }),
            lost = self.role.wait_for(|role| !role.is_leader()) => Err(match lost {
                Ok(role) => not_leader(&role).unwrap_or(ProposeError::NoLeader),
                Err(_) => ProposeError::Shutdown,
            }),
        }
    }
}
