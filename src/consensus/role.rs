//! What this server is just now (pure).

use crate::consensus::types::Peer;
use openraft::ServerState;
use openraft::metrics::RaftServerMetrics;

/// This server's part in Raft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits to hear of one; also a server that may not vote yet.
    Follower {
        /// Who leads, if known.
        leader: Option<Peer>,
    },
    /// Asks for votes.
    Candidate,
    /// Leads in this term.
    Leader {
        /// The Raft term.
        term: u64,
    },
    /// Raft has ended on this server: it was shut down, or its disk failed. The process should exit with the reason.
    Stopped {
        /// Why.
        reason: String,
    },
}

impl Role {
    /// Whether this server leads.
    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader { .. })
    }

    /// The name Consul gives it in `raft.state`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Follower { .. } => "Follower",
            Self::Candidate => "Candidate",
            Self::Leader { .. } => "Leader",
            Self::Stopped { .. } => "Shutdown",
        }
    }
}

/// Reads the role out of what openraft reports.
pub(crate) fn role(metrics: &RaftServerMetrics<u64, Peer>) -> Role {
    match metrics.state {
        ServerState::Leader => Role::Leader {
            term: metrics.vote.leader_id().term,
        },
        ServerState::Candidate => Role::Candidate,
        ServerState::Shutdown => Role::Stopped {
            reason: "shut down".to_owned(),
        },
        ServerState::Follower | ServerState::Learner => {
            let membership = metrics.membership_config.membership();
            let leader = metrics
                .current_leader
                .filter(|leader| *leader != metrics.id)
                .and_then(|leader| membership.get_node(&leader));
            Role::Follower {
                leader: leader.cloned(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::{Membership, StoredMembership, Vote};
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    fn metrics(state: ServerState, leader: Option<u64>) -> RaftServerMetrics<u64, Peer> {
        let peer = |name: &str| Peer {
            node: name.into(),
            ..Peer::default()
        };
        let nodes = BTreeMap::from([(1, peer("n1")), (2, peer("n2"))]);
        let membership = Membership::new(vec![BTreeSet::from([1, 2])], nodes);
        RaftServerMetrics {
            id: 1,
            vote: Vote::new_committed(5, 2),
            state,
            current_leader: leader,
            membership_config: Arc::new(StoredMembership::new(None, membership)),
        }
    }

    #[test]
    fn a_follower_names_its_leader() {
        let Role::Follower { leader } = role(&metrics(ServerState::Follower, Some(2))) else {
            panic!("not a follower");
        };
        assert_eq!(leader.unwrap().node, "n2");
        // A restarted server may still be named as leader while it is none.
        let stale = role(&metrics(ServerState::Learner, Some(1)));
        assert_eq!(stale, Role::Follower { leader: None });
    }

    #[test]
    fn a_leader_knows_its_term() {
        let leader = role(&metrics(ServerState::Leader, Some(1)));
        assert_eq!(leader, Role::Leader { term: 5 });
        assert_eq!(leader.as_str(), "Leader");
    }
}
