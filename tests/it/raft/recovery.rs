//! A quorum is lost for good: `raft/peers.json`.

use crate::support::raft::{Servers, get, set, until};
use crossway::consensus::Consensus;
use serde_json::json;
use std::fs;

fn listed(servers: &Servers, at: &[usize]) -> String {
    let one = |at: &usize| {
        let peer = &servers.peers[*at];
        json!({"id": peer.id.as_str(), "address": peer.address, "non_voter": false})
    };
    serde_json::Value::from(at.iter().map(one).collect::<Vec<_>>()).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_that_are_left_form_a_datacenter_anew() {
    let mut servers = Servers::start(5, false).await;
    let leader = servers.leader().await;
    for at in 0..30 {
        servers
            .at(leader)
            .propose(set(&format!("k{at}"), "v"))
            .await
            .unwrap();
    }
    until("all have all", || {
        servers.all().all(|server| get(server, "k29").is_some())
    })
    .await;
    for at in 0..5 {
        servers.kill(at).await;
    }
    // Two of five are left: no quorum.
    let left = [1, 3];
    for at in left {
        fs::write(
            servers.data_dir(at).join("raft/peers.json"),
            listed(&servers, &left),
        )
        .unwrap();
    }
    for at in left {
        servers.run(at).await;
        assert!(
            !servers.data_dir(at).join("raft/peers.json").exists(),
            "it was used once"
        );
        assert!(servers.data_dir(at).join("raft/peers.info").exists());
    }
    let leader = servers.leader_among(&left).await;
    servers.at(leader).propose(set("after", "1")).await.unwrap();
    for at in left {
        let server = servers.at(at);
        until("old and new writes", || get(server, "after").is_some()).await;
        assert_eq!(server.store().latest().kv_list("k").1.len(), 30);
        assert_eq!(server.peers().len(), 2);
    }
    // One of those that were lost comes back empty, and then a restart changes nothing.
    fs::remove_dir_all(servers.data_dir(0)).unwrap();
    servers.run(0).await;
    servers
        .at(leader)
        .add_server(servers.peers[0].clone())
        .await
        .unwrap();
    until("it has all", || get(servers.at(0), "after").is_some()).await;
    servers.kill(1).await;
    servers.run(1).await;
    let leader = servers.leader_among(&[0, 1, 3]).await;
    servers.at(leader).propose(set("more", "1")).await.unwrap();
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_changes_nothing_and_says_what_to_do() {
    let mut servers = Servers::start(1, false).await;
    servers.at(0).propose(set("a", "1")).await.unwrap();
    servers.kill(0).await;
    let file = servers.data_dir(0).join("raft/peers.json");
    let stranger = json!([{"id": "ffffffff-0000-4000-8000-000000000001", "address": "a:1"}]);
    for (text, part) in [
        (r#"["10.0.0.1:8300"]"#.to_owned(), "addresses alone"),
        (stranger.to_string(), "this node is not in the list"),
        ("x".repeat(2 << 20), "1 MiB"),
    ] {
        fs::write(&file, text).unwrap();
        let Err(error) = Consensus::open(servers.config(0)).await else {
            panic!("it started: {part}");
        };
        assert!(error.to_string().contains(part), "{error}");
        assert!(file.exists());
    }
    fs::remove_file(&file).unwrap();
    servers.run(0).await;
    servers.leader().await;
    assert_eq!(get(servers.at(0), "a").as_deref(), Some("1"));
    servers.end().await;

    // A server without any state has nothing to recover.
    let mut servers = Servers::prepare(1, false).await;
    fs::create_dir_all(servers.data_dir(0).join("raft")).unwrap();
    let file = servers.data_dir(0).join("raft/peers.json");
    fs::write(&file, listed(&servers, &[0])).unwrap();
    let Err(error) = Consensus::open(servers.config(0)).await else {
        panic!("it started");
    };
    assert!(error.to_string().contains("no state to recover"), "{error}");
    fs::remove_file(&file).unwrap();
    servers.run(0).await;
    servers.end().await;
}
