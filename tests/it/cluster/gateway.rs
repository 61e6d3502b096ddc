//! A real Envoy whose bootstrap lists all servers of the datacenter.

use crate::support::cluster::Cluster;
use crate::support::gateway::Backend;
use crate::support::gateway::Gateway;
use crate::support::gateway::Special;
use crate::support::mesh::health;
use crate::support::mesh::offer;
use crate::support::mesh::through;
use crate::support::mesh::trust_domain;
use crate::support::peers;
use crate::support::server::eventually;
use serde_json::json;

/// What Envoy did with its configuration so far.
fn done(gateway: &Gateway) -> [u64; 8] {
    gateway.stats([
        "listener_manager.listener_added",
        "listener_manager.listener_modified",
        "listener_manager.listener_removed",
        "cluster_manager.cluster_added",
        "cluster_manager.cluster_modified",
        "cluster_manager.cluster_removed",
        "cluster_manager.cds.update_rejected",
        "listener_manager.lds.update_rejected",
    ])
}

/// Its stream moves on with each server that restarts, nothing is sent again, and its check is run by whoever leads
/// (case C073).
#[test]
fn a_gateway_moves_from_server_to_server() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let mut cluster = Cluster::start(3, &json!({}));
    let trust_domain = trust_domain(&cluster.servers[0]);
    let web = Backend::start("web");
    offer(&cluster.servers[0], "web", &web);
    let lists = cluster
        .servers
        .iter()
        .map(|s| format!("-grpc-addr=http://{}", s.port(8502)));
    let lists: Vec<_> = lists.collect();
    let mut flags: Vec<_> = lists.iter().map(String::as_str).collect();
    flags.push("-expose-servers");
    let special = Special {
        flags: &flags,
        ..Special::default()
    };
    let gateway = Gateway::start_special(&cluster.servers[0], &envoy, "gw1", special);
    let local = format!("web.default.dc1.internal.{trust_domain}");
    eventually("web", || through(&gateway, &local));
    for index in 0..3 {
        eventually("one server of this cluster behind the gateway", || {
            let name = format!("{}.server.dc1.consul", cluster.name(index));
            gateway.clusters()?.contains(&name).then_some(())
        });
    }
    eventually("the gateway's check", || {
        (health(&cluster.servers[0], "gw1")? == "passing").then_some(())
    });
    let before = done(&gateway);
    for index in 0..3 {
        let streams = gateway.stat("control_plane.connected_state");
        assert_eq!(streams, Some(1));
        cluster.terminate(index);
        eventually("a stream to another server", || {
            (gateway.stat("control_plane.connected_state")? == 1).then_some(())
        });
        assert_eq!(through(&gateway, &local).as_deref(), Some("web"));
        cluster.restart(index);
        cluster.wait_until_ready();
    }
    // News arrive as before, and are all that arrives.
    let other = Backend::start("other");
    offer(&cluster.servers[1], "other", &other);
    let name = format!("other.default.dc1.internal.{trust_domain}");
    eventually("news", || through(&gateway, &name));
    let after = done(&gateway);
    assert_eq!(
        after[3],
        before[3] + 1,
        "one cluster is new: {before:?} {after:?}"
    );
    assert_eq!(
        (after[4], after[5]),
        (before[4], before[5]),
        "no cluster was sent again"
    );

    let leader = cluster.leader();
    cluster.kill(leader);
    let next = cluster.leader();
    drop(gateway);
    eventually("the check under the new leader", || {
        (health(&cluster.servers[next], "gw1")? == "critical").then_some(())
    });
}
