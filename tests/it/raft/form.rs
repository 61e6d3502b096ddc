//! Forming a datacenter, replacing its leader, and refusing who does not belong to it.

use crate::support::raft::{Pass, Servers, get, set, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_form_a_datacenter_and_replace_a_killed_leader() {
    for tls in [false, true] {
        let mut servers = Servers::start(3, tls).await;
        let first = servers.leader().await;
        let written = servers.at(first).propose(set("a", "1")).await.unwrap();
        for server in servers.all() {
            until("the write everywhere", || get(server, "a").is_some()).await;
            let (_, entry) = server.store().latest().kv_get("a");
            assert_eq!(entry.unwrap().modify_index, written.index);
            assert!(server.is_initialized());
            server.initialize(servers.peers.clone()).await.unwrap(); // Once more does nothing.
        }
        let known = servers.at(first).peers();
        assert!(known.iter().all(|known| known.voter));
        let leads = known.iter().filter(|known| known.leader);
        let leads: Vec<_> = leads.map(|known| &known.peer).collect();
        assert_eq!(leads, [&servers.peers[first]]);
        until("the leader knows how far all are", || {
            let known = servers.at(first).peers();
            known
                .iter()
                .all(|known| known.last_log >= Some(written.index))
        })
        .await;

        servers.kill(first).await;
        let second = servers.leader().await;
        assert_ne!(first, second);
        servers.at(second).propose(set("b", "2")).await.unwrap();
        assert_eq!(get(servers.at(second), "a").as_deref(), Some("1"));
        servers.run(first).await;
        until("the restarted server has all", || {
            get(servers.at(first), "b").is_some()
        })
        .await;
        servers.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_replaced_and_comes_back_as_follower() {
    let servers = Servers::start(3, false).await;
    let first = servers.leader().await;
    servers.set_links(first, Pass::Swallow);
    let rest: Vec<_> = (0..3).filter(|at| *at != first).collect();
    let second = servers.leader_among(&rest).await;
    servers.at(second).propose(set("a", "1")).await.unwrap();
    servers.set_links(first, Pass::All);
    assert_ne!(servers.leader().await, first);
    until("it catches up", || get(servers.at(first), "a").is_some()).await;
    servers.end().await;
}
