//! Hands leadership to another server without waiting for timeouts. openraft 0.9 has no such command.
//!
//! The leader holds back new writes until the successor has the whole log, then asks it to take over. The successor
//! tells everybody the vote it is about to ask for. That ends the leader's lease with them, as any newer vote does (it
//! grants nothing: granting still checks the log), and an ordinary election follows at once.

use crate::consensus::config::raft_id;
use crate::consensus::error::Error;
use crate::consensus::handle::Consensus;
use crate::consensus::role::Role;
use crate::consensus::types::{LogId, Vote};
use crate::model::NodeId;
use openraft::LogIdOptionExt;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::timeout;

/// How long writes under way may take to end before the transfer is given up.
const WRITES: Duration = Duration::from_secs(5);
/// How long a successor may take to catch up, and then again to be elected.
const STEP: Duration = Duration::from_secs(2);

impl Consensus {
    /// Hands leadership to `to`, or to the voter with the longest log. When this returns, that server leads and this one
    /// follows it. New writes wait meanwhile, and then learn who leads.
    ///
    /// # Errors
    /// If this server does not lead, `to` does not vote, or no successor was elected in time: this server may lead on.
    pub async fn transfer_leadership(&self, to: Option<&NodeId>) -> Result<(), Error> {
        let to = to.map(raft_id).transpose()?;
        let gate = timeout(WRITES, self.inner.gate.write()).await;
        let _gate = gate.map_err(|_| Error::transfer("writes under way do not end"))?;
        let mut last = Error::transfer("no other server votes");
        for successor in self.successors(to)? {
            match self.hand_over(successor).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
            if !self.inner.role.borrow().is_leader() {
                break; // Somebody leads, or will: our part is done.
            }
        }
        Err(last)
    }

    /// Who may take over, the longest log first.
    fn successors(&self, to: Option<u64>) -> Result<Vec<u64>, Error> {
        if !self.inner.role.borrow().is_leader() {
            return Err(Error::NotLeader);
        }
        let metrics = self.inner.raft.metrics().borrow().clone();
        let replicated = metrics.replication.unwrap_or_default();
        let voters: BTreeSet<u64> = metrics.membership_config.voter_ids().collect();
        let mut found: Vec<u64> = voters
            .into_iter()
            .filter(|voter| *voter != self.inner.id && to.is_none_or(|to| to == *voter))
            .collect();
        found.sort_by_key(|voter| Reverse(replicated.get(voter).copied().flatten()));
        match to {
            Some(to) if found.is_empty() => {
                Err(Error::transfer(format!("server {to:016x} does not vote")))
            }
            _ => Ok(found),
        }
    }

    async fn hand_over(&self, successor: u64) -> Result<(), Error> {
        let last = self.inner.log.last();
        let caught_up = self.inner.raft.wait(Some(STEP));
        caught_up
            .metrics(
                |metrics| has(metrics.replication.as_ref(), successor, last),
                "the successor has the whole log",
            )
            .await
            .map_err(Error::transfer)?;
        let asked = self.inner.peers.take_over(successor).await;
        asked.map_err(Error::transfer)?;
        let mut role = self.inner.role.clone();
        let replaced = role.wait_for(|role| match role {
            Role::Follower { leader } => leader.is_some(),
            Role::Stopped { .. } => true,
            Role::Leader { .. } | Role::Candidate => false,
        });
        match timeout(STEP, replaced).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::transfer("the successor was not elected in time")),
        }
    }

    /// The successor's part: has everybody let go of the old leader, then stands for election.
    pub(crate) async fn take_over(&self) -> Result<(), Error> {
        let metrics = self.inner.raft.server_metrics().borrow().clone();
        let vote = Vote::new(metrics.vote.leader_id().term + 1, self.inner.id);
        let everybody = metrics.membership_config.voter_ids();
        let others = everybody.filter(|voter| *voter != self.inner.id);
        let told = others.map(|voter| self.inner.peers.announce(voter, vote));
        // Who does not answer in time may still vote when its lease is over.
        let _ = timeout(
            self.inner.timing.lease,
            futures_util::future::join_all(told),
        )
        .await;
        let elected = self.inner.raft.trigger().elect().await;
        elected.map_err(|error| Error::Raft(error.to_string()))
    }
}

type Replicated = std::collections::BTreeMap<u64, Option<LogId>>;

fn has(replicated: Option<&Replicated>, server: u64, last: Option<LogId>) -> bool {
    let known = replicated.and_then(|known| known.get(&server));
    known.is_some_and(|known| known.index() >= last.index())
}
