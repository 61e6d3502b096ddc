//! Who belongs to the datacenter: late, moved, replaced and removed servers.

use crate::support::raft::{Servers, get, set, until};
use crate::support::server::PATIENCE;
use crossway::consensus::{Config, Consensus, Error, Peer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_servers_get_a_snapshot_of_many_parts_then_a_vote() {
    let mut servers = Servers::prepare(5, true).await;
    servers.run(0).await;
    servers
        .at(0)
        .initialize(vec![servers.peers[0].clone()])
        .await
        .unwrap();
    let leader = servers.leader_among(&[0]).await;
    let large = "x".repeat(256 << 10);
    for at in 0..20 {
        servers
            .at(leader)
            .propose(set(&format!("large {at}"), &large))
            .await
            .unwrap();
    }
    servers.at(leader).snapshot().await.unwrap();
    for at in 1..5 {
        servers.run(at).await;
        assert!(!servers.at(at).is_initialized());
        servers
            .at(leader)
            .add_server(servers.peers[at].clone())
            .await
            .unwrap();
        assert!(servers.at(at).is_initialized());
    }
    let members = servers.at(leader).peers();
    assert!(members.iter().all(|member| member.voter));
    assert_eq!(members.len(), 5);
    for server in servers.all() {
        until("all of it", || {
            server.store().latest().kv_list("large").1.len() == 20
        })
        .await;
    }
    // More than a part of 1 MiB, so several were put together.
    assert!(
        servers.at(4).stats().last_snapshot_index >= 20,
        "it came by snapshot"
    );
    // Adding again changes nothing; removing twice neither.
    servers
        .at(leader)
        .add_server(servers.peers[4].clone())
        .await
        .unwrap();
    for _ in 0..2 {
        servers
            .at(leader)
            .remove_server(&servers.peers[4].id)
            .await
            .unwrap();
    }
    assert_eq!(servers.at(leader).peers().len(), 4);
    let noticed = tokio::time::timeout(PATIENCE, servers.at(4).removed());
    noticed.await.unwrap();
    let refused = servers.at(2).remove_server(&servers.peers[3].id).await;
    assert!(matches!(refused, Err(Error::NotLeader)), "{refused:?}");
    servers
        .at(leader)
        .propose(set("without the fifth", ""))
        .await
        .unwrap();
    assert_eq!(get(servers.at(4), "without the fifth"), None);
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_vote_gets_everything_and_counts_for_nothing() {
    let mut servers = Servers::prepare(2, false).await;
    for at in 0..2 {
        servers.run(at).await;
    }
    servers
        .at(0)
        .initialize(vec![servers.peers[0].clone()])
        .await
        .unwrap();
    servers.leader_among(&[0]).await;
    servers
        .at(0)
        .add_learner(servers.peers[1].clone())
        .await
        .unwrap();
    servers.at(0).propose(set("a", "1")).await.unwrap();
    until("the copy", || get(servers.at(1), "a").is_some()).await;
    let votes: Vec<_> = servers
        .at(0)
        .peers()
        .iter()
        .map(|peer| peer.voter)
        .collect();
    assert_eq!(votes, [true, false]);
    servers.kill(1).await;
    servers.at(0).propose(set("b", "1")).await.unwrap();
    servers
        .at(0)
        .remove_server(&servers.peers[1].id)
        .await
        .unwrap();
    assert_eq!(servers.at(0).peers().len(), 1);
    servers.end().await;
}

/// A server comes back at another address, and a new server takes the address of one that is gone for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_and_replaced_servers_are_reached_where_they_are() {
    let mut servers = Servers::start(3, false).await;
    let leader = servers.leader().await;
    let moved = (leader + 1) % 3;
    servers.kill(moved).await;
    servers.peers[moved].address = crate::support::raft::peer(9).address;
    servers.run(moved).await;
    servers
        .at(leader)
        .add_server(servers.peers[moved].clone())
        .await
        .unwrap();
    servers.at(leader).propose(set("a", "1")).await.unwrap();
    until("it is reached", || get(servers.at(moved), "a").is_some()).await;
    let members = servers.at(leader).peers();
    assert!(
        members
            .iter()
            .any(|member| member.peer == servers.peers[moved])
    );

    let lost = (leader + 2) % 3;
    servers.kill(lost).await;
    std::fs::remove_dir_all(servers.data_dir(lost)).unwrap();
    servers.peers[lost].id = "99999999-0000-4000-8000-000000000009".into();
    servers.run(lost).await;
    servers
        .at(leader)
        .add_server(servers.peers[lost].clone())
        .await
        .unwrap();
    servers.at(leader).propose(set("b", "1")).await.unwrap();
    until("it is reached", || get(servers.at(lost), "b").is_some()).await;
    assert_eq!(servers.at(leader).peers().len(), 3);
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_removes_itself_is_followed_by_another() {
    let servers = Servers::start(3, false).await;
    let leader = servers.leader().await;
    let gone = servers.peers[leader].clone();
    let (removed, noticed) = tokio::join!(
        servers.at(leader).remove_server(&gone.id),
        tokio::time::timeout(PATIENCE, servers.at(leader).removed()),
    );
    removed.unwrap();
    noticed.unwrap();
    let rest: Vec<_> = (0..3).filter(|at| *at != leader).collect();
    let next = servers.leader_among(&rest).await;
    servers.at(next).propose(set("a", "1")).await.unwrap();
    assert_eq!(servers.at(next).peers().len(), 2);
    servers.end().await;
}

#[tokio::test]
async fn a_datacenter_without_this_server_is_not_formed() {
    let me = Peer {
        id: "00000001-0000-4000-8000-000000000001".into(),
        node: "n1".into(),
        address: "127.0.0.1:1".into(),
    };
    let config = Config::new(me.id.clone(), me.node.clone(), me.address.clone());
    let server = Consensus::open(config).await.unwrap();
    let other = Peer {
        id: "00000002-0000-4000-8000-000000000001".into(),
        ..me
    };
    assert!(server.initialize(vec![other]).await.is_err());
    assert!(!server.is_initialized());
    server.shutdown().await.unwrap();
}
