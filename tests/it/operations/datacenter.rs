//! A datacenter of several servers, looked after with Consul's own command line; and servers that find each other by DNS.

use super::run;
use crate::support::cluster::Cluster;
use crate::support::dns::Dns;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::binary;
use crate::support::server::eventually;
use crate::support::server::loopback;
use serde_json::json;
use std::path::Path;

/// The row of a member or a server in a table.
fn row<'a>(table: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|cells| cells.first() == Some(&name))
}

#[test]
fn consul_looks_after_three_servers() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let mut cluster = Cluster::start(3, &json!({}));
    let leader = cluster.leader();
    let (asked, gone) = ((leader + 1) % 3, (leader + 2) % 3);
    let address = cluster.servers[asked].port(8500);
    let theirs = |args: &[&str]| run(&consul, &address, args);
    let same = |args: &[&str]| {
        let told = theirs(args);
        assert_eq!(run(Path::new(binary()), &address, args), told, "{args:?}");
        told
    };
    let members = same(&["members"]);
    for index in 0..3 {
        let name = cluster.name(index);
        let gossip = cluster.servers[index].port(8301);
        let expected = [
            name.as_str(),
            &gossip,
            "alive",
            "server",
            "1.8.7",
            "2",
            "dc1",
            "<all>",
        ];
        assert_eq!(row(&members, &name).unwrap(), expected);
    }
    let raft = same(&["operator", "raft", "list-peers"]);
    let leading = row(&raft, &cluster.name(leader)).unwrap();
    assert_eq!(
        leading[2..],
        [&cluster.servers[leader].port(8300), "leader", "true", "3"]
    );
    assert_eq!(row(&raft, &cluster.name(gone)).unwrap()[3], "follower");
    assert!(same(&["operator", "raft", "list-peers", "-stale"]).contains(&cluster.name(gone)));

    // One fails, and is made to leave: it is out of the pool and out of Raft.
    let name = cluster.name(gone);
    cluster.kill(gone);
    eventually("the member has failed", || {
        (row(&theirs(&["members"]), &name)?[2] == "failed").then_some(())
    });
    assert_eq!(theirs(&["force-leave", &name]), "exit=0\n");
    eventually("the member has left", || {
        (row(&theirs(&["members"]), &name)?[2] == "left").then_some(())
    });
    eventually("the server is out of Raft", || {
        let raft = theirs(&["operator", "raft", "list-peers"]);
        (raft.ends_with("exit=0\n") && row(&raft, &name).is_none()).then_some(())
    });
    assert_eq!(theirs(&["force-leave", "-prune", &name]), "exit=0\n");
    eventually("the member is forgotten", || {
        row(&theirs(&["members"]), &name).is_none().then_some(())
    });

    // The leader leaves in order, and the last server goes on.
    let address = cluster.servers[leader].port(8500);
    assert_eq!(
        run(&consul, &address, &["leave"]),
        "Graceful leave complete\nexit=0\n"
    );
    assert_eq!(cluster.wait_for_end(leader), Some(0));
    assert_eq!(cluster.leader(), asked);
    eventually("the leader is out of Raft", || {
        let raft = theirs(&["operator", "raft", "list-peers"]);
        (raft.lines().count() == 3).then_some(())
    });
}

/// A name that nobody knows at first, then has an address where nobody listens, and then the right one: it is looked up on
/// every attempt.
#[test]
fn a_server_follows_a_dns_name_until_it_joins() {
    let first = Server::start(&json!({"connect": {"enabled": true}}));
    let dns = Dns::start_on_port_53();
    let mut second = Server::prepare(&json!({
        "node_name": "n2", "bootstrap": false, "retry_interval": "200ms", "retry_join": ["servers.mesh.test"],
        "connect": {"enabled": true},
    }));
    let resolv = second.path("resolv.conf");
    std::fs::write(
        &resolv,
        format!("nameserver {}\noptions timeout:1\n", dns.ip()),
    )
    .unwrap();
    let script = format!(
        "mount --bind {} /etc/resolv.conf && exec \"$@\"",
        resolv.display()
    );
    second.spawn_through(&["unshare", "--mount", "sh", "-c", &script, "sh"]);
    let logged = |second: &Server, text: &str| {
        eventually(text, || second.log().contains(text).then_some(()));
    };
    logged(&second, "\"servers.mesh.test\" is not resolved: ");
    let nobody = loopback();
    dns.set("servers.mesh.test", &[nobody.into()]);
    logged(&second, &format!("{nobody}:8301"));
    dns.set("servers.mesh.test", &[nobody.into(), first.address.into()]);
    logged(&second, "joined pool=\"LAN\"");
    let (_, members) = first.get("/v1/agent/members").unwrap();
    assert_eq!(members.as_array().unwrap().len(), 2, "{members}");
}

/// Consul's text and exit code when the attempts are used up.
#[test]
fn a_server_that_joins_nobody_ends() {
    let nobody = loopback().to_string();
    let mut server = Server::prepare(&json!({
        "bootstrap": false, "retry_interval": "50ms", "retry_max": 2, "retry_join": [nobody], "connect": {"enabled": true},
    }));
    server.spawn();
    let (code, _) = server.wait_for_end();
    assert_eq!(code, Some(1));
    let log = server.log();
    assert!(
        log.contains("agent: max join LAN retry exhausted, exiting"),
        "{log}"
    );
    assert_eq!(log.matches("no member could be joined").count(), 2, "{log}");
}
