//! Every RPC method at a server that does not lead.

use crossway::codec;
use crossway::codec::Value;
use crossway::rpc::{ClientError, Destination};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;

use crate::rpc_methods::wire::config_request;
use crate::support::server::PATIENCE;
use crate::support::trio::Trio;

enum Ask {
    /// The leader and a follower give the same bytes.
    Same(Json),
    /// Done at a follower; then the leader's answer to this read holds the text.
    Done(Json, &'static str, Json, &'static str),
    /// About this server alone.
    Own,
}
use Ask::{Done, Own, Same};

/// Every method, in an order in which later rows read what earlier ones wrote.
fn rows() -> Vec<(&'static str, Ask)> {
    let web = json!({"Node": "a", "Address": "10.0.0.1", "Service": {"Service": "web", "Port": 1},
        "Check": {"CheckID": "c", "Name": "c", "Status": "passing", "ServiceID": "web"}});
    let a = json!({"Node": "a"});
    let defaults = json!({"Kind": "service-defaults", "Name": "web"});
    let entry = |op: &str| config_request(op, "service-defaults", &defaults);
    let service = json!({"ServiceName": "web"});
    let key = json!({"Op": "set", "DirEnt": {"Key": "k", "Value": "secret"}});
    let dc2 = json!({"Op": "upsert", "State": {"Datacenter": "dc2"}});
    vec![
        (
            "Catalog.Register",
            Done(web, "Catalog.NodeServices", a.clone(), "web"),
        ),
        (
            "KVS.Apply",
            Done(key, "KVS.Get", json!({"Key": "k"}), "secret"),
        ),
        (
            "FederationState.Apply",
            Done(dc2, "FederationState.List", json!({}), "dc2"),
        ),
        (
            "ConfigEntry.Apply",
            Done(entry("upsert"), "ConfigEntry.ListAll", json!({}), "web"),
        ),
        ("Catalog.ListDatacenters", Same(json!({}))),
        ("Catalog.ListNodes", Same(json!({}))),
        ("Catalog.ListServices", Same(json!({}))),
        ("Catalog.NodeServiceList", Same(a.clone())),
        ("Catalog.NodeServices", Same(a.clone())),
        ("Catalog.ServiceList", Same(json!({}))),
        ("Catalog.ServiceNodes", Same(service.clone())),
        ("ConfigEntry.Get", Same(defaults.clone())),
        (
            "ConfigEntry.List",
            Same(json!({"Kind": "service-defaults"})),
        ),
        ("ConfigEntry.ListAll", Same(json!({}))),
        (
            "ConfigEntry.ResolveServiceConfig",
            Same(json!({"Name": "web"})),
        ),
        ("ConnectCA.Roots", Same(json!({}))),
        ("ConnectCA.Sign", Own), // Each signature differs; see reads.rs.
        (
            "FederationState.Get",
            Same(json!({"Datacenter": "dc2", "TargetDatacenter": "dc1"})),
        ),
        ("FederationState.List", Same(json!({}))),
        ("FederationState.ListMeshGateways", Same(json!({}))),
        ("Coordinate.ListNodes", Same(json!({}))),
        ("Coordinate.Node", Same(a.clone())),
        ("Coordinate.Update", Own), // Collected where it comes in; see reads.rs.
        ("Health.ChecksInState", Same(json!({"State": "any"}))),
        ("Health.NodeChecks", Same(a.clone())),
        ("Health.ServiceChecks", Same(service.clone())),
        ("Health.ServiceNodes", Same(service)),
        ("Internal.KeyringOperation", Own), // The pool's members, whoever leads.
        ("Internal.NodeDump", Same(json!({}))),
        ("Internal.NodeInfo", Same(a.clone())),
        ("Internal.ServiceDump", Same(json!({}))),
        ("KVS.Get", Same(json!({"Key": "k"}))),
        ("KVS.List", Same(json!({"Key": "k"}))),
        ("KVS.ListKeys", Same(json!({"Prefix": "k"}))),
        ("Operator.RaftGetConfiguration", Same(json!({}))),
        // The tests of operations take a server away.
        ("Operator.RaftRemovePeerByAddress", Own),
        ("Operator.RaftRemovePeerByID", Own),
        ("Status.Leader", Same(json!({}))),
        ("Status.Peers", Same(json!({}))),
        ("Status.Ping", Same(json!({}))),
        ("Status.RaftStats", Own),
        ("Consensus.Ask", Own), // Between servers; the tests of writes and reads use it.
        (
            "ConfigEntry.Delete",
            Done(entry("delete"), "ConfigEntry.Get", defaults.clone(), ""),
        ),
        (
            "Catalog.Deregister",
            Done(a.clone(), "Catalog.ListNodes", json!({}), ""),
        ),
    ]
}

#[test]
fn every_method_has_a_row() {
    let rows: BTreeSet<_> = rows().into_iter().map(|(method, _)| method).collect();
    let methods: BTreeSet<_> = crossway::api::RPC_METHODS.iter().copied().collect();
    let missing: Vec<_> = methods.difference(&rows).collect();
    assert!(
        missing.is_empty(),
        "say in rows() what {missing:?} do at a follower"
    );
    assert!(crossway::api::RPC_METHODS.is_sorted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_answers_at_a_follower_as_at_the_leader() {
    let trio = Trio::start().await;
    for (method, ask) in rows() {
        match ask {
            Same(body) => {
                let body = codec::to_vec(&Value::from_json(&body).unwrap()).unwrap();
                let leader = call(&trio, 0, method, &body).await.unwrap();
                let follower = call(&trio, 1, method, &body).await.unwrap();
                assert_eq!(follower, leader, "{method}");
            }
            Done(body, read, query, wanted) => {
                let body = codec::to_vec(&Value::from_json(&body).unwrap()).unwrap();
                done(&trio, (method, body), (read, query), wanted).await;
            }
            Own => {}
        }
    }
}

async fn done(trio: &Trio, write: (&str, Vec<u8>), read: (&str, Json), wanted: &str) {
    call(trio, 2, write.0, &write.1).await.unwrap();
    let query = codec::to_vec(&Value::from_json(&read.1).unwrap()).unwrap();
    let reply = call(trio, 0, read.0, &query).await.unwrap();
    let text = String::from_utf8_lossy(&reply).into_owned();
    match wanted {
        "" => assert!(
            !text.contains("web") && !text.contains("10.0.0.1"),
            "{text}"
        ),
        wanted => assert!(text.contains(wanted), "{}: {text}", write.0),
    }
}

async fn call(
    trio: &Trio,
    at: usize,
    method: &str,
    body: &[u8],
) -> Result<bytes::Bytes, ClientError> {
    let node = &trio.nodes[at];
    let to = Destination {
        datacenter: "dc1".into(),
        node: node.peer.node.clone(),
        address: node.peer.address.parse().unwrap(),
    };
    trio.nodes[0].pool.call(&to, method, body, PATIENCE).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_is_answered_in_gos_words() {
    let trio = Trio::start().await;
    for (method, text) in [
        ("Catalog.Nope", "rpc: can't find method Catalog.Nope"),
        ("Nope.Nope", "rpc: can't find service Nope.Nope"),
        ("Nope", "rpc: service/method request ill-formed: Nope"),
    ] {
        let error = call(&trio, 1, method, &[0x80]).await.unwrap_err();
        assert_eq!(error.to_string(), format!("rpc error making call: {text}"));
    }
}
