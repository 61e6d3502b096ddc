//! Folds confirmations of leadership: one question to the quorum answers all who asked before it was sent.

use crate::consensus::batch::{fatal, forwarded, not_leader};
use crate::consensus::error::ProposeError;
use crate::consensus::log_store::Fault;
use crate::consensus::role::Role;
use crate::consensus::types::Raft;
use crate::model::Index;
use openraft::error::{CheckIsLeaderError, RaftError};
use tokio::sync::{mpsc, oneshot, watch};

/// Askers that may wait before further ones are held back.
const QUEUE: usize = 4096;

/// Who asked. The answer is an index: whatever was committed before the question is applied up to there.
pub(crate) type Asker = oneshot::Sender<Result<Index, ProposeError>>;

/// Answers until the queue closes.
pub(crate) struct Verifier {
    raft: Raft,
    role: watch::Receiver<Role>,
    fault: watch::Receiver<Option<Fault>>,
    incoming: mpsc::Receiver<Asker>,
}

impl Verifier {
    pub(crate) fn new(
        raft: Raft,
        role: watch::Receiver<Role>,
        fault: watch::Receiver<Option<Fault>>,
    ) -> (Self, mpsc::Sender<Asker>) {
        let (send, incoming) = mpsc::channel(QUEUE);
        let verifier = Self {
            raft,
            role,
            fault,
            incoming,
        };
        (verifier, send)
    }

    pub(crate) async fn run(mut self) {
        let mut askers = Vec::new();
        while self.incoming.recv_many(&mut askers, QUEUE).await > 0 {
            let answer = self.confirm().await;
            for asker in askers.drain(..) {
                let _ = asker.send(answer.clone()); // The asker may have given up.
            }
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
