//! Folds proposals: all that wait while one entry is being committed become the next entry.
//!
//! So one fsync and one round to the peers serve many writers, and a writer that is alone waits for nobody. Each gets
//! its own answer; a refused command does not touch its neighbours.

use crate::consensus::entry::Sealed;
use crate::consensus::error::ProposeError;
use crate::consensus::forward::Forwarder;
use crate::consensus::handle::Written;
use crate::consensus::log_store::Fault;
use crate::consensus::role::Role;
use crate::consensus::types::{Peer, Proposal, Raft, Types};
use openraft::error::{ClientWriteError, Fatal, ForwardToLeader};
use openraft::raft::ClientWriteResponse;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{RwLock, mpsc, oneshot, watch};

/// Proposals that may wait before proposers are held back.
const QUEUE: usize = 4096;
/// Most commands in one entry.
const MAX_COMMANDS: usize = 512;
/// Bytes after which an entry takes no further command.
const MAX_BYTES: usize = 2 << 20;

type Answer = oneshot::Sender<Result<Written, ProposeError>>;

/// One proposer with its command.
pub(crate) struct Waiting {
    pub(crate) command: Sealed,
    pub(crate) answer: Answer,
    /// Whether another server passed it on to this one, as the leader: then it goes no further.
    pub(crate) from_peer: bool,
}

/// Takes proposals off the queue until it closes.
pub(crate) struct Batcher {
    raft: Raft,
    role: watch::Receiver<Role>,
    fault: watch::Receiver<Option<Fault>>,
    gate: Arc<RwLock<()>>,
    incoming: mpsc::Receiver<Waiting>,
    queue: VecDeque<Waiting>,
    forwarder: Forwarder,
}

impl Batcher {
    pub(crate) fn new(
        raft: Raft,
        role: watch::Receiver<Role>,
        fault: watch::Receiver<Option<Fault>>,
        forwarder: Forwarder,
        gate: Arc<RwLock<()>>,
    ) -> (Self, mpsc::Sender<Waiting>) {
        let (send, incoming) = mpsc::channel(QUEUE);
        let batcher = Self {
            raft,
            role,
            fault,
            gate,
            incoming,
            queue: VecDeque::new(),
            forwarder,
        };
        (batcher, send)
    }

    pub(crate) async fn run(mut self) {
        let mut arrived = Vec::with_capacity(MAX_COMMANDS);
        loop {
            if self.queue.is_empty() {
                if self.incoming.recv_many(&mut arrived, MAX_COMMANDS).await == 0 {
                    return;
                }
                self.queue.extend(arrived.drain(..));
            }
            while self.queue.len() < MAX_COMMANDS
                && let Ok(waiting) = self.incoming.try_recv()
            {
                self.queue.push_back(waiting);
            }
            // Whoever hands leadership over holds it meanwhile.
            let gate = self.gate.clone().read_owned().await;
            let round = next_round(&mut self.queue);
            let leader = match &*self.role.borrow() {
                Role::Follower { leader } => leader.clone(),
                _ => None,
            };
            match leader {
                _ if round.is_empty() => {}
                Some(leader) => self.forwarder.propose(leader, round).await,
                None => self.commit(round).await,
            }
            drop(gate);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell around Raft measures how long a commit takes"
    )]
    async fn commit(&mut self, round: Vec<Waiting>) {
        let start = std::time::Instant::now();
        let (commands, answers): (Vec<_>, Vec<_>) =
            round.into_iter().map(|w| (w.command, w.answer)).unzip();
        let count = commands.len();
        match self.write(commands).await {
            Ok(response) => {
                metrics::counter!("consul.raft.apply").increment(count as u64);
                metrics::histogram!("consul.raft.commitTime")
                    .record(start.elapsed().as_secs_f64() * 1e3);
                let index = response.log_id.index;
                for (answer, outcome) in answers.into_iter().zip(response.data) {
                    let written = outcome
                        .map(|outcome| Written { index, outcome })
                        .map_err(ProposeError::Refused);
                    let _ = answer.send(written); // The proposer may have given up.
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }

    async fn write(
        &mut self,
        commands: Vec<Sealed>,
    ) -> Result<ClientWriteResponse<Types>, ProposeError> {
        if let Some(fault) = &*self.fault.borrow() {
            return Err(ProposeError::Storage(fault.text.clone()));
        }
        not_leader(&self.role.borrow()).map_or(Ok(()), Err)?;
        let proposal = Proposal {
            commands: commands.into(),
        };
        let submitted = self.raft.client_write_ff(proposal).await;
        let answer = submitted.map_err(fatal)?;
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(Ok(response)) => Ok(response),
                Ok(Err(ClientWriteError::ForwardToLeader(forward))) => Err(forwarded(forward)),
                Ok(Err(ClientWriteError::ChangeMembershipError(_))) => Err(ProposeError::Unknown),
                Err(_) => Err(ProposeError::Shutdown), // Raft has ended and dropped who waited.
            },
            fault = self.fault.wait_for(Option::is_some) => Err(match fault {
                Ok(fault) => ProposeError::Storage(fault.as_ref().map(|f| f.text.clone()).unwrap_or_default()),
                Err(_) => ProposeError::Shutdown,
            }),
            lost = self.role.wait_for(|role| !role.is_leader()) => Err(match lost {
                Ok(role) => stopped(&role),
                Err(_) => ProposeError::Shutdown,
            }),
        }
    }
}

/// Takes commands for one entry, leaving out those whose proposer has given up.
fn next_round(queue: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let (mut round, mut bytes) = (Vec::new(), 0);
    while round.len() < MAX_COMMANDS && bytes < MAX_BYTES {
        let Some(waiting) = queue.pop_front() else {
            break;
        };
        if waiting.answer.is_closed() {
            continue;
        }
        bytes += waiting.command.size();
        round.push(waiting);
    }
    round
}

/// Why a server in this role takes no writes.
pub(crate) fn not_leader(role: &Role) -> Option<ProposeError> {
    match role {
        Role::Leader { .. } => None,
        Role::Follower {
            leader: Some(leader),
        } => Some(ProposeError::NotLeader {
            leader: leader.clone(),
        }),
        Role::Follower { leader: None } | Role::Candidate => Some(ProposeError::NoLeader),
        Role::Stopped { .. } => Some(ProposeError::Shutdown),
    }
}

/// What an entry under way came to when this server stopped leading.
fn stopped(role: &Role) -> ProposeError {
    match role {
        Role::Stopped { .. } => ProposeError::Shutdown,
        _ => ProposeError::Unknown,
    }
}

pub(crate) fn forwarded(forward: ForwardToLeader<u64, Peer>) -> ProposeError {
    match forward.leader_node {
        Some(leader) => ProposeError::NotLeader { leader },
        None => ProposeError::NoLeader,
    }
}

pub(crate) fn fatal(error: Fatal<u64>) -> ProposeError {
    match error {
        Fatal::Stopped => ProposeError::Shutdown,
        other => ProposeError::Storage(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Command;

    fn waiting() -> (Waiting, oneshot::Receiver<Result<Written, ProposeError>>) {
        let (answer, receiver) = oneshot::channel();
        let command = Sealed::new(Command::Noop).unwrap();
        let from_peer = false;
        let waiting = Waiting {
            command,
            answer,
            from_peer,
        };
        (waiting, receiver)
    }

    #[test]
    fn a_round_leaves_out_who_gave_up_and_is_bounded() {
        let (mut queue, mut kept) = (VecDeque::new(), Vec::new());
        for at in 0..MAX_COMMANDS + 10 {
            let (waiting, receiver) = waiting();
            queue.push_back(waiting);
            if at != 3 {
                kept.push(receiver);
            }
        }
        assert_eq!(next_round(&mut queue).len(), MAX_COMMANDS);
        assert_eq!(queue.len(), 9);
    }
}
