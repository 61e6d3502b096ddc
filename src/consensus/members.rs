//! Forming a datacenter, and changing who belongs to it.

use crate::consensus::config::raft_id;
use crate::consensus::error::Error;
use crate::consensus::handle::Consensus;
use crate::consensus::types::Peer;
use crate::model::NodeId;
use openraft::ChangeMembers;
use openraft::error::{ClientWriteError, InitializeError, RaftError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::timeout;

/// How long a change of the membership may take to be written by a quorum, and then to show.
const CHANGE: Duration = Duration::from_secs(10);
/// How long a new server may take to get everything there is; the next try goes on from there.
const CATCH_UP: Duration = Duration::from_secs(30);

type Change = ChangeMembers<u64, Peer>;

impl Consensus {
    /// Whether this server is or was part of a datacenter: it has a log, a snapshot, a membership or has voted.
    pub fn is_initialized(&self) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        let members = metrics.membership_config.membership().nodes().count();
        members > 0 || metrics.current_term > 0 || self.inner.log.last().is_some()
    }

    /// Forms a datacenter of these servers, this one among them. All of them call this with the same list. Does nothing
    /// on a server that is part of a datacenter already.
    ///
    /// # Errors
    /// If this server is not in the list, or Raft has ended.
    pub async fn initialize(&self, peers: Vec<Peer>) -> Result<(), Error> {
        let mut members = BTreeMap::new();
        for peer in peers {
            members.insert(raft_id(&peer.id)?, peer);
        }
        match self.inner.raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
            Err(error) => Err(Error::Raft(error.to_string())),
        }
    }

    /// Adds a server: first without a vote until it has caught up, then with one. A server that is known already is given
    /// its new address or name, and a vote if it has none. An older server at the same address is removed. Works on the
    /// leader alone.
    ///
    /// # Errors
    /// If this server does not lead, another change is under way, or the new server does not catch up in time; it is then
    /// a member without a vote, and adding it again goes on from there.
    pub async fn add_server(&self, peer: Peer) -> Result<(), Error> {
        let id = raft_id(&peer.id)?;
        self.add_learner(peer.clone()).await?;
        if self.is_voter(id) {
            return Ok(());
        }
        // Waits until the server has the log.
        let caught_up = self.inner.raft.add_learner(id, peer, true);
        let caught_up = timeout(CATCH_UP, caught_up).await;
        caught_up
            .map_err(|_| Error::Slow("the new server has the log"))?
            .map_err(failed)?;
        self.change(Change::AddVoterIds(BTreeSet::from([id])), true)
            .await
    }

    /// Adds a server that gets everything and never votes, or gives a known one its new address or name.
    ///
    /// # Errors
    /// If this server does not lead or another change is under way.
    pub async fn add_learner(&self, peer: Peer) -> Result<(), Error> {
        let id = raft_id(&peer.id)?;
        let members = self.members();
        let mut old = members.iter().filter(|(known, _)| **known != id);
        if let Some((_, old)) = old.find(|(_, old)| old.address == peer.address) {
            tracing::info!(server = %old, new = %peer.id, "another server has this address now");
            self.remove_server(&old.id).await?;
        }
        match members.get(&id) {
            Some(known) if *known == peer => Ok(()),
            // A majority has written the change before the old address is forgotten, so no two leaders can come of it.
            _ => {
                self.change(Change::SetNodes(BTreeMap::from([(id, peer)])), true)
                    .await
            }
        }
    }

    /// Removes a server from the membership; does nothing if it is not there. Works on the leader alone. A leader that
    /// removes itself stops leading.
    ///
    /// # Errors
    /// If this server does not lead or another change is under way.
    pub async fn remove_server(&self, id: &NodeId) -> Result<(), Error> {
        let id = raft_id(id)?;
        if self.inner.role.borrow().is_leader() && !self.members().contains_key(&id) {
            return Ok(());
        }
        let gone = BTreeSet::from([id]);
        let change = match self.is_voter(id) {
            true => Change::RemoveVoters(gone),
            false => Change::RemoveNodes(gone),
        };
        self.change(change, false).await
    }

    /// Removes a server from the membership, wherever the leader is.
    ///
    /// # Errors
    /// As [`Self::remove_server`], or the leader cannot be reached.
    pub async fn expel_server(&self, id: &NodeId) -> Result<(), Error> {
        match self.leader() {
            Some(leader) if !self.inner.role.borrow().is_leader() => {
                self.inner.forwarder.remove(&leader, id).await
            }
            _ => self.remove_server(id).await,
        }
    }

    /// Waits until this server was removed from the membership. The last it hears of that is that it loses its vote.
    pub async fn removed(&self) {
        let id = self.inner.id;
        let mut server = self.inner.raft.server_metrics();
        let removed = server.wait_for(|server| {
            let membership = server.membership_config.membership();
            let sets = membership.get_joint_config();
            let loses_vote = sets.len() > 1 && sets.last().is_some_and(|last| !last.contains(&id));
            loses_vote || (!sets.is_empty() && membership.get_node(&id).is_none())
        });
        let _ = removed.await; // An error says that Raft has ended, and with it the membership.
    }

    fn members(&self) -> BTreeMap<u64, Peer> {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        let nodes = metrics.membership_config.membership().nodes();
        nodes.map(|(id, peer)| (*id, peer.clone())).collect()
    }

    fn is_voter(&self, id: u64) -> bool {
        let metrics = self.inner.raft.metrics();
        let metrics = metrics.borrow();
        metrics
            .membership_config
            .voter_ids()
            .any(|voter| voter == id)
    }

    /// Changes the membership and waits until [`Self::peers`] shows it.
    async fn change(&self, change: Change, retain: bool) -> Result<(), Error> {
        if !self.inner.role.borrow().is_leader() {
            return Err(Error::NotLeader);
        }
        let raft = &self.inner.raft;
        let written = timeout(CHANGE, raft.change_membership(change, retain)).await;
        let written = written.map_err(|_| Error::Slow("a quorum writes the membership"))?;
        let at = Some(written.map_err(failed)?.log_id);
        raft.wait(Some(CHANGE))
            .metrics(|m| *m.membership_config.log_id() >= at, "membership")
            .await
            .map_err(|error| Error::Raft(error.to_string()))?;
        Ok(())
    }
}

fn failed(error: RaftError<u64, ClientWriteError<u64, Peer>>) -> Error {
    match error {
        RaftError::APIError(ClientWriteError::ForwardToLeader(_)) => Error::NotLeader,
        other => Error::Raft(other.to_string()),
    }
}
