//! How changes arrive at a real Envoy: nothing waits, nothing is lost, nothing stays behind.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The clock of the machine is the one that Envoy has.

use crate::support::dns::Dns;
use crate::support::gateway::Backend;
use crate::support::gateway::Gateway;
use crate::support::gateway::Special;
use crate::support::gateway::ask;
use crate::support::mesh::grpcurl;
use crate::support::mesh::native;
use crate::support::mesh::offer;
use crate::support::mesh::publish;
use crate::support::mesh::through;
use crate::support::mesh::trust_domain;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::eventually;
use serde_json::Value;
use serde_json::json;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

/// What waits for a timer, Envoy's or ours, takes 5 s and more. What goes at once takes milliseconds, or a while on a busy
/// machine.
const AT_ONCE: Duration = Duration::from_secs(3);
/// Envoy's `initial_fetch_timeout` for endpoints: what takes as long was not delivered.
const FETCH_TIMEOUT: Duration = Duration::from_secs(15);

/// Makes a bootstrap speak state-of-the-world.
fn state_of_the_world(bootstrap: &mut Value) {
    let ads = &mut bootstrap["dynamic_resources"]["ads_config"];
    assert_eq!(ads["api_type"], "DELTA_GRPC");
    ads["api_type"] = json!("GRPC");
}

const SOTW: Special<'_> = Special {
    flags: &["-expose-servers"],
    edit: Some(&state_of_the_world),
    register: None,
};

fn refused(gateway: &Gateway) -> [u64; 2] {
    gateway.stats([
        "cluster_manager.cds.update_rejected",
        "listener_manager.lds.update_rejected",
    ])
}

/// C064 and C067: a cluster that changes gets its endpoints again, one without endpoints is told so. Neither waits for
/// Envoy's fetch timeout, and neither keeps the listener or other clusters waiting.
fn changes_are_in_force_at_once(special: Special<'_>) {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let web = Backend::start("web");
    offer(&agent, "web", &web);
    let gateway = Gateway::start_special(&agent, &envoy, "gw1", special);
    let name = format!("web.default.dc1.internal.{td}");
    eventually("web", || through(&gateway, &name));
    for round in 1..=10 {
        let timeout = format!("{round}s");
        let start = Instant::now();
        let resolver =
            json!({"Kind": "service-resolver", "Name": "web", "ConnectTimeout": timeout});
        agent.put("/v1/config", &resolver);
        eventually("the timeout", || {
            (gateway.cluster(&name)?["connect_timeout"] == timeout).then_some(())
        });
        assert!(start.elapsed() < AT_ONCE, "{round}: {:?}", start.elapsed());
        assert_eq!(gateway.stats(["cluster_manager.warming_clusters"]), [0]);
        assert_eq!(through(&gateway, &name).as_deref(), Some("web"));
    }
    let start = Instant::now();
    let resolver = json!({"Kind": "service-resolver", "Name": "web",
        "Subsets": {"none": {"Filter": "Service.Meta.version == 9"}}});
    agent.put("/v1/config", &resolver);
    let none = format!("none.{name}");
    eventually("the empty subset", || gateway.cluster(&none));
    publish(
        &agent,
        "dc2",
        &[(&web.address.to_string(), web.port, "passing")],
    );
    let remote = "a.server.dc2.consul";
    eventually("dc2", || through(&gateway, remote));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    assert!(through(&gateway, &none).is_none());
    assert_eq!(gateway.stats(["cluster_manager.warming_clusters"]), [0]);
    assert_eq!(refused(&gateway), [0, 0]);
}

#[test]
fn changes_are_in_force_at_once_by_delta() {
    let special = Special { edit: None, ..SOTW };
    changes_are_in_force_at_once(special);
}

#[test]
fn changes_are_in_force_at_once_by_state_of_the_world() {
    changes_are_in_force_at_once(SOTW);
}

/// What goes, goes; what lives, lives: also when every response holds everything.
#[test]
fn a_state_of_the_world_gateway_follows_additions_removals_and_a_restart() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let mut agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let (web, dc2) = (Backend::start("web"), Backend::start("dc2"));
    let at = dc2.address.to_string();
    publish(&agent, "dc2", &[(&at, dc2.port, "passing")]);
    let gateway = Gateway::start_special(&agent, &envoy, "gw1", SOTW);
    let mut held = eventually("dc2", || gateway.dial(Some("server.dc2.consul")).ok());
    let before = gateway.clusters().unwrap();
    let name = format!("web.default.dc1.internal.{td}");
    for _ in 0..3 {
        offer(&agent, "web", &web);
        publish(&agent, "dc3", &[(&at, dc2.port, "passing")]);
        eventually("web", || through(&gateway, &name));
        eventually("dc3", || through(&gateway, "x.server.dc3.consul"));
        agent.put("/v1/catalog/deregister", &json!({"Node": "node-web"}));
        forget(&agent, "dc3");
        eventually("the former clusters", || {
            (gateway.clusters()? == before).then_some(())
        });
        assert!(through(&gateway, "x.server.dc3.consul").is_none());
        assert_eq!(ask(&mut held).unwrap(), "dc2 server.dc2.consul");
    }
    agent.kill();
    eventually("the loss of the server", || {
        (gateway.stat("control_plane.connected_state")? == 0).then_some(())
    });
    agent.restart();
    offer(&agent, "web", &web);
    eventually("web", || through(&gateway, &name));
    assert_eq!(ask(&mut held).unwrap(), "dc2 server.dc2.consul");
    assert_eq!(refused(&gateway), [0, 0]);
}

/// Deletes the record of another datacenter.
fn forget(agent: &Server, dc: &str) {
    let body = json!({"Datacenter": "dc1", "Op": "delete", "State": {"Datacenter": dc}});
    let rpc = agent.port(8300);
    agent.rpc(&rpc, "server.dc1.consul", "FederationState.Apply", &body);
}

/// Sends the same kind of request for each number, several at a time.
fn for_all(agent: &Server, count: usize, path: &str, body: impl Fn(usize) -> Value + Sync) {
    const AT_A_TIME: usize = 8;
    std::thread::scope(|scope| {
        for first in 0..AT_A_TIME {
            let body = &body;
            scope.spawn(move || {
                for n in (first..count).step_by(AT_A_TIME) {
                    agent.put(path, &body(n));
                }
            });
        }
    });
}

/// How many resources of each type the gateway is to have, by the server's own account.
fn wanted(agent: &Server) -> Option<Vec<Value>> {
    let answer = grpcurl(agent, &[], &["crossway.v1.Operator/ListProxies"])?;
    let stream = &answer[0]["proxies"][0]["streams"][0];
    let types = stream["types"].as_array()?.iter();
    Some(types.map(|t| t["wanted"].clone()).collect())
}

/// C051 and C077: many services appear, survive the loss of the server with all their endpoints, are given to a new
/// gateway quickly, and leave nothing behind.
#[test]
fn a_thousand_services_come_survive_a_reconnect_and_go() {
    const MANY: usize = 1000;
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let mut agent = Server::start(&json!({"limits": {"http_max_conns_per_client": 1000}}));
    let td = trust_domain(&agent);
    // Taking the names of statistics apart is nearly all that Envoy does for a new cluster, and nothing to test here.
    let without_tags = |bootstrap: &mut Value| bootstrap["stats_config"] = json!({});
    let special = Special {
        flags: &["-expose-servers"],
        edit: Some(&without_tags),
        register: None,
    };
    let gateway = Gateway::start_special(&agent, &envoy, "gw1", special);
    let before = gateway.clusters().unwrap();
    let wanted_before = wanted(&agent);
    let active = |g: &Gateway| {
        std::thread::sleep(Duration::from_millis(50)); // Envoy's main thread answers, and does the work.
        g.stats(["cluster_manager.active_clusters"])[0]
    };
    let few = active(&gateway);
    for_all(&agent, MANY, "/v1/catalog/register", |n| {
        native(&format!("s{n}"), &format!("s{n}"), "127.0.0.1", 1)
    });
    let all = few + MANY as u64;
    eventually("all clusters", || (active(&gateway) == all).then_some(()));
    let endpoints = |g: &Gateway| {
        let text = g.admin("/clusters").unwrap_or_default();
        let hosts = text
            .lines()
            .filter(|line| line.ends_with("::127.0.0.1:1::weight::1"));
        hosts.filter(|line| line.contains(&td)).count()
    };
    eventually("all endpoints", || {
        (endpoints(&gateway) == MANY).then_some(())
    });

    let modified = [
        "cluster_manager.cluster_modified",
        "cluster_manager.cluster_added",
    ];
    let known = gateway.stats(modified);
    agent.restart();
    eventually("the server's return", || {
        (gateway.stat("control_plane.connected_state")? == 1).then_some(())
    });
    let start = Instant::now();
    let late = Gateway::start_special(&agent, &envoy, "gw2", special);
    assert!(start.elapsed() < FETCH_TIMEOUT, "{:?}", start.elapsed());
    assert_eq!(active(&late), all);
    assert_eq!(endpoints(&late), MANY);
    drop(late);
    assert_eq!(
        (endpoints(&gateway), gateway.stats(modified)),
        (MANY, known)
    );

    for_all(
        &agent,
        MANY,
        "/v1/catalog/deregister",
        |n| json!({"Node": format!("node-s{n}")}),
    );
    eventually("the former clusters", || {
        (gateway.clusters()? == before).then_some(())
    });
    agent.put("/v1/catalog/deregister", &json!({"Node": "gw2"}));
    eventually("the former counts", || {
        (wanted(&agent) == wanted_before).then_some(())
    });
    assert_eq!(refused(&gateway), [0, 0]);
}

/// C036 to C040: gateways with host names are resolved by Envoy, all of them, beside addresses, by IPv6 if need be, and
/// also when none is healthy.
#[test]
fn gateways_with_host_names_are_resolved() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let agent = Server::start(&json!({}));
    let (dns, one, two) = (Dns::start(), Backend::start("one"), Backend::start("two"));
    let six = Backend::start_at("six", Ipv6Addr::LOCALHOST.into());
    dns.set("one.example.com", &[one.address]);
    dns.set("two.example.com", &[two.address]);
    dns.set("six.example.com", &[six.address]);
    let install = |bootstrap: &mut Value| dns.install(bootstrap);
    let special = Special {
        flags: &["-expose-servers"],
        edit: Some(&install),
        register: None,
    };
    let gateway = Gateway::start_special(&agent, &envoy, "gw1", special);
    let by_address = one.address.to_string();
    let by_address = [(by_address.as_str(), &one)];
    let (name1, name2) = (("one.example.com", &one), ("two.example.com", &two));
    let steps: [(&[Host<'_>], &str); 9] = [
        (&by_address, "passing"),
        (&[name1], "passing"),
        (&by_address, "passing"),
        (&[name1, name2], "passing"),
        (&[by_address[0], name2], "passing"),
        (&by_address, "passing"),
        (&[("six.example.com", &six)], "passing"),
        (&[name2], "critical"),
        (&by_address, "passing"),
    ];
    for (step, (hosts, status)) in steps.into_iter().enumerate() {
        let start = Instant::now();
        let gateways = hosts.iter().map(|(host, b)| (*host, b.port, status));
        publish(&agent, "dc2", &gateways.collect::<Vec<_>>());
        eventually(&format!("step {step}"), || {
            resolved(&gateway, hosts, status).then_some(())
        });
        assert!(start.elapsed() < AT_ONCE, "{step}: {:?}", start.elapsed());
        let answer = through(&gateway, "a.server.dc2.consul");
        let names = ["one", "two", "six"];
        let known = names.contains(&answer.as_deref().unwrap_or("nobody"));
        assert!(known, "{step}: {answer:?}");
    }
    assert_eq!(refused(&gateway), [0, 0]);
}

/// A host of the published gateway, and what is there.
type Host<'a> = (&'a str, &'a Backend);

/// Whether Envoy has exactly these endpoints for dc2, in a cluster that resolves names if there are any.
fn resolved(gateway: &Gateway, hosts: &[Host<'_>], status: &str) -> bool {
    let health = match status {
        "critical" => "/failed_eds_health",
        _ => "healthy",
    };
    let at = |(_, b): &Host<'_>| format!("{} {health}", SocketAddr::new(b.address, b.port));
    let mut wanted: Vec<_> = hosts.iter().map(at).collect();
    wanted.sort();
    let names = hosts.iter().any(|(h, _)| h.parse::<IpAddr>().is_err());
    let Some(cluster) = gateway.cluster("server.dc2.consul") else {
        return false;
    };
    let right_kind = match names {
        true => cluster["cluster_type"]["name"] == "envoy.cluster.dns",
        false => cluster["type"] == "EDS",
    };
    right_kind && gateway.endpoints("server.dc2.consul") == wanted
}
