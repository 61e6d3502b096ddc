//! Decides when this server wants to lead, in place of openraft's own timer.
//!
//! Before an election it asks the others whether they would vote for it (the pre-vote of Raft's dissertation, 9.6). A
//! server that was cut off therefore raises no terms meanwhile, and deposes no healthy leader when it comes back. And
//! because connections from a leader break when its process ends, a dead process is replaced as soon as its lease is
//! over, without waiting for heartbeats that do not come.

use crate::consensus::log_store::LogStore;
use crate::consensus::role::Role;
use crate::consensus::timing::{Heard, Timing};
use crate::consensus::transport::Peers;
use crate::consensus::types::{LogId, Raft};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep_until, timeout};

/// What was heard of the leader, shared by those who serve requests and the one who decides.
#[derive(Default)]
pub(crate) struct Contact {
    heard: Mutex<Heard>,
    changed: Notify,
    /// The leader speaks again after it was thought lost.
    returned: Notify,
}

impl Contact {
    pub(crate) fn heard(&self) -> Heard {
        *self.heard.lock()
    }

    /// The leader of this term, the newest one, said something.
    pub(crate) fn leader_spoke(&self, term: u64) {
        let mut heard = self.heard.lock();
        heard.leader = Some(now());
        heard.term = term;
        heard.gone = None;
        if std::mem::take(&mut heard.lost) {
            self.returned.notify_one();
        }
    }

    /// Until when the leader is to be believed in, by what it said last; `None` if that has passed, and then
    /// [`Contact::returned`] tells when it speaks again.
    pub(crate) fn believed_until(&self, timing: &Timing) -> Option<Instant> {
        let mut heard = self.heard.lock();
        let until = heard
            .leader
            .map(|heard| heard + timing.patience + timing.spread);
        let until = until.filter(|until| *until > now());
        heard.lost = until.is_none();
        until
    }

    pub(crate) async fn returned(&self) {
        self.returned.notified().await;
    }

    /// The connection on which the leader of this term spoke is broken.
    pub(crate) fn leader_gone(&self, term: u64) {
        let mut heard = self.heard.lock();
        if heard.term == term {
            heard.gone = Some(now());
            self.changed.notify_one();
        }
    }

    pub(crate) fn voted(&self) {
        self.heard.lock().voted = Some(now());
    }
}

/// Whether to help a server with this log to become leader.
pub(crate) fn would_vote(
    heard: &Heard,
    timing: &Timing,
    leads: bool,
    (theirs, mine): (Option<LogId>, Option<LogId>),
) -> bool {
    !leads && theirs >= mine && heard.lets_go(timing, now())
}

/// Wants to lead when nobody does.
pub(crate) struct Elector {
    pub(crate) id: u64,
    pub(crate) raft: Raft,
    pub(crate) log: LogStore,
    pub(crate) peers: Arc<Peers>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) timing: Timing,
    pub(crate) role: watch::Receiver<Role>,
}

impl Elector {
    /// Runs until Raft ends.
    pub(crate) async fn run(mut self) {
        let mut asked = now();
        let mut server = self.raft.server_metrics();
        loop {
            let (leads, ended) = {
                let role = self.role.borrow_and_update();
                (role.is_leader(), matches!(*role, Role::Stopped { .. }))
            };
            if ended {
                return;
            }
            if leads || !self.votes() {
                // A leader has nothing to ask for, nor has a server without a vote.
                tokio::select! {
                    changed = self.role.changed() => if changed.is_err() { return },
                    changed = server.changed() => if changed.is_err() { return },
                }
                asked = now();
                continue;
            }
            if !self.wait(asked).await {
                continue;
            }
            asked = now();
            if self.would_win().await && self.raft.trigger().elect().await.is_err() {
                return;
            }
        }
    }

    /// Waits until it is time to ask; `false` if the role changed meanwhile.
    async fn wait(&mut self, asked: Instant) -> bool {
        let part = rand::random::<f64>();
        loop {
            let due = self.contact.heard().due(&self.timing, asked, part);
            if due <= now() {
                return true;
            }
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = self.contact.changed.notified() => {}
                _ = self.role.changed() => return false,
            }
        }
    }

    fn votes(&self) -> bool {
        let voters = self.voters();
        voters.iter().any(|voters| voters.contains(&self.id))
    }

    /// The sets of voters of which each needs a majority; two while the membership changes.
    fn voters(&self) -> Vec<BTreeSet<u64>> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        let membership = metrics.membership_config.membership();
        membership.get_joint_config().clone()
    }

    /// Asks all voters whether they would vote for this server.
    async fn would_win(&self) -> bool {
        let voters = self.voters();
        let everybody: BTreeSet<u64> = voters.iter().flatten().copied().collect();
        let last_log = self.log.last();
        let mut answers: FuturesUnordered<_> = everybody
            .iter()
            .filter(|voter| **voter != self.id)
            .map(|voter| async move { (*voter, self.peers.would_vote(*voter, last_log).await) })
            .collect();
        let mut granted = BTreeSet::from([self.id]);
        let counting = async {
            while !is_quorum(&voters, &granted) {
                match answers.next().await {
                    Some((voter, true)) => {
                        granted.insert(voter);
                    }
                    Some(_) => {}
                    None => return false,
                }
            }
            true
        };
        let wins = timeout(self.timing.lease, counting).await.unwrap_or(false);
        tracing::debug!(wins, "asked whether an election would be won");
        wins
    }
}

fn is_quorum(voters: &[BTreeSet<u64>], granted: &BTreeSet<u64>) -> bool {
    let has = |voters: &BTreeSet<u64>| voters.intersection(granted).count() > voters.len() / 2;
    !voters.is_empty() && voters.iter().all(has)
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_set_of_voters_needs_its_majority() {
        let set = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<_>>();
        let (three, joint) = (vec![set(&[1, 2, 3])], vec![set(&[1, 2, 3]), set(&[3, 4])]);
        assert!(!is_quorum(&three, &set(&[1])));
        assert!(is_quorum(&three, &set(&[1, 3])));
        assert!(!is_quorum(&joint, &set(&[1, 3])));
        assert!(is_quorum(&joint, &set(&[1, 3, 4])));
        assert!(!is_quorum(&[], &set(&[1])));
    }
}
