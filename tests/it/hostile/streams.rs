//! xDS clients that are broken or hostile, at the ports of a whole server.

use crate::hostile::check_alive;
use crate::hostile::soak;
use crate::support::server::Server;
use crate::support::server::eventually;
use crate::support::xds::node;
use crossway::proto::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use crossway::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use crossway::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use serde_json::json;
use std::time::Duration;
use std::time::Instant;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;
use tonic::Status;
use tonic::Streaming;
use tonic::transport::Channel;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

struct Client {
    requests: mpsc::UnboundedSender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl Client {
    async fn open(channel: &Channel, first: DeltaDiscoveryRequest) -> Result<Self, Status> {
        let (requests, stream) = mpsc::unbounded_channel();
        requests.send(first).unwrap();
        let mut client = AggregatedDiscoveryServiceClient::new(channel.clone());
        let stream = UnboundedReceiverStream::new(stream);
        let responses = client
            .delta_aggregated_resources(stream)
            .await?
            .into_inner();
        Ok(Self {
            requests,
            responses,
        })
    }

    /// How the stream ends, whatever comes before.
    async fn end(mut self) -> Status {
        loop {
            match self.responses.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

fn subscribe(id: &str) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: Some(node(id, Some("gw-node"))),
        type_url: CDS.to_owned(),
        ..Default::default()
    }
}

async fn connect(server: &Server) -> Channel {
    let uri = format!("http://{}", server.port(8502));
    Channel::from_shared(uri).unwrap().connect().await.unwrap()
}

fn register(server: &Server) {
    let service = json!({"Kind": "mesh-gateway", "ID": "gw", "Service": "mesh-gateway", "Port": 8443, "Address": "10.0.0.1"});
    server.put(
        "/v1/catalog/register",
        &json!({"Node": "gw-node", "Address": "10.0.0.1", "Service": service}),
    );
}

fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_names_and_unknown_types_end_or_are_ignored() {
    let server = Server::start(&json!({}));
    register(&server);
    let channel = connect(&server).await;
    let long = Client::open(&channel, subscribe(&"x".repeat(1 << 20))).await;
    let end = match long {
        Ok(client) => client.end().await,
        Err(status) => status,
    };
    assert_eq!(end.code(), Code::InvalidArgument);
    assert!(end.message().contains("node.id of 1048576 bytes"), "{end}");
    assert!(
        server.log().lines().all(|line| line.len() < 4000),
        "long lines in the log"
    );

    let large = Client::open(
        &channel,
        DeltaDiscoveryRequest {
            resource_names_subscribe: vec!["y".repeat(17 << 20)],
            ..subscribe("gw")
        },
    )
    .await;
    let end = match large {
        Ok(client) => client.end().await,
        Err(status) => status,
    };
    assert_eq!(end.code(), Code::ResourceExhausted, "{end}");

    let mut client = Client::open(
        &channel,
        DeltaDiscoveryRequest {
            type_url: "type.googleapis.com/no.such.Type".to_owned(),
            ..subscribe("gw")
        },
    )
    .await
    .unwrap();
    client.requests.send(subscribe("gw")).unwrap();
    let answer = client.responses.message().await.unwrap().unwrap();
    assert_eq!(answer.type_url, CDS);
    check_alive(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_come_and_go_leave_nothing() {
    let server = Server::start(&json!({}));
    register(&server);
    let before = memory(&server);
    let count = soak(300, 5000);
    let start = Instant::now();
    for chunk in 0..count / 100 {
        let channel = connect(&server).await;
        let mut open = Vec::new();
        for n in 0..100 {
            // Half of them are of proxies that do not exist.
            let id = if n % 2 == 0 { "gw" } else { "nobody" };
            open.push(Client::open(&channel, subscribe(id)).await.unwrap());
        }
        if chunk % 2 == 0 {
            for client in open.iter_mut().step_by(2) {
                client.responses.message().await.unwrap().unwrap();
            }
        }
    }
    println!(
        "{count} streams in {:?}, {before} -> {} MiB",
        start.elapsed(),
        memory(&server)
    );
    let metric = || {
        let (_, text) = server.get("/v1/agent/metrics?format=prometheus").ok()?;
        let text = text.as_str()?.to_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with("consul_xds_server_streams"))?
            .to_owned();
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    eventually("all streams to be gone", || (metric()? < 0.5).then_some(()));
    assert!(memory(&server) < before + 100);
    check_alive(&server);
}

/// Answers without end to what was never sent, by a client that never reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_and_clients_that_never_read_cost_little() {
    let server = Server::start(&json!({}));
    register(&server);
    for n in 0..200 {
        let service = json!({"ID": format!("s{n}"), "Service": format!("service-{n}"), "Port": 80, "Connect": {"Native": true}});
        server.put(
            "/v1/catalog/register",
            &json!({"Node": "host", "Address": "10.0.0.2", "Service": service}),
        );
    }
    let channel = connect(&server).await;
    let mut deaf = Vec::new();
    for _ in 0..soak(20, 500) {
        deaf.push(Client::open(&channel, subscribe("gw")).await.unwrap());
    }
    let flood = Client::open(&connect(&server).await, subscribe("gw"))
        .await
        .unwrap();
    for n in 0..50_000_u32 {
        let answer = DeltaDiscoveryRequest {
            type_url: CDS.to_owned(),
            response_nonce: format!("{n:08x}"),
            ..Default::default()
        };
        flood.requests.send(answer).unwrap();
    }
    let before = memory(&server);
    for n in 0..soak(100, 1000) {
        let service = json!({"ID": "s0", "Service": "service-0", "Port": 81 + n, "Connect": {"Native": true}});
        server.put(
            "/v1/catalog/register",
            &json!({"Node": "host", "Address": "10.0.0.2", "Service": service}),
        );
    }
    let reader = Client::open(&connect(&server).await, subscribe("gw")).await;
    let mut reader = reader.unwrap();
    let first = tokio::time::timeout(Duration::from_secs(5), reader.responses.message()).await;
    let first = first.unwrap().unwrap().unwrap();
    assert!(first.resources.len() >= 200, "{}", first.resources.len());
    let after = memory(&server);
    println!(
        "{} deaf streams, a flood and 100 changes: {before} -> {after} MiB",
        deaf.len()
    );
    assert!(after < before + 60, "{before} -> {after} MiB");
    check_alive(&server);
}
