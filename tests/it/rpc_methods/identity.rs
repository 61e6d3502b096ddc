//! Who may write which federation state, and what is refused to everybody.

use serde_json::json;

use super::wire::call;
use super::wire::session;
use super::wire::tls;
use crate::support::server::Server;

const OTHER: &str =
    "Permission denied: a server of datacenter dc2 may not write the federation state of ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_writes_the_state_of_its_own_datacenter_only() {
    let server = Server::start(&json!({}));
    server.run(&[
        "tls", "cert", "create", "-server", "-dc", "dc2", "-node", "s9",
    ]);
    server.run(&["tls", "cert", "create", "-client"]);
    let address = server.port(8300).parse().unwrap();
    let apply =
        |op: &str, dc: &str| json!({"Datacenter": "dc1", "Op": op, "State": {"Datacenter": dc}});
    for (who, op, dc, refused) in [
        ("dc2-server-consul-0", "upsert", "dc2", None),
        ("dc2-server-consul-0", "upsert", "DC2", None),
        ("dc2-server-consul-0", "upsert", "dc3", Some("dc3")),
        ("dc2-server-consul-0", "upsert", "dc1", Some("dc1")),
        ("dc2-server-consul-0", "delete", "dc1", Some("dc1")),
        ("dc2-server-consul-0", "delete", "dc3", Some("dc3")),
        ("dc1-server-consul-0", "upsert", "dc3", None), // Passes on what was checked where it came in.
        ("dc1-client-consul-0", "upsert", "dc4", None), // A matter of access rules.
        ("dc2-server-consul-0", "delete", "dc4", Some("dc4")),
        ("dc2-server-consul-0", "delete", "dc2", None),
    ] {
        let session = session(address, &tls(&server.path(""), who)).await;
        let done = call(&session, "FederationState.Apply", &apply(op, dc)).await;
        match refused {
            Some(dc) => assert_eq!(done, Err(format!("{OTHER}{dc}")), "{who} {op} {dc}"),
            None => assert!(done.is_ok(), "{who} {op} {dc}: {done:?}"),
        }
    }
    let (_, states) = server.get("/v1/internal/federation-states").unwrap();
    let states = states.as_array().unwrap().iter();
    let left: Vec<_> = states.map(|s| s["Datacenter"].as_str().unwrap()).collect();
    assert_eq!(left, ["dc1", "dc3", "dc4"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_without_a_time_gets_the_servers() {
    let server = Server::start(&json!({}));
    let tls = tls(&server.path(""), "dc1-server-consul-0");
    let session = session(server.port(8300).parse().unwrap(), &tls).await;
    let before = std::time::SystemTime::now();
    server.store_federation_state(&json!({"Datacenter": "dc9"}));
    let query = json!({"Datacenter": "dc9", "TargetDatacenter": "dc1"});
    let body = crossway::codec::Value::from_json(&query).unwrap();
    let reply: crossway::model::query::FederationStateResponse = session
        .call_with(
            "FederationState.Get",
            &body,
            crate::support::server::PATIENCE,
        )
        .await
        .unwrap();
    let at = reply.state.unwrap().updated_at;
    let second = std::time::Duration::from_secs(1);
    assert!(at >= (before - second).into() && at <= (std::time::SystemTime::now() + second).into());
}
