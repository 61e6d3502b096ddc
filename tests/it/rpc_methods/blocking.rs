//! Reads that wait for a change.

use std::time::Duration;
use std::time::Instant;

use crossway::codec;
use crossway::codec::Value;
use serde_json::Value as Json;
use serde_json::json;

use super::wire::Raw;
use super::wire::Way;
use super::wire::config_request;
use super::wire::header;
use super::wire::tls;
use crate::support::server::Server;

fn request(method: &str, seq: u64, body: &Json) -> Vec<u8> {
    let body = codec::to_vec(&Value::from_json(body).unwrap()).unwrap();
    [header(method, seq), body].concat()
}

async fn reply(raw: &mut Raw) -> (u64, Value) {
    let header: Value = codec::from_slice(&raw.next().await).unwrap();
    let body: Value = codec::from_slice(&raw.next().await).unwrap();
    assert_eq!(
        header.get("Error").unwrap().as_str(),
        Some(""),
        "{header:?}"
    );
    match header.get("Seq") {
        Some(Value::Uint(seq)) => (*seq, body),
        other => panic!("{other:?}"),
    }
}

/// The index of a reply, also of one that is a blob.
fn index(body: &Value) -> u64 {
    if let Value::Raw(raw) = body {
        let mut rest = raw.as_slice();
        let mut last = Value::Nil;
        while !rest.is_empty() {
            last = codec::take(&mut rest).unwrap();
        }
        return index(&last);
    }
    match body.get("Index") {
        Some(Value::Uint(index)) => *index,
        other => panic!("{other:?}"),
    }
}

/// A read, and a write that concerns it.
fn pairs() -> Vec<(&'static str, Json, &'static str, Json)> {
    let web = json!({"Node": "a", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 1}});
    let gateway = json!({"Node": "g", "Address": "10.0.0.2",
        "Service": {"Service": "gw", "Kind": "mesh-gateway", "Port": 8443}});
    let check = json!({"Node": "a", "Address": "10.0.0.1",
        "Check": {"CheckID": "web", "Name": "web", "ServiceID": "web", "Status": "passing"}});
    let state = json!({"Op": "upsert", "State": {"Datacenter": "dc7"}});
    let key = json!({"Op": "set", "DirEnt": {"Key": "a/b", "Value": "1"}});
    let entry = config_request(
        "upsert",
        "service-defaults",
        &json!({"Kind": "service-defaults", "Name": "web", "Protocol": "tcp"}),
    );
    let register = "Catalog.Register";
    vec![
        ("Catalog.ListNodes", json!({}), register, web.clone()),
        ("Catalog.ListServices", json!({}), register, gateway.clone()),
        (
            "Catalog.NodeServices",
            json!({"Node": "a"}),
            register,
            json!({"Node": "a", "Address": "10.0.0.1",
            "Service": {"Service": "db", "Port": 2}}),
        ),
        (
            "Health.NodeChecks",
            json!({"Node": "a"}),
            register,
            check.clone(),
        ),
        (
            "Health.ServiceNodes",
            json!({"ServiceName": "web"}),
            register,
            json!({"Node": "a", "Address": "10.0.0.1",
            "Service": {"Service": "web", "Port": 3}}),
        ),
        (
            "Catalog.ServiceNodes",
            json!({"ServiceName": "web"}),
            register,
            json!({"Node": "a", "Address": "10.0.0.1",
            "Service": {"Service": "web", "Port": 4}}),
        ),
        (
            "Health.ServiceChecks",
            json!({"ServiceName": "web"}),
            register,
            json!({"Node": "a", "Address": "10.0.0.1",
            "Check": {"CheckID": "web", "Name": "web", "ServiceID": "web", "Status": "warning"}}),
        ),
        (
            "Health.ChecksInState",
            json!({"State": "critical"}),
            register,
            json!({"Node": "a", "Address": "10.0.0.1",
            "Check": {"CheckID": "web", "Name": "web", "ServiceID": "web", "Status": "critical"}}),
        ),
        (
            "Internal.ServiceDump",
            json!({"ServiceKind": "mesh-gateway", "UseServiceKind": true}),
            register,
            json!({"Node": "g2", "Address": "10.0.0.3",
                "Service": {"Service": "gw", "Kind": "mesh-gateway", "Port": 8443}}),
        ),
        (
            "FederationState.List",
            json!({}),
            "FederationState.Apply",
            state.clone(),
        ),
        (
            "FederationState.Get",
            json!({"Datacenter": "dc7"}),
            "FederationState.Apply",
            json!({"Op": "upsert",
            "State": {"Datacenter": "dc7", "MeshGateways": [{"Node": {"Node": "x"}, "Service": {"Service": "gw"}}]}}),
        ),
        (
            "FederationState.ListMeshGateways",
            json!({}),
            "FederationState.Apply",
            json!({"Op": "delete", "State": {"Datacenter": "dc7"}}),
        ),
        ("KVS.Get", json!({"Key": "a/b"}), "KVS.Apply", key.clone()),
        (
            "KVS.List",
            json!({"Key": "a/"}),
            "KVS.Apply",
            json!({"Op": "set", "DirEnt": {"Key": "a/c"}}),
        ),
        (
            "KVS.ListKeys",
            json!({"Prefix": "a/"}),
            "KVS.Apply",
            json!({"Op": "delete", "DirEnt": {"Key": "a/c"}}),
        ),
        ("ConfigEntry.ListAll", json!({}), "ConfigEntry.Apply", entry),
        (
            "ConfigEntry.Get",
            json!({"Kind": "service-defaults", "Name": "web"}),
            "ConfigEntry.Apply",
            config_request(
                "upsert",
                "service-defaults",
                &json!({"Kind": "service-defaults", "Name": "web", "Protocol": "http"}),
            ),
        ),
        (
            "ConfigEntry.List",
            json!({"Kind": "service-defaults"}),
            "ConfigEntry.Delete",
            config_request(
                "delete",
                "service-defaults",
                &json!({"Kind": "service-defaults", "Name": "web"}),
            ),
        ),
    ]
}

fn waiting(query: &Json, index: u64, time: Duration) -> Json {
    let mut query = query.clone();
    query["MinQueryIndex"] = json!(index);
    query["MaxQueryTime"] = json!(time.as_nanos());
    query
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_wait_for_a_change_or_their_time_and_hold_up_nothing() {
    let server = Server::start(&json!({}));
    let tls = tls(&server.path(""), "dc1-server-consul-0");
    let mut raw = Raw::connect(server.port(8300).parse().unwrap(), &tls, Way::AlpnSingle).await;
    let (short, long) = (Duration::from_millis(60), Duration::from_secs(60));
    // The first answers of the server about itself have settled when two reads agree.
    for (read, query, write, change) in pairs() {
        raw.send(&request(read, 1, &query)).await;
        let mut seen = index(&reply(&mut raw).await.1);
        loop {
            let start = Instant::now();
            raw.send(&request(read, 2, &waiting(&query, seen, short)))
                .await;
            let now = index(&reply(&mut raw).await.1);
            if now == seen {
                assert!(start.elapsed() >= short, "{read} did not wait");
                break;
            }
            seen = now; // The server still registers itself.
        }
        raw.send(&request(read, 3, &waiting(&query, seen, long)))
            .await;
        raw.send(&request("Status.Ping", 4, &json!({}))).await;
        assert_eq!(reply(&mut raw).await.0, 4, "{read} holds up the stream");
        raw.send(&request(write, 5, &change)).await;
        let replies = [reply(&mut raw).await, reply(&mut raw).await];
        let woken = replies.iter().find(|(seq, _)| *seq == 3).unwrap();
        assert!(index(&woken.1) > seen, "{read} after {write}");
    }
}
