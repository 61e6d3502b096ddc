//! The server dies while gateways carry connections.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods)] // The clock of the machine is the one that Envoy has.

use crate::support::gateway::Backend;
use crate::support::gateway::Gateway;
use crate::support::gateway::ask;
use crate::support::mesh::offer;
use crate::support::mesh::publish;
use crate::support::mesh::through;
use crate::support::mesh::trust_domain;
use crate::support::peers;
use crate::support::server::Server;
use crate::support::server::eventually;
use crate::support::xds::DeltaClient;
use crate::support::xds::node;
use crossway::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use crossway::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crossway::xds::resources::ResourceType;
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

/// What waits for a timer, Envoy's or ours, takes 5 s and more. What goes at once takes milliseconds, or a while on a busy
/// machine.
const AT_ONCE: Duration = Duration::from_secs(3);

/// What Envoy did with its configuration so far.
fn done(gateway: &Gateway) -> [u64; 7] {
    gateway.stats([
        "listener_manager.listener_added",
        "listener_manager.listener_modified",
        "listener_manager.listener_removed",
        "cluster_manager.cluster_added",
        "cluster_manager.cluster_modified",
        "cluster_manager.cluster_removed",
        "listener_manager.lds.update_rejected",
    ])
}

/// The connection lives, new ones are made, nothing is sent again after the return, and then changes arrive as before.
#[test]
fn killed_while_a_gateway_carries_a_connection() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let mut agent = Server::start(&json!({}));
    let td = trust_domain(&agent);
    let (web, dc2) = (Backend::start("web"), Backend::start("dc2"));
    let at = dc2.address.to_string();
    offer(&agent, "web", &web);
    publish(&agent, "dc2", &[(&at, dc2.port, "passing")]);
    let gateway = Gateway::start(&agent, &envoy, "gw1");
    let local = format!("web.default.dc1.internal.{td}");
    eventually("web", || through(&gateway, &local));
    let mut held = eventually("dc2", || gateway.dial(Some("a.server.dc2.consul")).ok());
    let mut lives = || assert_eq!(ask(&mut held).unwrap(), "dc2 a.server.dc2.consul");
    let connected = || gateway.stat("control_plane.connected_state");
    let before = done(&gateway);
    for _ in 0..2 {
        lives();
        agent.kill();
        lives();
        eventually("the loss", || (connected()? == 0).then_some(()));
        assert_eq!(through(&gateway, &local).as_deref(), Some("web"));
        assert_eq!(
            through(&gateway, "server.dc2.consul").as_deref(),
            Some("dc2")
        );
        agent.restart();
        lives();
        eventually("the return", || (connected()? == 1).then_some(()));
        assert_eq!(done(&gateway), before);
    }
    // The stream is of use: a change comes through, within a second.
    let start = Instant::now();
    publish(&agent, "dc3", &[(&at, dc2.port, "passing")]);
    eventually("dc3", || through(&gateway, "x.server.dc3.consul"));
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    lives();
}

async fn connect(agent: &Server) -> DeltaClient {
    let url = format!("http://{}", agent.port(8502));
    let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    let (requests, stream) = mpsc::unbounded_channel();
    let stream = UnboundedReceiverStream::new(stream);
    let responses = client.delta_aggregated_resources(stream).await.unwrap();
    DeltaClient {
        requests: Some(requests),
        responses: responses.into_inner(),
        node: Some(node("mesh-gateway", Some("gw1"))),
    }
}

/// C073: after the loss of the server all gateways come back at once, with what they know. Nothing is sent again,
/// writes go on meanwhile, and the next change reaches all.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_streams_come_back_at_once() {
    const STREAMS: usize = 300;
    let mut agent = Server::start(&json!({"limits": {"http_max_conns_per_client": 1000}}));
    let gateway = json!({
        "Node": "gw1", "Address": "127.0.0.1",
        "Service": {"Kind": "mesh-gateway", "ID": "mesh-gateway", "Service": "mesh-gateway", "Port": 8443,
            "Address": "127.0.0.1", "Meta": {"consul-wan-federation": "1"}},
    });
    agent.put("/v1/catalog/register", &gateway);
    publish(&agent, "dc2", &[("192.0.2.2", 443, "passing")]);
    let mut first = connect(&agent).await;
    first.subscribe(ResourceType::Cluster, &[]);
    let clusters = first.accept(ResourceType::Cluster).await;
    let known: HashMap<String, String> = clusters
        .resources
        .iter()
        .map(|r| (r.name.clone(), r.version.clone()))
        .collect();
    assert!(known.contains_key("server.dc2.consul"));
    agent.restart();

    let start = Instant::now();
    let opening = (0..STREAMS).map(|_| async {
        let mut client = connect(&agent).await;
        client.send(DeltaDiscoveryRequest {
            type_url: ResourceType::Cluster.url().to_owned(),
            initial_resource_versions: known.clone(),
            ..Default::default()
        });
        client
    });
    let opening = futures_util::future::join_all(opening);
    let write = async {
        let value = tokio::task::block_in_place(|| agent.put("/v1/kv/a", &json!(1)));
        assert_eq!(value, json!(true));
        start.elapsed()
    };
    let (mut clients, wrote) = tokio::join!(opening, write);
    assert!(wrote < Duration::from_secs(5), "a write took {wrote:?}");
    // The first message that comes is the change: what was known was not sent again.
    tokio::task::block_in_place(|| publish(&agent, "dc3", &[("192.0.2.3", 443, "passing")]));
    for client in &mut clients {
        let response = client.accept(ResourceType::Cluster).await;
        let mut names: Vec<_> = response.resources.iter().map(|r| r.name.as_str()).collect();
        names.sort_unstable();
        assert!(
            names.len() == 2 && names[1] == "server.dc3.consul",
            "{names:?}"
        );
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}
