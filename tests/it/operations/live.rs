//! Commands against servers and pools that run, with Consul's command line beside ours.

use super::run;
use crate::support::agent::AgentServer;
use crate::support::gossip;
use crate::support::peers;
use crate::support::server::PATIENCE;
use crate::support::server::Server;
use crate::support::server::binary;
use crate::support::trio::Trio;
use crossway::api::agent::Pools;
use crossway::gossip::Config;
use crossway::gossip::MemberStatus;
use crossway::gossip::wire::Key;
use crossway::gossip::wire::Keyring;
use crossway::model::query::KeyringRequest;
use serde_json::Value;
use serde_json::json;
use std::path::Path;

/// One server, asked by our command line and by Consul's.
#[test]
fn consul_looks_after_our_server() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let mut server = Server::start(&json!({}));
    let address = server.port(8500);
    let theirs = |args: &[&str]| run(&consul, &address, args);
    let same = |args: &[&str]| {
        // Consul's tables have spaces at the end of some lines.
        let told: Vec<String> = theirs(args)
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        let told = told.join("\n") + "\n";
        assert_eq!(run(Path::new(binary()), &address, args), told, "{args:?}");
        told
    };
    let peers = same(&["operator", "raft", "list-peers"]);
    let row: Vec<_> = peers.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        [row[0], row[2], row[3], row[4], row[5]],
        ["n1", &server.port(8300), "leader", "true", "3"]
    );
    assert!(same(&["members"]).contains("n1"));
    same(&["members", "-detailed"]);
    same(&["members", "-status=left"]);
    same(&["operator", "raft", "remove-peer", "-id=nope"]);
    same(&["operator", "raft", "remove-peer", "-address=10.0.0.9:1"]);
    same(&["operator", "raft", "remove-peer"]);
    let raft = server.rpc(
        &server.port(8300),
        "server.dc1.consul",
        "Operator.RaftGetConfiguration",
        &json!({"Datacenter": "dc1"}),
    );
    assert_eq!(raft["Servers"][0]["ID"], row[1]);
    // Reloading takes what is right and says what is wrong.
    assert_eq!(
        same(&["reload"]),
        "Configuration reload triggered\nexit=0\n"
    );
    server.set("log_level", json!("loud"));
    let told = run(Path::new(binary()), &server.port(8500), &["reload"]);
    assert!(
        told.contains("log_level") && told.ends_with("exit=1\n"),
        "{told}"
    );
    let told = run(&consul, &server.port(8500), &["reload"]);
    assert!(
        told.contains("log_level") && told.ends_with("exit=1\n"),
        "{told}"
    );
    server.set("log_level", json!("DEBUG"));
    // Leaving ends the process in order.
    let told = run(&consul, &server.port(8500), &["leave"]);
    assert_eq!(told, "Graceful leave complete\nexit=0\n");
    let (code, _) = server.wait_for_end();
    assert_eq!(code, Some(0));
}

/// Whichever server is asked, the leader takes a server out of the Raft configuration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_taken_away_by_way_of_a_follower() {
    let trio = Trio::start().await;
    let leader = trio.leader(&[0, 1, 2]).await;
    let (asked, gone) = ((leader + 1) % 3, (leader + 2) % 3);
    let servers = async || {
        let answer = trio.get(asked, "/v1/operator/raft/configuration").await;
        let list: Value = serde_json::from_str(&answer.body).unwrap();
        let list = list["Servers"].as_array().unwrap().clone();
        list.iter()
            .map(|server| server["ID"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(servers().await.len(), 3);
    let id = trio.nodes[gone].peer.id.clone();
    let answer = trio
        .send(
            asked,
            "DELETE",
            "/v1/operator/raft/peer?address=10.9.9.9:1",
            "",
        )
        .await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (
            500,
            "address \"10.9.9.9:1\" was not found in the Raft configuration"
        )
    );
    let answer = trio
        .send(
            asked,
            "DELETE",
            &format!("/v1/operator/raft/peer?id={id}"),
            "",
        )
        .await;
    assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    let left = servers().await;
    assert!(
        left.len() == 2 && !left.contains(&id.to_string()),
        "{left:?}"
    );
}

/// A member with a key, in a pool whose failed members are found soon.
fn keyed(name: &str) -> Config {
    let mut config = gossip::config(name);
    config.serf.tags.set("role", "consul");
    config.serf.tags.set("dc", "dc1");
    config.serf.keyring = Some(Keyring::new(key(1)));
    config
}

fn key(byte: u8) -> Key {
    Key::new(&[byte; 32]).unwrap()
}

/// Consul's command line and ours tell a server in a pool what to do, and print the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_is_looked_after() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let (one, other) = (
        gossip::start(keyed("s1")).await,
        gossip::start(keyed("s2")).await,
    );
    let wan = gossip::start(gossip::config("s1.dc1")).await;
    let pools = Pools {
        lan: Some(one.clone()),
        wan: Some(wan.clone()),
        servers: None,
        through_gateways: true,
    };
    let server = AgentServer::start_in("s1", None, pools).await;
    let address = server.address().to_string();
    let tell = async |program: &Path, args: &[&str]| {
        let (program, address) = (program.to_owned(), address.clone());
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let run = move || {
            run(
                &program,
                &address,
                &args.iter().map(String::as_str).collect::<Vec<_>>(),
            )
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    };
    let ours = async |args: &[&str]| tell(Path::new(binary()), args).await;
    let same = async |args: &[&str]| {
        let (ours, theirs) = (ours(args).await, tell(&consul, args).await);
        assert_eq!(ours, theirs, "{args:?}");
        ours
    };

    // Nobody is there, then somebody is.
    let nobody = gossip::address(&other).ip().to_string();
    let told = same(&["join", &format!("{nobody}:1")]).await;
    assert!(
        told.contains(&format!(
            "1 error occurred:\n\t* Failed to join {nobody}:1: "
        )),
        "{told}"
    );
    let told = same(&["join", "no-such-name.invalid"]).await;
    assert!(
        told.contains("Failed to resolve no-such-name.invalid: "),
        "{told}"
    );
    let there = gossip::address(&other).to_string();
    let told = tell(&consul, &["join", &there]).await;
    assert_eq!(
        told,
        "Successfully joined cluster by contacting 1 nodes.\nexit=0\n"
    );
    gossip::until_status(&one, "s2", MemberStatus::Alive).await;
    let told = same(&["join", "-wan", "10.9.9.9"]).await;
    assert_eq!(
        told,
        "Error joining address '10.9.9.9': Unexpected response code: 500 (WAN join is disabled when wan federation via mesh \
         gateways is enabled)\nFailed to join any nodes.\nexit=1\n"
    );
    let told = same(&["members", "-detailed"]).await;
    assert!(
        told.contains("s2 ") && told.contains("dc=dc1,role=consul,segment=<all>"),
        "{told}"
    );
    assert!(
        same(&["members", "-wan", "-detailed"])
            .await
            .contains("s1.dc1")
    );

    // A new key comes in, is used, and the old one goes.
    let (old, new) = (key(1).to_base64(), key(2).to_base64());
    let lan = |told: &str, keys: &[&str]| {
        let lines: Vec<_> = told
            .lines()
            .skip_while(|line| *line != "dc1 (LAN):")
            .skip(1)
            .collect();
        let expected: Vec<_> = keys
            .iter()
            .map(|key| format!("  {key} [2/2]"))
            .chain(["exit=0".to_owned()])
            .collect();
        assert_eq!(lines, expected, "{told}");
    };
    let told = same(&["keyring", "-list"]).await;
    assert!(
        told.contains("s1.dc1: Keyring is empty (encryption not enabled)"),
        "{told}"
    );
    lan(&same(&["keyring", "-list", "-local-only"]).await, &[&old]);
    let change = async |method: &str, key: &str| {
        let api = server.api.clone();
        let request = KeyringRequest {
            operation: method.to_owned(),
            key: key.to_owned(),
            forwarded: true,
            ..KeyringRequest::default()
        };
        let done = api.keyring(&request).await.unwrap().responses;
        assert_eq!(
            (done.len(), done[0].error.as_str(), done[0].num_nodes),
            (1, "", 2)
        );
    };
    change("install", &new).await;
    change("use", &new).await;
    let removal = KeyringRequest {
        operation: "remove".to_owned(),
        key: new.clone(),
        forwarded: true,
        ..KeyringRequest::default()
    };
    assert_eq!(
        server.api.keyring(&removal).await.unwrap().responses[0].error,
        "2/2 nodes reported failure"
    );
    change("remove", &old).await;
    lan(&same(&["keyring", "-list", "-local-only"]).await, &[&new]);
    assert!(
        same(&["keyring", "-install=short"])
            .await
            .contains("exit=1")
    );

    // Members know where they are once they have probed each other.
    eventually_async(async || {
        ours(&["rtt", "s2"])
            .await
            .starts_with("Estimated s2 <-> s1 rtt: ")
    })
    .await;
    assert!(
        same(&["rtt", "-wan", "s1.dc1", "s1.dc1"])
            .await
            .contains("(using WAN coordinates)")
    );

    // One that fails is made to leave; one that nobody knows is an error.
    other.shutdown().await;
    gossip::until_status(&one, "s2", MemberStatus::Failed).await;
    let told = same(&["force-leave", "nope"]).await;
    assert_eq!(
        told,
        "Error force leaving: Unexpected response code: 500 (agent: No node found with name 'nope')\nexit=1\n"
    );
    assert_eq!(tell(&consul, &["force-leave", "s2"]).await, "exit=0\n");
    gossip::until_status(&one, "s2", MemberStatus::Left).await;
    assert_eq!(ours(&["force-leave", "-prune", "s2"]).await, "exit=0\n");
    gossip::until(&one, "s2 forgotten", |members| members.len() == 1).await;
    assert!(
        ours(&["info"])
            .await
            .contains("serf_lan:\n\tcoordinate_resets = 0\n\tencrypted = true\n")
    );
    for pool in [one, wan] {
        pool.shutdown().await;
    }
    server.kill().await;
}

async fn eventually_async(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(std::time::Instant::now() < deadline, "it did not come");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
