//! The leader's prober with real gateways' ports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use crate::support::agent::AgentServer;
use crate::support::http::PATIENCE;
use crossway::model::CheckStatus;
use crossway::probe::ProxyEvent;
use crossway::store::State;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

/// As `connect envoy -register` puts a gateway into the catalog. The interval is so long that only events can explain a
/// run within the test.
fn gateway(address: SocketAddr, after: &str) -> Value {
    json!({
        "Node": "gw1", "Address": "127.0.0.1",
        "Service": {"Kind": "mesh-gateway", "ID": "gw", "Service": "gw", "Port": address.port()},
        "Check": {
            "Name": "listening", "CheckID": "service:gw", "ServiceID": "gw", "Type": "tcp",
            "Definition": {
                "TCP": address.to_string(), "Interval": "1h", "DeregisterCriticalServiceAfter": after,
            },
        },
    })
}

fn is(status: CheckStatus) -> impl Fn(&State) -> bool {
    move |state| {
        let check = state.check("gw1", "service:gw");
        check.is_some_and(|check| check.status == status)
    }
}

fn stream(server: &AgentServer, opened: bool) {
    let event = ProxyEvent {
        node: "gw1".into(),
        service_id: "gw".into(),
        opened,
    };
    server.events.send(event).unwrap();
}

#[tokio::test]
async fn a_gateways_status_follows_its_listener_and_its_stream() {
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    server
        .put("/v1/catalog/register", &gateway(address, "6h"))
        .await;
    server.until("at once", is(CheckStatus::Passing)).await;
    let stored = server.consensus.store().latest();
    let check = stored.check("gw1", "service:gw").unwrap();
    assert_eq!(check.output, format!("TCP connect {address}: Success"));
    assert_eq!(
        check.definition.tcp,
        address.to_string(),
        "the rest of it stays"
    );

    drop(listener);
    let ended = tokio::time::Instant::now();
    stream(&server, false);
    server
        .until("stream ended", is(CheckStatus::Critical))
        .await;
    assert!(
        ended.elapsed() < Duration::from_secs(1),
        "{:?}",
        ended.elapsed()
    );
}

/// A gateway opens its listener a moment after its stream: the check is run again although the first run was too early.
#[tokio::test]
async fn a_run_that_came_too_early_is_followed_by_others() {
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (counted, mut runs) = watch::channel(0);
    // Unwell when the check is registered, and still when the stream has opened.
    let gateway_port = tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let well = *counted.borrow() >= 2;
            counted.send_modify(|runs| *runs += 1);
            let status = if well {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let mut head = [0; 1024];
            let _ = tcp.read(&mut head).await;
            tcp.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let mut registration = gateway(address, "6h");
    let definition = &mut registration["Check"]["Definition"];
    definition["TCP"] = json!("");
    definition["HTTP"] = json!(format!("http://{address}/ready"));
    registration["Check"]["Type"] = json!("http");
    server.put("/v1/catalog/register", &registration).await;
    let first = timeout(PATIENCE, runs.wait_for(|runs| *runs > 0));
    first.await.unwrap().unwrap();
    server.until("unwell", is(CheckStatus::Critical)).await;
    assert_eq!(*runs.borrow(), 1);
    stream(&server, true);
    server
        .until("stream opened", is(CheckStatus::Passing))
        .await;
    assert!(*runs.borrow() >= 3);
    gateway_port.abort();
}

#[tokio::test]
async fn a_dead_gateway_goes_with_its_node_and_a_removed_one_stays_away() {
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    server
        .put("/v1/catalog/register", &gateway(address, "50ms"))
        .await;
    server
        .until("registered", |state| state.node("gw1").is_some())
        .await;
    server
        .until("gone", |state| state.node("gw1").is_none())
        .await;
    assert!(
        server
            .consensus
            .store()
            .latest()
            .service("gw1", "gw")
            .is_none()
    );
}

#[tokio::test]
async fn nodes_with_an_agent_are_left_to_it() {
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut body = gateway(address, "6h");
    let own = body["Check"].take();
    let serf = json!({"Name": "Serf Health Status", "CheckID": "serfHealth", "Status": "passing"});
    body.as_object_mut().unwrap().remove("Check");
    body["Checks"] = json!([own, serf]);
    server.put("/v1/catalog/register", &body).await;
    stream(&server, true);
    // A second gateway without an agent, registered later, has its result first.
    let mut other = gateway(address, "6h");
    other["Node"] = json!("gw2");
    server.put("/v1/catalog/register", &other).await;
    server
        .until("the other one", |state| {
            let check = state.check("gw2", "service:gw");
            check.is_some_and(|check| check.status == CheckStatus::Passing)
        })
        .await;
    assert!(is(CheckStatus::Critical)(
        &server.consensus.store().latest()
    ));
}

#[tokio::test]
async fn many_gateways_are_looked_at_within_moments() {
    const GATEWAYS: usize = 300;
    let server = AgentServer::start("n1", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let begun = tokio::time::Instant::now();
    for n in 0..GATEWAYS {
        let mut body = gateway(address, "6h");
        body["Node"] = json!(format!("gw{n}"));
        server.put("/v1/catalog/register", &body).await;
    }
    let registered = begun.elapsed();
    server
        .until("all pass", |state| {
            state.checks_in_state(Some(CheckStatus::Passing)).len() == GATEWAYS
        })
        .await;
    let all = begun.elapsed() - registered;
    assert!(
        all < Duration::from_secs(5),
        "{registered:?} to register, {all:?} more"
    );
}
