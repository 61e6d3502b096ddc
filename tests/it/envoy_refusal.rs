//! What a real Envoy refuses, and what grpcurl shows of a real server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The clock of the machine is the one that Envoy has.

use crate::support::gateway::Backend;
use crate::support::gateway::GATEWAY_PORT;
use crate::support::gateway::Gateway;
use crate::support::gateway::dial;
use crate::support::mesh::grpcurl;
use crate::support::mesh::grpcurl_text;
use crate::support::mesh::metric;
use crate::support::mesh::publish;
use crate::support::mesh::service;
use crate::support::mesh::through;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::eventually;
use crate::support::server::loopback;
use serde_json::Value;
use serde_json::json;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;
use std::time::Instant;

/// What waits for a timer, Envoy's or ours, takes 5 s and more. What goes at once takes milliseconds, or a while on a busy
/// machine.
const AT_ONCE: Duration = Duration::from_secs(3);

const OPERATOR: &str = "crossway.v1.Operator";
const CSDS: &str = "envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";

/// The one stream of the one gateway, as the operator API shows it.
fn stream(agent: &Server) -> Option<Value> {
    let method = format!("{OPERATOR}/ListProxies");
    let answer = grpcurl(agent, &[], &[&method])?;
    Some(answer[0]["proxies"][0]["streams"][0].clone())
}

/// What CSDS says of the resource with this name.
fn status(agent: &Server, name: &str) -> Option<Value> {
    let answer = grpcurl(agent, &[], &[CSDS])?;
    let all = answer[0]["config"][0]["genericXdsConfigs"].as_array()?;
    all.iter().find(|one| one["name"] == name).cloned()
}

/// C068, C070 and X8: Envoy cannot listen on an address that the machine does not have. That is said in the log once, in
/// the metrics, in CSDS and in the operator API; it is not tried over and over, and it keeps nothing else waiting.
#[test]
fn a_listener_that_envoy_refuses_is_shown_everywhere_and_holds_nothing_up() {
    let (Some(envoy), Some(_)) = (peers::find("envoy"), peers::find("grpcurl")) else {
        return;
    };
    let agent = Server::start(&json!({}));
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let lan = gateway.address.to_string();
    let mut changed = service(&agent, "gw1", "mesh-gateway");
    let mut bind = |address: &str| {
        changed["Proxy"]["Config"]["envoy_gateway_bind_addresses"] =
            json!({"far": {"address": address, "port": GATEWAY_PORT}});
        let body = json!({"Node": "gw1", "Address": lan, "Service": changed});
        agent.put("/v1/catalog/register", &body);
    };
    bind("192.0.2.77");
    let name = format!("far:192.0.2.77:{GATEWAY_PORT}");
    let refused = eventually("the refusal", || {
        let stream = stream(&agent)?;
        (stream["state"] == "SYNC_STATE_REFUSED").then_some(stream)
    });
    shown(&agent, &refused, &name);
    let nacks = || metric(&agent, "crossway_xds_nacks_total", &["node=\"gw1\""]);
    let (count, rejections) = (nacks(), "listener_manager.lds.update_rejected");
    assert!(count >= 1.0);
    let rejected = gateway.stats([rejections]);

    // The other listener goes on: a new datacenter is reached through it.
    let backend = Backend::start("dc2");
    publish(
        &agent,
        "dc2",
        &[(&backend.address.to_string(), backend.port, "passing")],
    );
    eventually("dc2", || through(&gateway, "server.dc2.consul"));
    let again = gateway.stats([rejections]);
    assert!(
        again[0] <= rejected[0] + 1,
        "only the changed listener was tried again"
    );
    std::thread::sleep(Duration::from_secs(2)); // Nothing may happen meanwhile.
    assert_eq!(gateway.stats([rejections]), again);
    let log = agent.log();
    let warnings = log
        .lines()
        .filter(|line| line.contains("NACK: Envoy refused"));
    let warnings: Vec<_> = warnings.collect();
    assert!((1..=2).contains(&warnings.len()), "{warnings:?}");
    assert!(
        warnings[0].contains(&name) && warnings[0].contains("WARN"),
        "{warnings:?}"
    );

    // Corrected, it is sent once, and all is well.
    let near = loopback().to_string();
    let start = Instant::now();
    bind(&near);
    eventually("the corrected listener", || {
        dial(&format!("{near}:{GATEWAY_PORT}"), Some("server.dc2.consul")).ok()
    });
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    eventually("peace", || {
        (stream(&agent)?["state"] == "SYNC_STATE_SYNCED").then_some(())
    });
    assert_eq!(gateway.stats([rejections]), again);
    assert!(status(&agent, &name).is_none_or(|s| s["clientStatus"] != "NACKED"));
}

/// The operator API and CSDS name the listener and Envoy's words.
fn shown(agent: &Server, stream: &Value, name: &str) {
    let listeners = |stream: &Value| {
        let mut types = stream["types"].as_array()?.iter();
        let url = |t: &&Value| t["typeUrl"].as_str().unwrap().ends_with("Listener");
        types.find(url).cloned()
    };
    let refused = listeners(stream).unwrap();
    assert_eq!(
        (&refused["wanted"], &refused["acknowledged"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(refused["refused"][0]["name"], name);
    let detail = refused["refused"][0]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("192.0.2.77"), "{detail}");
    let shown = status(agent, name).unwrap();
    assert_eq!(shown["clientStatus"], "NACKED", "{shown}");
    assert_eq!(shown["errorState"]["details"], *detail);
}

/// X7: what people do by hand, with a real gateway connected.
#[test]
fn a_running_server_can_be_explored_with_grpcurl() {
    let (Some(envoy), Some(program)) = (peers::find("envoy"), peers::find("grpcurl")) else {
        return;
    };
    let agent = Server::start(&json!({}));
    let backend = Backend::start("dc2");
    let at = backend.address.to_string();
    publish(&agent, "dc2", &[(&at, backend.port, "passing")]);
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    eventually("dc2", || through(&gateway, "server.dc2.consul"));
    let pushes = || {
        gateway.stats([
            "listener_manager.lds.update_attempt",
            "cluster_manager.cds.update_attempt",
        ])
    };
    let before = pushes();

    services(&agent);
    resources(&agent, &gateway);
    assert_eq!(pushes(), before, "a debug stream disturbs nobody");
    // The gateway itself in CSDS.
    let shown = status(&agent, "server.dc2.consul").unwrap();
    assert_eq!(shown["clientStatus"], "ACKED", "{shown}");
    watch(&agent, &program, &backend);
}

/// What is served, how it is described, and whether it is healthy.
fn services(agent: &Server) {
    let list = grpcurl_text(agent, &[], &["list"]).unwrap();
    let mut services: Vec<_> = list.lines().collect();
    services.sort_unstable();
    assert_eq!(
        services,
        [
            "crossway.v1.Operator",
            "envoy.service.cluster.v3.ClusterDiscoveryService",
            "envoy.service.discovery.v3.AggregatedDiscoveryService",
            "envoy.service.endpoint.v3.EndpointDiscoveryService",
            "envoy.service.listener.v3.ListenerDiscoveryService",
            "envoy.service.route.v3.RouteDiscoveryService",
            "envoy.service.secret.v3.SecretDiscoveryService",
            "envoy.service.status.v3.ClientStatusDiscoveryService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ]
    );
    for (name, part) in [
        (
            "envoy.config.listener.v3.Listener",
            "repeated .envoy.config.listener.v3.FilterChain filter_chains",
        ),
        ("crossway.v1.Operator", "rpc Watch"),
    ] {
        let text = grpcurl_text(agent, &[], &["describe", name]).unwrap();
        assert!(text.contains(part), "{text}");
    }
    for service in ["", "crossway.v1.Operator"] {
        let body = json!({"service": service}).to_string();
        let health = grpcurl(agent, &["-d", &body], &["grpc.health.v1.Health/Check"]).unwrap();
        assert_eq!(health[0]["status"], "SERVING");
    }
}

/// Every resource of the gateway, decoded down to the filters.
fn resources(agent: &Server, gateway: &Gateway) {
    let fetch = |service: &str, method: &str| {
        let body = json!({"node": {"id": "mesh-gateway"}}).to_string();
        let method = format!("envoy.service.{service}/{method}");
        grpcurl(agent, &["-d", &body], &[&method])
            .unwrap()
            .remove(0)
    };
    let listeners = fetch("listener.v3.ListenerDiscoveryService", "FetchListeners");
    let chain = &listeners["resources"][0]["filterChains"][1];
    assert_eq!(
        chain["filterChainMatch"]["serverNames"],
        json!(["*.server.dc2.consul", "server.dc2.consul"])
    );
    let proxy = &chain["filters"][0]["typedConfig"];
    assert_eq!(
        proxy["@type"],
        "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    );
    assert_eq!(proxy["cluster"], "server.dc2.consul");
    let clusters = fetch("cluster.v3.ClusterDiscoveryService", "FetchClusters");
    assert_eq!(
        clusters["resources"].as_array().map(Vec::len),
        gateway.clusters().map(|c| c.len())
    );
}

/// Watch: the whole picture at first, then what changes.
fn watch(agent: &Server, program: &Path, backend: &Backend) {
    let at = backend.address.to_string();
    let mut child = Command::new(program)
        .args([
            "-plaintext",
            "-max-time",
            "20",
            "-d",
            "{\"federation_states\": true}",
        ])
        .args([&agent.port(8502), &format!("{OPERATOR}/Watch")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, lines) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        out.lines()
            .map_while(Result::ok)
            .try_for_each(|l| sender.send(l))
    });
    let see = |text: &str| {
        let start = Instant::now();
        while let Ok(line) = lines.recv_timeout(Duration::from_secs(10)) {
            if line.contains(text) {
                return start.elapsed();
            }
        }
        panic!("{text} was not seen");
    };
    see("\"datacenter\": \"dc2\"");
    publish(agent, "dc3", &[(&at, backend.port, "passing")]);
    let took = see("\"datacenter\": \"dc3\"");
    assert!(took < AT_ONCE, "{took:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let body = "{\"datacenter\": \"DC3\"}";
    let state = grpcurl(
        agent,
        &["-d", body],
        &[&format!("{OPERATOR}/GetFederationState")],
    )
    .unwrap();
    let wan = &state[0]["federationState"]["meshGateways"][0]["wan"];
    assert_eq!(*wan, json!({"address": at, "port": backend.port}));
}
