//! What a server that does not lead asks of the one that does: to write for it, how new the state is, and to take a server
//! out of the membership.
//!
//! A [`Forward`] brings the bytes of a question to the leader and the answer back; it knows nothing of either. The leader
//! never passes a question on, so two servers that disagree about who leads cannot send it in circles.

use crate::consensus::batch::Waiting;
use crate::consensus::entry::{CodecError, Sealed, decode_record, encode_record};
use crate::consensus::error::{Error, ProposeError};
use crate::consensus::handle::Written;
use crate::consensus::role::Role;
use crate::consensus::types::Peer;
use crate::model::{Index, NodeId};
use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};

/// Rounds of proposals that may be on their way to the leader. While there are fewer nobody waits for others; then those
/// who wait share the next round.
const ROUNDS: usize = 8;

/// How long a question about the state may take. Its asker gives up earlier, or asks again.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a change of the membership may take: its writing and its showing have 10 s each.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(25);

/// How long to wait for the answer of a leader that was replaced: it may know that it wrote nothing.
const GRACE: Duration = Duration::from_millis(500);

/// Why the leader did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// It was not asked: it could not be reached, or refused to listen.
    #[error("{0}")]
    Unreached(String),
    /// It may have been asked; no answer came.
    #[error("{0}")]
    Lost(String),
}

/// Brings a question to the leader's [`answer`](crate::consensus::Consensus::answer) and the answer back. Any number may
/// be under way side by side.
#[async_trait]
pub trait Forward: Send + Sync + 'static {
    /// Asks `leader`, and waits at most `limit` for the answer.
    ///
    /// # Errors
    /// [`ForwardError`].
    async fn ask(
        &self,
        leader: &Peer,
        question: Bytes,
        limit: Duration,
    ) -> Result<Bytes, ForwardError>;
}

/// What is asked.
#[derive(Serialize, Deserialize)]
pub(crate) enum Question {
    /// To write these.
    Propose(Vec<Sealed>),
    /// Up to which index the leader has applied the log; with `confirm` after a quorum said that it leads.
    Read { confirm: bool },
    /// To take this server out of the membership.
    Remove(NodeId),
}

/// What is answered.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    /// One for each proposal, in their order.
    Proposed(Vec<Result<Written, ProposeError>>),
    Read(Result<Index, ProposeError>),
    /// `Err` says why it was not done.
    Removed(Result<(), String>),
}

pub(crate) fn decode_question(bytes: &[u8]) -> Result<Question, CodecError> {
    decode_record(bytes)
}

pub(crate) fn encode_answer(answer: &Answer) -> Result<Bytes, CodecError> {
    Ok(encode_record(answer)?.into())
}

/// The way to the leader. Cloning it shares the places.
#[derive(Clone)]
pub(crate) struct Forwarder {
    way: Option<Arc<dyn Forward>>,
    role: watch::Receiver<Role>,
    write_limit: Duration,
    places: Arc<Semaphore>,
}

impl Forwarder {
    pub(crate) fn new(
        way: Option<Arc<dyn Forward>>,
        role: watch::Receiver<Role>,
        write_limit: Duration,
    ) -> Self {
        Self {
            way,
            role,
            write_limit,
            places: Arc::new(Semaphore::new(ROUNDS)),
        }
    }

    /// Has the leader write a round, and answers each proposer. Returns as soon as the round is on its way.
    pub(crate) async fn propose(&self, leader: Peer, round: Vec<Waiting>) {
        let (passed_on, own): (Vec<_>, Vec<_>) = round.into_iter().partition(|w| w.from_peer);
        refuse(passed_on, &leader);
        let Some(way) = self.way.clone() else {
            return refuse(own, &leader);
        };
        let Ok(place) = self.places.clone().acquire_owned().await else {
            return; // Never closed.
        };
        let forwarder = self.clone();
        tokio::spawn(async move {
            let (commands, answers): (Vec<_>, Vec<_>) =
                own.into_iter().map(|w| (w.command, w.answer)).unzip();
            let written = forwarder.written(&*way, &leader, commands).await;
            drop(place);
            match written {
                Ok(all) if all.len() == answers.len() => {
                    for (answer, written) in answers.into_iter().zip(all) {
                        let _ = answer.send(written.map_err(ours)); // The proposer may have given up.
                    }
                }
                other => {
                    let error = other.err().unwrap_or(ProposeError::Unknown);
                    for answer in answers {
                        let _ = answer.send(Err(error.clone()));
                    }
                }
            }
        });
    }

    async fn written(
        &self,
        way: &dyn Forward,
        leader: &Peer,
        commands: Vec<Sealed>,
    ) -> Result<Vec<Result<Written, ProposeError>>, ProposeError> {
        let question = Question::Propose(commands);
        match self.ask(way, leader, &question, self.write_limit).await? {
            Answer::Proposed(all) => Ok(all),
            Answer::Read(_) | Answer::Removed(_) => Err(ProposeError::Unknown),
        }
    }

    /// Up to which index the leader has applied the log.
    pub(crate) async fn read_index(
        &self,
        leader: &Peer,
        confirm: bool,
    ) -> Result<Index, ProposeError> {
        let Some(way) = &self.way else {
            let leader = leader.clone();
            return Err(ProposeError::NotLeader { leader });
        };
        let question = Question::Read { confirm };
        match self.ask(&**way, leader, &question, READ_TIMEOUT).await? {
            Answer::Read(index) => index.map_err(ours),
            Answer::Proposed(_) | Answer::Removed(_) => Err(ProposeError::Unknown),
        }
    }

    /// Has the leader take a server out of the membership.
    pub(crate) async fn remove(&self, leader: &Peer, id: &NodeId) -> Result<(), Error> {
        let way = self.way.as_ref().ok_or(Error::NotLeader)?;
        let question = Question::Remove(id.clone());
        match self.ask(&**way, leader, &question, REMOVE_TIMEOUT).await {
            Ok(Answer::Removed(removed)) => removed.map_err(Error::Raft),
            Ok(Answer::Proposed(_) | Answer::Read(_)) => Err(Error::NotLeader),
            Err(error) => Err(Error::Raft(error.to_string())),
        }
    }

    async fn ask(
        &self,
        way: &dyn Forward,
        leader: &Peer,
        question: &Question,
        limit: Duration,
    ) -> Result<Answer, ProposeError> {
        let storage = |error: CodecError| ProposeError::Storage(error.to_string());
        let question = encode_record(question).map_err(storage)?.into();
        let mut role = self.role.clone();
        let replaced = async {
            let other =
                |role: &Role| !matches!(role, Role::Follower { leader: Some(l) } if l == leader);
            let _ = role.wait_for(other).await;
            tokio::time::sleep(GRACE).await;
        };
        let answered = tokio::select! {
            answered = way.ask(leader, question, limit) => answered,
            () = replaced => return Err(ProposeError::Unknown),
        };
        match answered {
            Ok(bytes) => decode_record(&bytes).map_err(|error| {
                tracing::warn!(%leader, %error, "the leader's answer cannot be read");
                ProposeError::Unknown
            }),
            Err(ForwardError::Unreached(reason)) => Err(ProposeError::Unreached { reason }),
            Err(ForwardError::Lost(reason)) => {
                tracing::debug!(%leader, reason, "no answer from the leader");
                Err(ProposeError::Unknown)
            }
        }
    }
}

fn refuse(round: Vec<Waiting>, leader: &Peer) {
    for waiting in round {
        let leader = leader.clone();
        let _ = waiting.answer.send(Err(ProposeError::NotLeader { leader }));
    }
}

/// The leader's error as one of this server: its end is not ours.
fn ours(error: ProposeError) -> ProposeError {
    match error {
        ProposeError::Shutdown => ProposeError::Unknown,
        other => other,
    }
}
