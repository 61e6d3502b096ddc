//! Forms a new datacenter of the servers that expect each other (`bootstrap_expect`).

use crate::codec;
use crate::consensus::{Consensus, Peer};
use crate::gossip::Member;
use crate::model::{Datacenter, NodeId};
use crate::router::{self, Answer, Bootstrap, Server, Verdict};
use crate::rpc::{Destination, Pool};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// How long a server may take to say which peers it has.
const ASK: Duration = Duration::from_secs(5);

/// Rest before servers that did not answer are asked again, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(32));

/// A body without fields: an empty map.
const NOTHING: &[u8] = &[0x80];

/// What the decision needs.
pub(super) struct Expect {
    pub(super) consensus: Consensus,
    pub(super) pool: Pool,
    pub(super) members: watch::Receiver<Arc<[Member]>>,
    pub(super) datacenter: Datacenter,
    pub(super) own: NodeId,
    /// How many servers form the datacenter.
    pub(super) servers: u32,
}

/// What comes after a look at the members.
enum Next {
    /// Nothing: the datacenter exists.
    Over,
    /// Another look when the members or the role change.
    Wait,
    /// Another look in any case.
    Again,
}

/// Runs until `stop`; what it has to do may be over long before.
pub(super) async fn run(mut expect: Expect, stop: CancellationToken) {
    let over = stop.run_until_cancelled(expect.form()).await;
    if over.is_some() {
        stop.cancelled().await;
    }
}

impl Expect {
    async fn form(&mut self) {
        let mut role = self.consensus.role();
        let (mut pause, mut said) = (PAUSE.0, String::new());
        while !self.consensus.is_initialized() {
            let members = self.members.borrow_and_update().clone();
            let again = match self.look(&members, &mut said).await {
                Next::Over => return,
                Next::Wait => false,
                Next::Again => true,
            };
            tokio::select! {
                Ok(()) = self.members.changed() => pause = PAUSE.0,
                Ok(()) = role.changed() => {}
                () = tokio::time::sleep(pause), if again => pause = (pause * 2).min(PAUSE.1),
            }
        }
    }

    /// One look. What stays the same is said once.
    async fn look(&self, members: &[Member], said: &mut String) -> Next {
        let (next, text) = match router::bootstrap(self.servers, &self.datacenter, members) {
            Bootstrap::Wait { have } => {
                let text = format!("{have} of {} expected servers are there", self.servers);
                (Next::Wait, text)
            }
            Bootstrap::Blocked { reason } => (Next::Wait, reason),
            Bootstrap::Ask { servers } => {
                let answers = self.ask(&servers).await;
                match router::conclude(&self.own, &answers) {
                    Verdict::Form => return self.initialize(&servers).await,
                    Verdict::Follow { name } => {
                        (Next::Wait, format!("{name} forms the datacenter"))
                    }
                    Verdict::Exists { name } => {
                        info!(%name, "the datacenter exists already; its leader will add this server");
                        return Next::Over;
                    }
                    Verdict::Again { reason } => (Next::Again, reason),
                }
            }
        };
        if *said != text {
            warn!("bootstrap_expect: {text}");
            *said = text;
        }
        next
    }

    async fn initialize(&self, servers: &[Server]) -> Next {
        let peers: Vec<_> = servers
            .iter()
            .filter(|s| !s.tags.non_voter)
            .map(peer)
            .collect();
        let names: Vec<_> = peers.iter().map(|peer| peer.node.to_string()).collect();
        match self.consensus.initialize(peers).await {
            Ok(()) => {
                info!(servers = names.join(", "), "a new datacenter is formed");
                Next::Over
            }
            Err(error) => {
                error!(%error, "the datacenter cannot be formed");
                Next::Again
            }
        }
    }

    /// Asks the others for their Raft peers, all at once.
    async fn ask<'a>(&self, servers: &'a [Server]) -> Vec<(&'a Server, Answer)> {
        let others = servers.iter().filter(|server| server.id != self.own);
        join_all(others.map(async |server| (server, self.peers_of(server).await))).await
    }

    async fn peers_of(&self, server: &Server) -> Answer {
        let to = Destination {
            datacenter: self.datacenter.clone(),
            node: server.name.clone(),
            address: server.rpc,
        };
        let answer = match self.pool.call(&to, "Status.Peers", NOTHING, ASK).await {
            Ok(answer) => answer,
            Err(error) => return Answer::Silent(error.to_string()),
        };
        match codec::from_slice::<Vec<String>>(&answer) {
            Ok(peers) => Answer::Peers(peers.len()),
            Err(error) => Answer::Silent(error.to_string()),
        }
    }
}

fn peer(server: &Server) -> Peer {
    Peer {
        id: server.id.clone(),
        node: server.name.clone(),
        address: server.rpc.to_string(),
    }
}
