//! Requests recorded from a real client are sent as they are; the replies must be those of the recorded server.

use std::collections::BTreeMap;

use crossway::codec;
use crossway::codec::Value;
use serde_json::Value as Json;
use serde_json::json;

use super::wire::Raw;
use super::wire::Way;
use super::wire::shown;
use super::wire::tls;
use crate::support::server::Server;
use crate::support::server::eventually;

type Recorded = BTreeMap<String, Vec<BTreeMap<String, Vec<String>>>>;

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../../data/wire/rpc/calls.json")).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// How much of a body must be the recorded one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    /// All but indexes and times.
    All,
    /// Keys and types: the values are this server's own.
    Shape,
    /// Consul answers, this server does not have the method yet.
    Unknown,
    /// Consul forwards, this server cannot reach other datacenters yet.
    NoPath,
}

const CALLS: &[(&str, Compare)] = &[
    ("tls_Status.Ping", Compare::All),
    ("tls_Status.Leader", Compare::Shape),
    ("tls_Status.Peers", Compare::Shape),
    ("tls_Status.RaftStats", Compare::Shape),
    ("mode_tls0_server.dc1.consul", Compare::Shape),
    ("tls_Catalog.ListDatacenters", Compare::All),
    ("tls_Catalog.ListNodes", Compare::Shape),
    ("tls_Catalog.ListServices", Compare::All),
    ("tls_minimal_args_ListServices", Compare::All),
    ("tls_Catalog.ServiceNodes", Compare::All),
    ("tls_Health.ServiceNodes", Compare::All),
    ("tls_Health.ServiceNodes_consul", Compare::Shape),
    ("tls_Internal.ServiceDump_mesh-gateway", Compare::All),
    ("tls_ConnectCA.Roots", Compare::Shape),
    ("tls_ConfigEntry.ListAll", Compare::All),
    ("tls_KVS.Get", Compare::All),
    ("tls_FederationState.Get", Compare::All),
    ("tls_FederationState.List", Compare::All),
    ("tls_FederationState.ListMeshGateways", Compare::All),
    (
        "tls_FederationState.Apply_upsert_get_delete_get",
        Compare::All,
    ),
    ("tls_ERR_token", Compare::All),
    ("tls_ERR_unknown_dc", Compare::All),
    ("tls_ERR_unknown_method", Compare::All),
    ("tls_FWD_dc2_ListServices", Compare::NoPath),
    ("tls_ConnectCA.ConfigurationGet", Compare::Unknown),
    ("tls_Coordinate.ListDatacenters", Compare::Unknown),
    ("tls_Intention.List", Compare::Unknown),
    ("tls_Operator.RaftGetConfiguration", Compare::Shape),
];

/// Fills the catalog with the gateway and the federation state that the recorded server had.
fn fill(server: &Server, recorded: &Recorded) {
    let reply = |name: &str| -> Json {
        let body = bytes(&recorded[name][0]["response"][1]);
        codec::from_slice::<Value>(&body).unwrap().to_json()
    };
    let rpc = |method: &str, body: &Json| {
        server.rpc(&server.port(8300), "server.dc1.consul", method, body)
    };
    let row = &reply("tls_Health.ServiceNodes")["Nodes"][0];
    let node = &row["Node"];
    rpc(
        "Catalog.Register",
        &json!({
            "Datacenter": "dc1", "ID": node["ID"], "Node": node["Node"], "Address": node["Address"],
            "TaggedAddresses": node["TaggedAddresses"], "NodeMeta": node["Meta"],
            "Service": row["Service"], "Checks": row["Checks"],
        }),
    );
    let state = &reply("tls_FederationState.Get")["State"];
    server.store_federation_state(state);
    eventually("the own federation state", || {
        let states = rpc("FederationState.List", &json!({}));
        let own = states["States"]
            .as_array()?
            .iter()
            .find(|s| s["Datacenter"] == "dc1")?;
        own["MeshGateways"].is_array().then_some(())
    });
}

/// Leaves of a value by their types; maps that hold text to text are all the same.
fn shape(value: &Json) -> Json {
    match value {
        Json::Object(map) if !map.is_empty() && map.values().all(Json::is_string) => json!("texts"),
        Json::Object(map) => map.iter().map(|(k, v)| (k.clone(), shape(v))).collect(),
        Json::Array(items) => items.first().map_or(json!([]), |item| json!([shape(item)])),
        Json::String(text) if text == "index" || text.ends_with(" time") => json!(text),
        Json::String(_) => json!("text"),
        Json::Number(_) => json!("number"),
        other => other.clone(),
    }
}

fn compare(name: &str, how: Compare, expected: &[Vec<u8>], got: &[Vec<u8>]) -> Option<String> {
    let value = |bytes: &[u8]| codec::from_slice::<Value>(bytes).unwrap();
    let error = |text: &str| {
        let header = value(&got[0]);
        let said = header.get("Error").unwrap().as_str().unwrap();
        (!said.contains(text) || got[1] != [0x80]).then(|| format!("{name}: {said:?}"))
    };
    match how {
        Compare::Unknown => return error("rpc: can't find "),
        Compare::NoPath => return error("No path to datacenter"),
        Compare::All | Compare::Shape => {}
    }
    if got[0] != expected[0] {
        return Some(format!(
            "{name}: header {:?} != {:?}",
            value(&got[0]),
            value(&expected[0])
        ));
    }
    let (mut got, mut expected) = (shown(&value(&got[1])), shown(&value(&expected[1])));
    if how == Compare::Shape {
        (got, expected) = (shape(&got), shape(&expected));
    }
    if name.contains("Apply_upsert") {
        // The client had sent an empty list, which Go keeps apart from nil; nobody can tell them apart afterwards.
        if let Some(list) = expected.pointer_mut("/State/MeshGateways") {
            *list = Json::Null;
        }
    }
    (got != expected).then(|| format!("{name}:\n  got      {got}\n  recorded {expected}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_requests_get_the_recorded_replies_by_every_way() {
    let recorded = recorded();
    let server = Server::start(&json!({
        "node_name": "dc1-s1", "node_id": "6db05d80-2b97-f00c-bcf2-145d90a99b9f",
        "connect": {"enabled": true}, // Without federation the certificate may have another node's name.
    }));
    fill(&server, &recorded);
    let tls = tls(&server.path(""), "dc1-server-consul-0");
    let address = server.port(8300).parse().unwrap();
    let mut wrong = Vec::new();
    for way in Way::ALL {
        for (name, how) in CALLS {
            let mut raw = Raw::connect(address, &tls, way).await;
            for call in &recorded[*name] {
                let request: Vec<u8> = call["request"].iter().flat_map(|hex| bytes(hex)).collect();
                raw.send(&request).await;
                let got = [raw.next().await, raw.next().await];
                let expected: Vec<_> = call["response"].iter().map(|hex| bytes(hex)).collect();
                let problem = compare(name, *how, &expected, &got);
                wrong.extend(problem.map(|problem| format!("{way:?} {problem}")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
