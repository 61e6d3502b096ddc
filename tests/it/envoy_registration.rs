//! Which real Envoy gets what: how gateways are registered, found, told apart and kept healthy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The clock of the machine is the one that Envoy has.

use crate::support::gateway::Backend;
use crate::support::gateway::GATEWAY_PORT;
use crate::support::gateway::Gateway;
use crate::support::gateway::Special;
use crate::support::gateway::dial;
use crate::support::mesh::health;
use crate::support::mesh::native;
use crate::support::mesh::offer;
use crate::support::mesh::publish;
use crate::support::mesh::service;
use crate::support::mesh::through;
use crate::support::mesh::trust_domain;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::binary;
use crate::support::server::eventually;
use crate::support::server::loopback;
use serde_json::Value;
use serde_json::json;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

/// What waits for a timer, Envoy's or ours, takes 5 s and more. What goes at once takes milliseconds, or a while on a busy
/// machine.
const AT_ONCE: Duration = Duration::from_secs(3);

/// What a gateway was ever sent.
fn pushes(gateway: &Gateway) -> [u64; 2] {
    gateway.stats([
        "cluster_manager.cds.update_success",
        "listener_manager.lds.update_success",
    ])
}

fn refused(gateway: &Gateway) -> [u64; 2] {
    gateway.stats([
        "cluster_manager.cds.update_rejected",
        "listener_manager.lds.update_rejected",
    ])
}

fn register(agent: &Server, node: &str, address: &str, service: &Value) {
    let body = json!({"Node": node, "Address": address, "Service": service});
    agent.put("/v1/catalog/register", &body);
}

#[test]
fn a_change_of_one_gateway_reaches_it_at_once_and_it_alone() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let one = Gateway::start(&agent, &envoy, "gw1");
    let two = Gateway::start(&agent, &envoy, "gw2");
    let backend = Backend::start("dc2");
    let at = backend.address.to_string();
    publish(&agent, "dc2", &[(&at, backend.port, "passing")]);
    for gateway in [&one, &two] {
        eventually("dc2", || through(gateway, "server.dc2.consul"));
    }
    let before = pushes(&two);

    let lan = one.address.to_string();
    let mut changed = service(&agent, "gw1", "mesh-gateway");
    let more = loopback();
    changed["Proxy"]["Config"]["envoy_gateway_bind_addresses"] =
        json!({"more": {"address": more.to_string(), "port": GATEWAY_PORT}});
    let start = Instant::now();
    register(&agent, "gw1", &lan, &changed);
    let further = format!("{more}:{GATEWAY_PORT}");
    eventually("the further address", || {
        dial(&further, Some("server.dc2.consul")).ok()
    });
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());

    changed["Meta"] = json!({});
    let start = Instant::now();
    register(&agent, "gw1", &lan, &changed);
    eventually("the end of the way to servers", || {
        let clusters = one.clusters()?;
        (!clusters.contains(&"server.dc2.consul".to_owned())).then_some(())
    });
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert!(through(&one, "server.dc2.consul").is_none());
    assert_eq!(pushes(&two), before);
    assert!(through(&two, "server.dc2.consul").is_some());
    assert_eq!((refused(&one), refused(&two)), ([0, 0], [0, 0]));
}

/// C041: an address under several tags is one listener, which nothing shakes.
#[test]
fn an_address_under_several_tags_is_one_listener_that_stays() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let lan = gateway.address.to_string();
    let mut registered = service(&agent, "gw1", "mesh-gateway");
    assert_eq!(
        registered["Proxy"]["Config"]["envoy_gateway_bind_tagged_addresses"],
        true
    );
    for tag in ["lan_ipv4", "wan_ipv4", "z"] {
        registered["TaggedAddresses"][tag] = json!({"Address": lan, "Port": GATEWAY_PORT});
    }
    let changes = || {
        gateway.stats([
            "listener_manager.listener_added",
            "listener_manager.listener_modified",
            "listener_manager.listener_removed",
            "listener_manager.total_listeners_active",
        ])
    };
    let backend = Backend::start("web");
    let td = trust_domain(&agent);
    for round in 0..10 {
        register(&agent, "gw1", &lan, &registered);
        offer(&agent, &format!("s{round}"), &backend);
        let name = format!("s{round}.default.dc1.internal.{td}");
        eventually("the service", || through(&gateway, &name));
    }
    assert_eq!(changes(), [1, 0, 0, 1]);
}

/// C050: there is nothing to route, and the gateway is ready all the same.
#[test]
fn a_gateway_without_services_is_ready_at_once() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    trust_domain(&agent);
    let gateway = Gateway::spawn(&agent, &envoy, "gw1", Special::default());
    eventually("Envoy's admin port", || gateway.admin("/server_info"));
    let start = Instant::now();
    eventually("readiness", || gateway.admin("/ready"));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert_eq!(gateway.clusters(), Some(vec![]));
    assert_eq!(gateway.stats(["cluster_manager.cds.update_success"]), [1]);
}

/// An id on several nodes, and an id that nobody has: Envoy's own log says what to correct, and correcting it helps
/// without a restart of Envoy.
#[test]
fn an_ambiguous_and_an_unknown_id_are_explained_in_envoys_log() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let nameless = |bootstrap: &mut Value| {
        let metadata = bootstrap["node"]["metadata"].as_object_mut().unwrap();
        assert_eq!(metadata.remove("node_name"), Some(json!("gw1")));
    };
    let unknown = |bootstrap: &mut Value| bootstrap["node"]["id"] = json!("nobody");
    let twin =
        json!({"Kind": "mesh-gateway", "ID": "mesh-gateway", "Service": "mesh-gateway", "Port": 1});
    register(&agent, "Twin", "127.0.0.1", &twin);
    let spawn = |name: &str, edit: &dyn Fn(&mut Value)| {
        let special = Special {
            edit: Some(edit),
            ..Special::default()
        };
        Gateway::spawn(&agent, &envoy, name, special)
    };
    let two = spawn("gw2", &unknown);
    agent.put("/v1/catalog/deregister", &json!({"Node": "gw2"}));
    let one = spawn("gw1", &nameless);
    let why = "service id \"mesh-gateway\" is registered on several nodes (gw1, Twin): set node.metadata.node_name";
    eventually("why there is no configuration", || {
        one.log().contains(why).then_some(())
    });
    agent.put("/v1/catalog/deregister", &json!({"Node": "Twin"}));
    eventually("the listener", || {
        (one.stat("listener_manager.total_listeners_active")? > 0).then_some(())
    });
    // The server waits for a registration before it says so.
    let why = "no proxy with service id \"nobody\" is registered on node \"gw2\"";
    eventually("why there is no configuration", || {
        two.log().contains(why).then_some(())
    });
    let mut late = service(&agent, "gw1", "mesh-gateway");
    late["ID"] = json!("nobody");
    register(&agent, "gw2", "127.0.0.1", &late);
    eventually("readiness", || two.admin("/ready"));
}

/// The gateways that the own datacenter publishes, by the three endpoints: node and status of the check.
fn published(agent: &Server) -> Option<Vec<(String, String)>> {
    let of = |gateways: &Value| -> Option<Vec<(String, String)>> {
        let gateway = |g: &Value| {
            let status = g["Checks"][0]["Status"].as_str()?;
            Some((g["Node"]["Node"].as_str()?.to_owned(), status.to_owned()))
        };
        gateways
            .as_array()
            .into_iter()
            .flatten()
            .map(gateway)
            .collect()
    };
    let get = |path: &str| agent.get(&format!("/v1/internal/{path}")).ok();
    let (_, one) = get("federation-state/dc1")?;
    let (_, all) = get("federation-states")?;
    let (_, gateways) = get("federation-states/mesh-gateways")?;
    let one = of(&one["State"]["MeshGateways"])?;
    let all = of(&all[0]["MeshGateways"])?;
    (one == all && one == of(&gateways["dc1"])?).then_some(one)
}

#[test]
fn the_catalog_and_the_federation_state_follow_the_gateways_process() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    eventually("the empty record", || {
        published(&agent)?.is_empty().then_some(())
    });
    let is = |status: &str| {
        let wanted = vec![("gw1".to_owned(), status.to_owned())];
        let start = Instant::now();
        eventually(status, || {
            let same = health(&agent, "gw1")? == status && published(&agent)? == wanted;
            same.then_some(())
        });
        start.elapsed()
    };
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let took = is("passing");
    assert!(took < AT_ONCE, "passing {took:?} after Envoy listens");
    let (_, checks) = agent.get("/v1/health/node/gw1").unwrap();
    let after = &checks[0]["Definition"]["DeregisterCriticalServiceAfter"];
    assert_eq!(after, "6h0m0s");
    drop(gateway); // With SIGKILL.
    let took = is("critical");
    assert!(took < AT_ONCE, "critical {took:?} after Envoy's end");
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    is("passing");
    drop(gateway);
    agent.put("/v1/catalog/deregister", &json!({"Node": "gw1"}));
    eventually("the empty record", || {
        published(&agent)?.is_empty().then_some(())
    });
}

#[test]
fn xds_comes_over_tls_from_servers_of_the_right_ca_only() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let other = agent.path("other");
    std::fs::create_dir(&other).unwrap();
    let made = Command::new(binary())
        .args(["tls", "ca", "create"])
        .current_dir(&other)
        .output()
        .unwrap();
    assert!(made.status.success());
    let grpc = format!("https://{}", agent.port(8503));
    let ca = |file: &str| ["-grpc-addr", &grpc, "-grpc-ca-file", file].map(str::to_owned);
    let start = |name: &str, file: &str| {
        let flags = ca(file);
        let flags = flags.each_ref().map(String::as_str);
        let special = Special {
            flags: &flags,
            ..Special::default()
        };
        Gateway::spawn(&agent, &envoy, name, special)
    };
    let good = start("gw1", "consul-agent-ca.pem");
    let bad = start("gw2", "other/consul-agent-ca.pem");
    eventually("the listener", || {
        (good.stat("listener_manager.total_listeners_active")? > 0).then_some(())
    });
    assert!(good.stats(["cluster.local_agent.ssl.handshake"])[0] > 0);
    eventually("the refusal", || {
        (bad.stat("cluster.local_agent.ssl.fail_verify_error")? > 0).then_some(())
    });
    assert_eq!(bad.stats(["listener_manager.total_listeners_active"]), [0]);
}

/// C042 and C049: names with dots and capitals; what differs in case alone is one cluster, so Envoy refuses nothing.
#[test]
fn names_with_dots_and_capitals_are_reached() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let (one, two) = (Backend::start("one"), Backend::start("two"));
    let server = |node: &str, backend: &Backend| {
        let at = backend.address.to_string();
        let consul =
            json!({"ID": "consul", "Service": "consul", "Address": at, "Port": backend.port});
        register(&agent, node, &at, &consul);
    };
    server("S2.Rack.7", &one);
    eventually("the server", || {
        through(&gateway, "s2.rack.7.server.dc1.consul")
    });
    // The same node again, in other letters: it is at the new place.
    server("s2.rack.7", &two);
    eventually("the server elsewhere", || {
        let found = through(&gateway, "s2.rack.7.server.dc1.consul")?;
        (found == "two").then_some(())
    });
    for (name, id, backend) in [("Web", "w1", &one), ("web", "w2", &two)] {
        let at = backend.address.to_string();
        agent.put("/v1/catalog/register", &native(name, id, &at, backend.port));
    }
    let name = format!("web.default.dc1.internal.{td}");
    eventually("both instances", || {
        (gateway.endpoints(&name).len() == 2).then_some(())
    });
    let clusters = gateway.clusters().unwrap();
    let lower: Vec<_> = clusters.iter().map(|c| c.to_lowercase()).collect();
    assert_eq!(clusters, lower);
    assert_eq!(refused(&gateway), [0, 0]);
}

/// C046 and C047: each cluster is there to be reached, at any depth of names; other names are refused, and counted.
#[test]
fn every_cluster_is_meant_and_other_names_are_counted() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let (web, dc2) = (Backend::start("web"), Backend::start("dc2"));
    offer(&agent, "web", &web);
    publish(
        &agent,
        "dc2",
        &[(&dc2.address.to_string(), dc2.port, "passing")],
    );
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let local = format!("web.default.dc1.internal.{td}");
    let mut meant = vec![
        local.clone(),
        format!("dc2.internal.{td}"),
        "server.dc2.consul".to_owned(),
        "server.dc1.consul".to_owned(),
        "n1.server.dc1.consul".to_owned(),
    ];
    meant.sort();
    // C052: subsets of a service without instances here make no clusters.
    let absent = json!({"Kind": "service-resolver", "Name": "absent", "DefaultSubset": "v2",
        "Subsets": {"v1": {}, "v2": {"Filter": "Service.Meta.version == 2"}}});
    agent.put("/v1/config", &absent);
    eventually("the clusters", || {
        (gateway.clusters()? == meant).then_some(())
    });
    for labels in ["a", "a.b", "a.b.c", "a.b.c.d"] {
        for name in [
            format!("{labels}.dc2.internal.{td}"),
            format!("{labels}.server.dc2.consul"),
        ] {
            assert_eq!(through(&gateway, &name).as_deref(), Some("dc2"), "{name}");
        }
    }
    let listener = format!(
        "listener.{}_{GATEWAY_PORT}.no_filter_chain_match",
        gateway.address
    );
    let counters = [
        listener.as_str(),
        "tcp.mesh_gateway_local.lan.downstream_cx_no_route",
    ];
    let before = gateway.stats(counters);
    for name in [
        "server.dc9.consul".to_owned(),
        format!("nothing.default.dc1.internal.{td}"),
    ] {
        assert!(gateway.dial(Some(&name)).is_err(), "{name}");
    }
    eventually("the counters", || {
        (gateway.stats(counters) == before.map(|n| n + 1)).then_some(())
    });
}

/// The way without the node of its own: the gateway is a service of the server's agent, as with Consul's client agents,
/// and the agent itself runs the check.
#[test]
fn a_gateway_that_the_agent_registered_is_served_too() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let register = |address: Ipv4Addr| {
        let address = address.to_string();
        let at = json!({"Address": address, "Port": GATEWAY_PORT});
        let body = json!({
            "Kind": "mesh-gateway", "ID": "GW-1", "Name": "gw", "Port": GATEWAY_PORT, "Address": address,
            "TaggedAddresses": {"lan": at, "wan": at}, "Meta": {"consul-wan-federation": "1"},
            "Check": {"Name": "mesh-gateway listening", "Interval": "1s", "TCP": format!("{address}:{GATEWAY_PORT}"),
                "DeregisterCriticalServiceAfter": "6h"},
        });
        agent.put("/v1/agent/service/register", &body);
    };
    let special = Special {
        register: Some(&register),
        ..Special::default()
    };
    let gateway = Gateway::start_special(&agent, &envoy, "gw", special);
    let leader = agent.rpc(
        &gateway.at(),
        "n1.server.dc1.consul",
        "Status.Leader",
        &json!({}),
    );
    assert_eq!(leader, json!(agent.port(8300)));
    let status = || {
        let (_, checks) = agent.get("/v1/health/checks/gw").ok()?;
        Some(checks[0]["Status"].as_str()?.to_owned())
    };
    eventually("its health", || (status()? == "passing").then_some(()));
    drop(gateway);
    eventually("its death", || (status()? == "critical").then_some(()));
}
