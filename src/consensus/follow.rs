//! Tells the role whenever it changes.
//!
//! openraft lets a leader lead on that reaches nobody. Here it stops calling itself one after a while, so that it
//! answers nothing from a state that others may have moved past; when a quorum answers again it leads as before.
//! Likewise a follower that does not hear its leader names none until it does.

use crate::consensus::elect::{Contact, now};
use crate::consensus::role::{Role, role};
use crate::consensus::timing::Timing;
use crate::consensus::types::{Peer, Raft};
use openraft::{ChangeMembers, RaftMetrics};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};

/// How long a new address may take to be written; the next term tries again.
const ANNOUNCE: Duration = Duration::from_secs(10);

/// Tells the role until Raft ends.
pub(crate) async fn follow_role(
    raft: Raft,
    timing: Timing,
    contact: Arc<Contact>,
    tell: watch::Sender<Role>,
) {
    let mut server = raft.server_metrics();
    let mut quorum = Quorum::new(&raft);
    let mut before = None;
    loop {
        let (elected, alone) = {
            let server = server.borrow_and_update();
            (
                role(&server),
                server.membership_config.voter_ids().count() <= 1,
            )
        };
        let leads = elected.is_leader() && !alone;
        let answered = !leads || quorum.answered(&timing);
        let follows = matches!(elected, Role::Follower { leader: Some(_) });
        let heard = follows.then(|| contact.believed_until(&timing));
        let now = match answered && heard != Some(None) {
            true => elected,
            false => Role::Follower { leader: None },
        };
        if before.as_ref() != Some(&now) {
            tracing::info!(role = now.as_str(), "raft role");
            if !answered {
                tracing::warn!("no quorum of servers answers this leader: it leads no more");
            }
            count(&now);
            tell.send_replace(now.clone());
            before = Some(now);
        }
        let changed = if leads {
            let looked = timeout(timing.quorum / 2, server.changed()).await;
            looked.unwrap_or(Ok(()))
        } else {
            quorum.heard = None;
            match heard {
                Some(Some(until)) => {
                    let looked = timeout_at(until.into(), server.changed()).await;
                    looked.unwrap_or(Ok(()))
                }
                Some(None) => tokio::select! {
                    changed = server.changed() => changed,
                    () = contact.returned() => Ok(()),
                },
                None => server.changed().await,
            }
        };
        if changed.is_err() {
            break;
        }
    }
    let ended = raft.metrics().borrow().running_state.clone();
    let reason = match ended {
        Ok(()) => "raft ended".to_owned(),
        Err(error) => error.to_string(),
    };
    tracing::info!(reason, "raft ended");
    tell.send_replace(Role::Stopped { reason });
}

/// When a quorum last answered this leader.
struct Quorum {
    metrics: watch::Receiver<RaftMetrics<u64, Peer>>,
    heard: Option<Instant>,
}

impl Quorum {
    fn new(raft: &Raft) -> Self {
        let metrics = raft.metrics();
        let heard = None;
        Self { metrics, heard }
    }

    /// Whether that was not too long ago. The time before the first answer counts from the first question.
    fn answered(&mut self, timing: &Timing) -> bool {
        let now = now();
        let mut heard = self.heard.unwrap_or(now);
        // A Raft that stands still, behind a disk say, reports nothing: what it said before is too old by then.
        if self.metrics.has_changed().unwrap_or(false) {
            let metrics = self.metrics.borrow_and_update();
            let since = metrics.millis_since_quorum_ack.map(Duration::from_millis);
            heard = heard.max(
                since
                    .and_then(|since| now.checked_sub(since))
                    .unwrap_or(heard),
            );
        }
        self.heard = Some(heard);
        now.saturating_duration_since(heard) <= timing.quorum
    }
}

fn count(role: &Role) {
    match role {
        Role::Leader { .. } => metrics::counter!("consul.raft.state.leader").increment(1),
        Role::Candidate => metrics::counter!("consul.raft.state.candidate").increment(1),
        Role::Follower { .. } => metrics::counter!("consul.raft.state.follower").increment(1),
        Role::Stopped { .. } => {}
    }
}

/// A server that moved or was renamed since it joined writes its new address into the membership once it leads.
pub(crate) async fn announce_address(
    raft: Raft,
    id: u64,
    me: Peer,
    mut role: watch::Receiver<Role>,
) {
    while role.wait_for(Role::is_leader).await.is_ok() {
        let known = {
            let metrics = raft.server_metrics();
            let metrics = metrics.borrow();
            let membership = metrics.membership_config.membership();
            membership.get_node(&id).is_none_or(|known| *known == me)
        };
        if !known {
            let change = ChangeMembers::SetNodes(BTreeMap::from([(id, me.clone())]));
            let written = timeout(ANNOUNCE, raft.change_membership(change, true)).await;
            match written {
                Ok(Ok(_)) => {
                    tracing::info!(address = me.address, "raft membership has the new address")
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the new address is not in the raft membership")
                }
                Err(_) => {
                    tracing::warn!("the new address is not in the raft membership: no quorum")
                }
            }
        }
        if role.wait_for(|role| !role.is_leader()).await.is_err() {
            return;
        }
    }
}
