//! `/v1/agent` against what Consul 1.8.7 answered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use crate::http_api::fixture::{PATIENCE, Response};
use crate::support::agent::AgentServer;
use futures_util::poll;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::pin;
use tokio::net::TcpListener;
use tokio::time::timeout;

const ANSWERS: &str = include_str!("../data/agent/answers.json");
const ERRORS: &str = include_str!("../data/agent/errors.json");

type Recorded = BTreeMap<String, Value>;

/// Where we differ on purpose: the name of the record, and why.
const BETTER: [(&str, &str); 0] = [];

#[track_caller]
fn compare(name: &str, recorded: &Value, got: &Response) {
    assert_eq!(recorded["status"], got.status, "{name}: {}", got.text());
    let recorded_type = recorded["headers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pair| pair[0] == "Content-Type")
        .map(|pair| pair[1].as_str().unwrap());
    assert_eq!(recorded_type, got.header("Content-Type"), "{name}");
    match recorded.get("body") {
        Some(body) => assert_eq!(&got.json(), body, "{name}"),
        None => assert_eq!(got.text(), recorded["body_text"], "{name}"),
    }
}

#[tokio::test]
async fn refusals_are_those_of_consul() {
    let server = AgentServer::start("n1", None).await;
    let errors: Recorded = serde_json::from_str(ERRORS).unwrap();
    assert!(errors.len() > 15);
    for (name, recorded) in &errors {
        if BETTER.iter().any(|(other, _)| other == name) {
            continue;
        }
        let request = &recorded["request"];
        let text = |key: &str| request[key].as_str().unwrap_or_default();
        let got = server
            .send(text("method"), text("path"), text("body"))
            .await;
        compare(name, recorded, &got);
        if let Some(allow) = got.header("Allow") {
            let pairs = recorded["headers"].as_array().unwrap();
            assert!(pairs.contains(&json!(["Allow", allow])), "{name}: {allow}");
        }
    }
}

/// What was recorded at the gateway's agent, with its address and port replaced by ours.
fn recorded_at(port: u16) -> Recorded {
    let text = ANSWERS
        .replace("10.71.0.20", "127.0.0.1")
        .replace("8443", &port.to_string());
    serde_json::from_str(&text).unwrap()
}

fn gateway(port: u16) -> Value {
    json!({
        "Kind": "mesh-gateway", "Name": "mesh-gateway", "Port": port, "Address": "127.0.0.1",
        "TaggedAddresses": {
            "lan": {"Address": "127.0.0.1", "Port": port},
            "wan": {"Address": "10.77.0.11", "Port": port},
        },
        "Meta": {"consul-wan-federation": "1"},
        "Proxy": {"Config": {
            "envoy_gateway_bind_tagged_addresses": true,
            "envoy_gateway_no_default_bind": true,
        }},
        "Check": {
            "Name": "mesh-gateway listening", "Interval": "50ms", "TCP": format!("127.0.0.1:{port}"),
            "DeregisterCriticalServiceAfter": "6h",
        },
        "Checks": null,
    })
}

async fn register_all(server: &AgentServer, port: u16) {
    let web = json!({
        "ID": "web2", "Name": "web", "Tags": ["v2"], "Meta": {"version": "2"}, "Port": 8080,
        "Address": "127.0.0.1", "Check": {"CheckID": "web2-ttl", "TTL": "1h"},
    });
    let sidecar = json!({
        "Kind": "connect-proxy", "ID": "web2-sidecar-proxy", "Name": "web-sidecar-proxy",
        "Tags": ["v2"], "Meta": {"version": "2"}, "Port": 20000, "Address": "127.0.0.1",
        "Proxy": {
            "DestinationServiceName": "web", "DestinationServiceID": "web2",
            "LocalServiceAddress": "127.0.0.1", "LocalServicePort": 8080,
        },
        "Check": {"CheckID": "web2p", "TTL": "1h"},
    });
    for body in [gateway(port), web, sidecar] {
        server.put("/v1/agent/service/register", &body).await;
    }
}

#[tokio::test]
async fn services_checks_and_health_look_as_consul_shows_them() {
    let server = AgentServer::start("dc1-gw", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let recorded = recorded_at(port);
    register_all(&server, port).await;
    let passing = |state: &crossway::store::State| {
        let check = state.check("dc1-gw", "service:mesh-gateway");
        check.is_some_and(|check| check.status.as_str() == "passing")
    };
    server.until("the gateway's check passes", passing).await;
    for name in [
        "agent_services",
        "agent_checks",
        "agent_service_nope",
        "agent_health_service_id_mesh_gateway",
        "agent_health_service_name_web",
    ] {
        let path = recorded[name]["request"]["path"].as_str().unwrap();
        let got = server.get(path).await;
        compare(name, &recorded[name], &got);
        if name.contains("health") {
            let reason = json!(["X-Consul-Reason", got.header("X-Consul-Reason").unwrap()]);
            let pairs = recorded[name]["headers"].as_array().unwrap();
            assert!(pairs.contains(&reason), "{name}: {reason}");
        }
    }
    let one = server.get("/v1/agent/service/mesh-gateway").await;
    let hash = one.header("X-Consul-Contenthash").unwrap().to_owned();
    let mut wanted = recorded["agent_service_mesh_gateway"].clone();
    wanted["body"]["ContentHash"] = json!(hash);
    compare("agent_service_mesh_gateway", &wanted, &one);
    for (path, ids) in [
        ("/v1/agent/services?filter=Service==web", json!(["web2"])),
        (
            "/v1/agent/checks?filter=Status==passing",
            json!(["service:mesh-gateway"]),
        ),
    ] {
        let found = server.get(path).await.json();
        let keys: Vec<&String> = found.as_object().unwrap().keys().collect();
        assert_eq!(json!(keys), ids, "{path}");
    }
    let text = server
        .get("/v1/agent/health/service/id/web2?format=text")
        .await;
    assert_eq!((text.status, text.text()), (503, "critical".into()));
    let none = server.get("/v1/agent/health/service/name/nope").await;
    assert_eq!(
        (none.status, none.text().trim().to_owned()),
        (404, "[]".into())
    );
}

#[tokio::test]
async fn a_reader_of_a_service_is_told_of_its_change() {
    let server = AgentServer::start("n1", None).await;
    register_all(&server, 1).await;
    let first = server.get("/v1/agent/service/web2").await;
    let hash = first.header("X-Consul-Contenthash").unwrap().to_owned();
    let unchanged = format!("/v1/agent/service/web2?hash={hash}&wait=50ms");
    assert_eq!(server.get(&unchanged).await.json(), first.json());
    // A reader without HTTP, so that it is seen to wait.
    let mut reader = pin!(server.api.agent_service("web2", &hash, PATIENCE));
    assert!(poll!(reader.as_mut()).is_pending());
    let other = json!({"Name": "other"});
    server.put("/v1/agent/service/register", &other).await;
    assert!(poll!(reader.as_mut()).is_pending());
    let path = format!("/v1/agent/service/web2?hash={hash}");
    let web = json!({"ID": "web2", "Name": "web", "Port": 8081});
    let (over_http, changed, ()) = tokio::join!(
        server.get(&path),
        timeout(PATIENCE, reader),
        server.put("/v1/agent/service/register", &web)
    );
    let (service, new) = changed.unwrap().unwrap().unwrap();
    assert_eq!((service.port, new != hash), (8081, true));
    assert_eq!(over_http.json()["Port"], 8081);
}

#[tokio::test]
async fn the_server_tells_about_itself() {
    let server = AgentServer::start("dc1-s1", None).await;
    let recorded: Recorded = serde_json::from_str(ANSWERS).unwrap();
    let recorded_self = &recorded["agent_self"]["body"];
    let got = server.get("/v1/agent/self").await.json();
    let mut member = recorded_self["Member"].clone();
    assert_eq!(got["Config"], recorded_self["Config"]);
    assert_eq!(got["Meta"], recorded_self["Meta"]);
    for (key, value) in recorded_self["DebugConfig"].as_object().unwrap() {
        let ours = &got["DebugConfig"][key];
        match key.as_str() {
            "NodeMeta" => assert!(ours.is_object()),
            _ => assert_eq!(ours, value, "{key}"),
        }
    }
    assert_eq!(got["Member"], member);
    assert_eq!(got["xDS"]["Ports"], json!({"TLS": -1, "Plaintext": 8502}));
    assert!(got["xDS"]["SupportedProxies"]["envoy"].is_array());
    for (group, keys) in recorded_self["Stats"].as_object().unwrap() {
        if group.starts_with("serf") {
            continue; // Comes with gossip.
        }
        let ours = &got["Stats"][group];
        assert!(ours.is_object(), "{group}: {ours}");
        for (key, value) in ours.as_object().unwrap() {
            assert!(value.is_string(), "{group}.{key}");
            assert!(!keys[key].is_null(), "{group}.{key} is not Consul's");
        }
    }
    let members = server.get("/v1/agent/members").await.json();
    assert_eq!(members, json!([member]));
    member["Name"] = json!("dc1-s1.dc1");
    let wan = server.get("/v1/agent/members?wan=1").await.json();
    assert_eq!(wan[0]["Name"], member["Name"]);
    assert_eq!(wan[0]["Port"], 8302);
}

#[tokio::test]
async fn leaves_and_roots_come_from_the_ca() {
    let server = AgentServer::start("n1", None).await;
    let recorded: Recorded = serde_json::from_str(ANSWERS).unwrap();
    let leaf = timeout(PATIENCE, async {
        loop {
            let leaf = server.get("/v1/agent/connect/ca/leaf/web").await;
            if leaf.status == 200 {
                break leaf;
            }
            assert!(
                leaf.text().contains("CA is uninitialized"),
                "{}",
                leaf.text()
            );
            tokio::task::yield_now().await;
        }
    });
    let leaf = leaf.await.unwrap();
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    let body = leaf.json();
    assert_eq!(
        keys(&body),
        keys(&recorded["agent_connect_ca_leaf_web"]["body"])
    );
    assert_eq!(body["Service"], "web");
    let again = server.get("/v1/agent/connect/ca/leaf/web").await;
    assert_eq!(again.json(), body);
    let index = leaf.index();
    let wait = format!("/v1/agent/connect/ca/leaf/web?index={index}&wait=50ms");
    assert_eq!(server.get(&wait).await.json(), body);
    let roots = server.get("/v1/agent/connect/ca/roots").await;
    let recorded_roots = &recorded["agent_connect_ca_roots"]["body"];
    assert_eq!(keys(&roots.json()), keys(recorded_roots));
    let root = &roots.json()["Roots"][0];
    assert_eq!(keys(root), keys(&recorded_roots["Roots"][0]));
    let domain = roots.json()["TrustDomain"].as_str().unwrap().to_owned();
    let uri = format!("spiffe://{domain}/ns/default/dc/dc1/svc/web");
    assert_eq!(body["ServiceURI"], uri);
}

#[tokio::test]
async fn metrics_come_in_both_forms() {
    let server = AgentServer::start("n1", None).await;
    let json = server.get("/v1/agent/metrics").await.json();
    assert!(json["Gauges"].is_array() && json["Timestamp"].is_string());
    let text = server.get("/v1/agent/metrics?format=prometheus").await;
    assert_eq!(
        text.header("Content-Type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
}

proptest::proptest! {
    /// Bodies that are almost right: a registration with bytes replaced or cut off.
    #[test]
    fn no_body_brings_the_reader_down(at in 0usize..600, byte: u8, cut in 0usize..600) {
        let mut body = gateway(8443).to_string().into_bytes();
        if let Some(place) = body.get_mut(at) {
            *place = byte;
        }
        crossway::testing::fuzz::agent::fuzz_agent_body(&body);
        body.truncate(cut);
        crossway::testing::fuzz::agent::fuzz_agent_body(&body);
    }
}
