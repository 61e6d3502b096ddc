//! Several real servers form one datacenter, lose members and leaders, and lose no write.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The servers run on the clock of the machine.
#![allow(clippy::print_stderr)] // Figures of a run are worth seeing.

use crate::support::cluster::Cluster;
use crate::support::cluster::Writers;
use crate::support::cluster::keys;
use crate::support::server::eventually;
use serde_json::Value;
use serde_json::json;
use std::time::Duration;
use std::time::Instant;

mod client_agent;
mod gateway;

/// Numbers of serf's statuses, as `/v1/agent/members` shows them.
const ALIVE: u64 = 1;
const LEFT: u64 = 3;
const FAILED: u64 = 4;

fn http_addresses(cluster: &Cluster) -> Vec<String> {
    cluster.servers.iter().map(|s| s.port(8500)).collect()
}

fn all_see_the_same(cluster: &Cluster) {
    let names: Vec<_> = cluster.live().iter().map(|i| cluster.name(*i)).collect();
    for index in cluster.live() {
        eventually("all members alive", || {
            let members = cluster.members(index);
            let alive = |name| members.get(name) == Some(&ALIVE);
            (members.len() == names.len() && names.iter().all(alive)).then_some(())
        });
    }
    let catalog = |index: usize, path: &str| {
        let (status, mut rows) = cluster.servers[index].get(path).unwrap();
        assert_eq!(status, 200, "{rows}");
        rows.as_array_mut()
            .unwrap()
            .retain(|row| row != &Value::Null);
        rows
    };
    for path in [
        "/v1/catalog/nodes",
        "/v1/health/state/any",
        "/v1/catalog/service/consul",
    ] {
        // The rows settle when every agent has synchronised its own.
        eventually("the same catalog everywhere", || {
            let live = cluster.live();
            let first = catalog(live[0], path);
            let same = live.iter().all(|index| catalog(*index, path) == first);
            (same && !first.as_array().unwrap().is_empty()).then_some(())
        });
    }
    for name in &names {
        let status = cluster.serf_health(cluster.live()[0], name);
        assert_eq!(status.as_deref(), Some("passing"), "{name}");
    }
}

#[test]
fn three_servers_form_a_datacenter() {
    let cluster = Cluster::start(3, &json!({}));
    all_see_the_same(&cluster);
    cluster.wait_for_voters(&[0, 1, 2]);
    for index in 0..3 {
        let key = format!("from-{index}");
        assert!(cluster.put(index, &key, "x"), "a write through any server");
        for reader in 0..3 {
            let (status, _) = cluster.servers[reader]
                .get(&format!("/v1/kv/{key}"))
                .unwrap();
            assert_eq!(status, 200, "what was acknowledged is there for {reader}");
        }
    }
    let (_, node) = cluster.servers[0].get("/v1/catalog/node/s2").unwrap();
    let address = cluster.servers[1].address.to_string();
    assert_eq!(node["Node"]["Address"], json!(address));
    eventually("the addresses that s2's own agent adds", || {
        let (_, node) = cluster.servers[0].get("/v1/catalog/node/s2").ok()?;
        (node["Node"]["TaggedAddresses"]["lan"] == json!(address)).then_some(())
    });
}

#[test]
fn three_servers_form_a_datacenter_with_tls_and_encrypted_gossip() {
    let mut cluster = Cluster::start_secure(3, &json!({}));
    all_see_the_same(&cluster);
    let leader = cluster.leader();
    cluster.kill(leader);
    let follower = cluster.live()[0];
    eventually("a write under the next leader", || {
        cluster.put(follower, "after", "x").then_some(())
    });
    let late = cluster.add();
    cluster.wait_until_ready();
    assert!(cluster.put(late, "late", "x"));
}

/// A leader is killed with -9: the next one is there within three seconds at `raft_multiplier` 1.
#[test]
fn the_next_leader_comes_soon() {
    let mut cluster = Cluster::start(3, &json!({}));
    let mut times = Vec::new();
    for round in 0..3 {
        let leader = cluster.leader();
        let follower = cluster.live().into_iter().find(|i| *i != leader).unwrap();
        let killed = Instant::now();
        cluster.kill(leader);
        let mut n = 0;
        eventually("an accepted write", || {
            n += 1;
            cluster
                .put(follower, &format!("round-{round}/{n}"), "x")
                .then_some(())
        });
        times.push(killed.elapsed());
        cluster.restart(leader);
        cluster.wait_until_ready();
    }
    eprintln!("from kill -9 of the leader to an accepted write: {times:?}");
    let best = times.iter().min().unwrap();
    assert!(*best <= Duration::from_secs(3), "{times:?}");
}

#[test]
fn no_acknowledged_write_is_lost_when_leaders_die() {
    let mut cluster = Cluster::start(3, &json!({"raft_snapshot_threshold": 500}));
    let writers = Writers::start(8, "kills", &http_addresses(&cluster));
    for _ in 0..10 {
        let leader = cluster.leader();
        cluster.kill(leader);
        cluster.leader(); // The two others have found one.
        cluster.restart(leader);
    }
    cluster.wait_until_ready();
    let written = writers.stop();
    let count = written.acknowledged.len();
    eprintln!("{count} writes, longest gap {:?}", written.longest_gap);
    assert!(count > 100, "only {count} writes went through");
    for index in cluster.live() {
        let found = keys(&cluster.servers[index].port(8500), "kills/");
        let lost: Vec<_> = written.acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "server {index} lacks {lost:?}");
    }
}

#[test]
fn late_servers_get_a_vote() {
    let mut cluster = Cluster::start(3, &json!({}));
    for n in 0..20 {
        assert!(cluster.put(0, &format!("early/{n}"), "x"));
    }
    let late = [cluster.add(), cluster.add()];
    cluster.wait_until_ready();
    cluster.wait_for_voters(&[0, 1, 2, 3, 4]);
    all_see_the_same(&cluster);
    assert_eq!(
        keys(&cluster.servers[late[1]].port(8500), "early/").len(),
        20
    );
    // Their votes count: without two of the first three the datacenter goes on.
    for _ in 0..2 {
        let old = cluster.live().into_iter().find(|index| *index < 3).unwrap();
        cluster.kill(old);
        cluster.leader();
    }
    eventually("a write", || {
        cluster.put(late[0], "with-late-votes", "x").then_some(())
    });
}

#[test]
fn a_server_leaves_in_order() {
    let mut cluster = Cluster::start(3, &json!({"skip_leave_on_interrupt": false}));
    let late = cluster.add();
    cluster.wait_until_ready();
    cluster.wait_for_voters(&[0, 1, 2, 3]);
    for leaver in [late, cluster.leader()] {
        let writers = Writers::start(2, &format!("leave-{leaver}"), &http_addresses(&cluster));
        cluster.servers[leaver].signal(rustix::process::Signal::INT);
        assert_eq!(cluster.wait_for_end(leaver), Some(0), "it ends by itself");
        let name = cluster.name(leaver);
        cluster.wait_for_voters(&cluster.live());
        for index in cluster.live() {
            eventually("it left", || {
                (cluster.members(index).get(&name) == Some(&LEFT)).then_some(())
            });
        }
        let someone = cluster.live()[0];
        eventually("it is gone from the catalog", || {
            let (_, node) = cluster.servers[someone]
                .get(&format!("/v1/catalog/node/{name}"))
                .ok()?;
            node.is_null().then_some(())
        });
        let written = writers.stop();
        let found = keys(
            &cluster.servers[someone].port(8500),
            &format!("leave-{leaver}/"),
        );
        assert!(written.acknowledged.is_subset(&found), "a write was lost");
    }
}

/// `leave_on_terminate` is off on servers: they come back.
#[test]
fn a_terminated_server_stays_a_member() {
    let mut cluster = Cluster::start(3, &json!({}));
    let follower = (cluster.leader() + 1) % 3;
    assert_eq!(cluster.terminate(follower), Some(0));
    let name = cluster.name(follower);
    let someone = cluster.live()[0];
    eventually("it failed", || {
        let failed = cluster.members(someone).get(&name) == Some(&FAILED);
        let critical = cluster.serf_health(someone, &name).as_deref() == Some("critical");
        (failed && critical).then_some(())
    });
    cluster.wait_for_voters(&[0, 1, 2]);
    cluster.restart(follower);
    cluster.wait_until_ready();
    all_see_the_same(&cluster);
}

/// A server that died for good is removed when a new one has taken its place.
#[test]
fn a_dead_server_is_replaced() {
    let mut cluster = Cluster::start(3, &json!({}));
    let dead = (cluster.leader() + 1) % 3;
    cluster.kill(dead);
    let name = cluster.name(dead);
    let someone = cluster.live()[0];
    eventually("it failed", || {
        (cluster.members(someone).get(&name) == Some(&FAILED)).then_some(())
    });
    let fresh = cluster.add();
    cluster.wait_until_ready();
    let mut stay = cluster.live();
    stay.sort_unstable();
    assert!(stay.contains(&fresh));
    cluster.wait_for_voters(&stay);
    eventually("it is gone from the catalog", || {
        let (_, node) = cluster.servers[someone]
            .get(&format!("/v1/catalog/node/{name}"))
            .ok()?;
        node.is_null().then_some(())
    });
}

/// One server after the other is stopped and started: no write is lost, and no read fails for longer than
/// `rpc_hold_timeout` lets it wait.
#[test]
fn a_rolling_restart_loses_nothing() {
    let mut cluster = Cluster::start_secure(3, &json!({}));
    let writers = Writers::start(4, "rolling", &http_addresses(&cluster));
    assert!(cluster.put(0, "read-me", "x"));
    for index in 0..3 {
        // What a client sees that reads through the servers that stay.
        assert_eq!(cluster.terminate(index), Some(0));
        for reader in cluster.live() {
            let (status, body) = cluster.servers[reader].get("/v1/kv/read-me").unwrap();
            assert_eq!(status, 200, "{body}");
        }
        cluster.restart(index);
        cluster.wait_until_ready();
        let (status, _) = cluster.servers[index].get("/v1/kv/read-me").unwrap();
        assert_eq!(status, 200);
    }
    let written = writers.stop();
    eprintln!(
        "{} writes, longest gap {:?}",
        written.acknowledged.len(),
        written.longest_gap
    );
    for index in 0..3 {
        let found = keys(&cluster.servers[index].port(8500), "rolling/");
        let lost: Vec<_> = written.acknowledged.difference(&found).collect();
        assert!(lost.is_empty(), "server {index} lacks {lost:?}");
    }
}

/// A leader that is stopped in its tracks and comes back later does not believe that it still leads.
#[test]
fn a_leader_that_slept_follows_the_new_one() {
    let mut cluster = Cluster::start(3, &json!({}));
    let leader = cluster.leader();
    cluster.pause(leader);
    let next = cluster.leader();
    assert_ne!(next, leader);
    assert!(cluster.put(next, "meanwhile", "x"));
    cluster.resume(leader);
    let address = cluster.servers[leader].port(8500);
    assert_eq!(
        keys(&address, "meanwhile").len(),
        1,
        "the first answer is not an old one"
    );
    assert!(cluster.put(leader, "again", "x"));
    all_see_the_same(&cluster);
}
