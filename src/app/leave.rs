//! Leaving the datacenter in order.

use crate::app::App;
use crate::consensus::Consensus;
use crate::model::NodeId;
use std::time::Duration;
use tracing::{info, warn};

/// How long a server that leaves waits for a new leader, and later until the others have taken it out of Raft.
const REMOVAL: Duration = Duration::from_secs(5);

impl App {
    /// Leaves the datacenter: hands leadership over, says farewell to the pool, and waits until the others have taken this
    /// server out of Raft and what is under way is done. Then [`App::stop`] it.
    pub async fn leave(&self) {
        info!("leaving the datacenter");
        hand_over(&self.consensus, &self.own).await;
        self.pools.lan().leave().await;
        if tokio::time::timeout(REMOVAL, self.consensus.removed())
            .await
            .is_err()
        {
            info!("did not hear that it was taken out of Raft");
        }
        tokio::time::sleep(self.drain).await;
        info!("left the datacenter");
        self.departure.done();
    }
}

/// Leads no longer, if there is another who can. The next leader takes this server out of Raft once it has left the pool.
async fn hand_over(consensus: &Consensus, own: &NodeId) {
    let mut role = consensus.role();
    let others = consensus
        .peers()
        .iter()
        .any(|server| server.voter && server.peer.id != *own);
    if !role.borrow().is_leader() || !others {
        return;
    }
    match consensus.transfer_leadership(None).await {
        Ok(()) => {
            let over = role.wait_for(|role| !role.is_leader());
            if tokio::time::timeout(REMOVAL, over).await.is_err() {
                warn!("nobody took leadership over in time");
            }
        }
        Err(error) => {
            warn!(%error, "leadership cannot be handed over; this server takes itself out of Raft");
            if let Err(error) = consensus.remove_server(own).await {
                warn!(%error, "this server is still a part of Raft; the next leader removes it");
            }
        }
    }
}
