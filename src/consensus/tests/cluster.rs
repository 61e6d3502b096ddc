//! Three servers in one process, joined by an in-memory transport.

use super::*;
use crate::consensus::{Lane, Peer, Transport, TransportError};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Addresses to servers; those that are cut off neither send nor receive.
#[derive(Default)]
struct Wire {
    servers: Mutex<HashMap<String, Consensus>>,
    cut: Mutex<HashSet<String>>,
}

struct End {
    me: String,
    wire: Arc<Wire>,
}

#[async_trait]
impl Transport for End {
    async fn call(&self, peer: &Peer, _: Lane, request: Bytes) -> Result<Bytes, TransportError> {
        let cut = self.wire.cut.lock().clone();
        let server = self.wire.servers.lock().get(&peer.address).cloned();
        match server {
            Some(server) if !cut.contains(&self.me) && !cut.contains(&peer.address) => {
                server.receive(request).await
            }
            _ => Err(TransportError(format!("{peer} is not reachable"))),
        }
    }
}

fn peer(n: u64) -> Peer {
    Peer {
        id: format!("{n:08x}-0000-4000-8000-00000000000{n}").into(),
        node: format!("n{n}").into(),
        address: format!("n{n}:8300"),
    }
}

impl Wire {
    async fn start(self: &Arc<Self>, n: u64, dir: Option<&Path>, bootstrap: bool) -> Consensus {
        let me = peer(n);
        let end = End {
            me: me.address.clone(),
            wire: self.clone(),
        };
        let config = Config {
            data_dir: dir.map(Path::to_owned),
            bootstrap,
            raft_multiplier: 2,
            snapshot_threshold: 64,
            trailing_logs: 8,
            transport: Some(Arc::new(end)),
            ..Config::new(me.id, me.node, me.address.clone())
        };
        let server = Consensus::open(config).await.unwrap();
        self.servers.lock().insert(me.address, server.clone());
        server
    }

    async fn three(self: &Arc<Self>) -> Vec<Consensus> {
        let first = self.start(1, None, true).await;
        wait_leader(&first).await;
        put(&first, "before", "1").await;
        let mut all = vec![first];
        for n in 2..=3 {
            all.push(self.start(n, None, false).await);
            all[0].add_server(peer(n)).await.unwrap();
        }
        all
    }

    fn cut(&self, n: u64) {
        self.cut.lock().insert(peer(n).address);
    }

    fn heal(&self) {
        self.cut.lock().clear();
    }
}

async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = timeout(PATIENCE, async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    wait.await.unwrap_or_else(|_| panic!("{what}"));
}

/// The one of these servers that leads, once there is one.
async fn new_leader(servers: &[Consensus]) -> Consensus {
    let mut found = None;
    eventually("a leader among them", || {
        let mut leading = servers.iter().filter(|s| s.role().borrow().is_leader());
        found = leading.next().cloned();
        found.is_some()
    })
    .await;
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_reach_all_and_followers_name_the_leader() {
    let wire = Arc::new(Wire::default());
    let all = wire.three().await;
    let written = put(&all[0], "a", "1").await;
    for server in &all {
        eventually("the write everywhere", || get(server, "a").is_some()).await;
        let before = get(server, "before").as_deref() == Some("1");
        assert!(before, "the log from before the join is there too");
        let state = server.store().latest();
        assert_eq!(state.kv.get("a").unwrap().modify_index, written.index);
    }
    wait_role(&all[1], |role| {
        matches!(role, Role::Follower { leader: Some(_) })
    })
    .await;
    let leader = all[1].leader().unwrap();
    assert_eq!(leader, peer(1));
    let refused = all[1].propose(set("a", "2")).await;
    assert_eq!(refused, Err(ProposeError::NotLeader { leader }));
    assert!(all[1].last_contact().unwrap() < PATIENCE);
    all[0].verify_leader().await.unwrap();
    assert_eq!(all[0].peers().iter().filter(|peer| peer.voter).count(), 3);
    assert_eq!(all[0].stats().num_peers, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_leader_is_replaced_and_nothing_is_lost() {
    let wire = Arc::new(Wire::default());
    let all = wire.three().await;
    for at in 0..20 {
        put(&all[0], &format!("k{at}"), "v").await;
    }
    wire.cut(1);
    let next = new_leader(&all[1..]).await;
    put(&next, "after", "1").await;
    for at in 0..20 {
        assert!(get(&next, &format!("k{at}")).is_some());
    }
    // The old one cannot confirm that it leads, nor have a write acknowledged.
    assert!(all[0].verify_leader().await.is_err());
    wire.heal();
    eventually("the old leader catches up", || {
        get(&all[0], "after").is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_server_gets_a_snapshot_and_a_removed_one_no_more() {
    let wire = Arc::new(Wire::default());
    let dir = tempfile::tempdir().unwrap();
    let first = wire.start(1, None, true).await;
    wait_leader(&first).await;
    for at in 0..300 {
        put(&first, &format!("k{at}"), "v").await;
    }
    first.snapshot().await.unwrap();
    let late = wire.start(2, Some(dir.path()), false).await;
    first.add_server(peer(2)).await.unwrap();
    eventually("the late server has all", || {
        late.store().latest().kv.len() == 300
    })
    .await;
    assert!(late.stats().last_snapshot_index > 0, "it came by snapshot");
    // Its own disk has it all.
    wire.servers.lock().remove(&peer(2).address);
    late.shutdown().await.unwrap();
    let late = wire.start(2, Some(dir.path()), false).await;
    assert!(late.store().latest().kv.len() == 300);
    put(&first, "with two", "1").await;
    first.remove_server(&peer(2).id).await.unwrap();
    assert_eq!(first.peers().len(), 1);
    put(&first, "alone", "1").await;
    assert_eq!(get(&late, "alone"), None);
}
