//! xDS over real gRPC, from the outside.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway::proto::crossway::v1::SyncState;
use crossway::proto::envoy::admin::v3::ClientResourceStatus;
use crossway::proto::envoy::config::core::v3::BuildVersion;
use crossway::proto::envoy::config::core::v3::node::UserAgentVersionType;
use crossway::proto::envoy::service::cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient;
use crossway::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse,
};
use crossway::proto::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use crossway::proto::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use crossway::proto::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryService;
use crossway::proto::envoy::service::status::v3::{ClientStatusRequest, ConfigStatus};
use crossway::proto::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use crossway::proto::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use crossway::proto::envoy::r#type::v3::SemanticVersion;
use crossway::testing::xds::{Registered, key};
use crossway::xds::admission::Rate;
use crossway::xds::csds::Csds;
use crossway::xds::life::Patience;
use crossway::xds::registry::{Now, StreamEvent};
use crossway::xds::resources::{ProxyResources, ResourceType};
use crossway::xds::server::Settings;
use tonic::{Code, IntoRequest};

use crate::support::xds::{
    DeltaClient, SOON, XdsServer, cluster, delta, endpoints, gateway, listener, names, node,
    slow_link,
};

/// How long what takes seconds on a slow link may take.
const PATIENCE: Duration = Duration::from_secs(60);

const CDS: ResourceType = ResourceType::Cluster;
const EDS: ResourceType = ResourceType::Endpoint;
const LDS: ResourceType = ResourceType::Listener;

fn quick() -> Settings {
    Settings {
        patience: Patience {
            unknown: Duration::from_millis(300),
            deregistered: Duration::from_millis(300),
        },
        ..Settings::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "a test measures")]
fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a test looks at the clock")]
fn now() -> Now {
    Now {
        instant: Instant::now(),
        wall: std::time::SystemTime::now(),
    }
}

/// Waits for a condition.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = clock();
    while !condition() {
        assert!(start.elapsed() < SOON, "in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn synced(server: &XdsServer, id: &str) -> DeltaClient {
    let mut client = server.delta(id).await;
    client.subscribe(CDS, &[]);
    let response = client.accept(CDS).await;
    let names = names(&response).into_iter().map(str::to_owned);
    let names: Vec<_> = names.collect();
    client.subscribe(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>());
    client.accept(EDS).await;
    client.subscribe(LDS, &[]);
    client.accept(LDS).await;
    client
}

#[tokio::test]
async fn a_delta_stream_gets_everything_and_then_only_what_changed() {
    let server = XdsServer::start(Settings::default()).await;
    let mut resources = gateway(8443, &["a.dc1", "b.dc1"]);
    server.source.ready(key("host-1", "gw"), resources.clone());
    let mut client = server.delta("gw").await;
    client.subscribe(CDS, &[]);
    assert_eq!(names(&client.accept(CDS).await), ["a.dc1", "b.dc1"]);
    client.subscribe(EDS, &["a.dc1", "b.dc1"]);
    assert_eq!(names(&client.accept(EDS).await), ["a.dc1", "b.dc1"]);
    client.subscribe(LDS, &[]);
    assert_eq!(names(&client.accept(LDS).await), ["default:127.0.0.1:8443"]);
    resources.endpoints.put(endpoints("b.dc1", 10));
    server.source.ready(key("host-1", "gw"), resources.clone());
    let response = client.accept(EDS).await;
    assert_eq!(names(&response), ["b.dc1"]);
    let any = response.resources[0].resource.as_ref().unwrap();
    let wanted = resources.endpoints.get("b.dc1").unwrap();
    assert_eq!((&*any.type_url, &*any.value), (EDS.url(), &*wanted.body()));
    assert_eq!(response.resources[0].version, wanted.version().to_string());
}

#[tokio::test]
async fn a_state_of_the_world_stream_follows_the_same_order() {
    let server = XdsServer::start(Settings::default()).await;
    let mut resources = gateway(8443, &["a.dc1"]);
    server.source.ready(key("host-1", "gw"), resources.clone());
    let mut client = server.sotw("gw").await;
    let none = DiscoveryResponse::default();
    client.ask(CDS, &[], &none);
    let clusters = client.next(CDS).await;
    assert_eq!(clusters.resources.len(), 1);
    client.ask(EDS, &["a.dc1", "x.dc1"], &none);
    let assignments = client.next(EDS).await;
    assert_eq!(assignments.resources.len(), 2, "an empty assignment for x");
    client.ask(CDS, &[], &clusters);
    client.ask(LDS, &[], &none);
    client.ask(EDS, &["a.dc1", "x.dc1"], &assignments);
    client.next(LDS).await;
    // Endpoints come again with their changed cluster, unasked.
    resources.clusters.put(cluster("a.dc1", 6000));
    server.source.ready(key("host-1", "gw"), resources);
    let changed = client.next(CDS).await;
    assert_ne!(changed.version_info, clusters.version_info);
    let again = client.next(EDS).await;
    assert_eq!(again.version_info, assignments.version_info);
    assert_ne!(again.nonce, assignments.nonce);
}

/// C050, C067 and the empty answer for routes.
#[tokio::test]
async fn a_gateway_without_anything_is_answered_at_once() {
    let server = XdsServer::start(Settings::default()).await;
    server
        .source
        .ready(key("host-1", "gw"), ProxyResources::default());
    let mut client = server.delta("gw").await;
    let start = clock();
    for kind in [CDS, LDS, ResourceType::Route] {
        client.subscribe(kind, &[]);
        assert!(client.accept(kind).await.resources.is_empty());
    }
    client.subscribe(EDS, &["later.dc1"]);
    assert_eq!(client.accept(EDS).await.removed_resources, ["later.dc1"]);
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn an_unknown_proxy_is_waited_for_and_then_named() {
    let server = XdsServer::start(quick()).await;
    let mut client = server.delta("nobody").await;
    client.subscribe(CDS, &[]);
    eventually("it is counted", || {
        server.server.registry().counts().unregistered == 1
    })
    .await;
    let end = client.end().await;
    assert_eq!(end.code(), Code::NotFound);
    assert!(
        end.message().contains("nobody") && end.message().contains("host-1"),
        "{end}"
    );
    eventually("it is gone", || {
        server.server.registry().counts().streams == 0
    })
    .await;
}

#[tokio::test]
async fn a_proxy_that_registers_in_time_is_served() {
    let server = XdsServer::start(Settings::default()).await;
    let mut client = server.delta("gw").await;
    client.subscribe(CDS, &[]);
    eventually("it waits", || {
        server.server.registry().counts().unregistered == 1
    })
    .await;
    let incomplete = Registered::NotReady("no servers yet".to_owned());
    server.source.set(key("host-1", "gw"), incomplete);
    eventually("it is registered", || {
        server.server.registry().counts().unregistered == 0
    })
    .await;
    let proxies = server.server.registry().proxies(now());
    assert_eq!(proxies[0].streams[0].state(), SyncState::NotReady);
    assert_eq!(proxies[0].streams[0].reason, "no servers yet");
    server
        .source
        .ready(key("host-1", "gw"), gateway(8443, &["a.dc1"]));
    assert_eq!(names(&client.accept(CDS).await), ["a.dc1"]);
}

#[tokio::test]
async fn a_deregistered_proxy_ends_after_the_grace() {
    let server = XdsServer::start(quick()).await;
    let gw = key("host-1", "gw");
    server.source.ready(gw.clone(), gateway(8443, &["a.dc1"]));
    let mut client = synced(&server, "gw").await;
    // Back within the grace: the stream goes on, with what changed.
    server.source.remove(&gw);
    eventually("it is counted", || {
        server.server.registry().counts().deregistered == 1
    })
    .await;
    let mut changed = gateway(8443, &["a.dc1"]);
    changed.endpoints.put(endpoints("a.dc1", 11));
    server.source.ready(gw.clone(), changed);
    assert_eq!(names(&client.accept(EDS).await), ["a.dc1"]);
    client.silence(Duration::from_millis(400)).await;
    server.source.remove(&gw);
    let end = client.end().await;
    assert_eq!(end.code(), Code::NotFound);
    assert!(
        end.message().contains("\"gw\"") && end.message().contains("\"host-1\""),
        "{end}"
    );
}

#[tokio::test]
async fn clients_that_cannot_be_served_are_told_why() {
    let server = XdsServer::start(Settings::default()).await;
    server
        .source
        .ready(key("host-1", "gw"), ProxyResources::default());
    server
        .source
        .ready(key("host-2", "gw"), ProxyResources::default());
    let web = Registered::Other("typical".to_owned());
    server.source.set(key("host-1", "web"), web);
    let old = |minor_number| {
        let version = Some(SemanticVersion {
            major_number: 1,
            minor_number,
            patch: 0,
        });
        let build = BuildVersion {
            version,
            metadata: None,
        };
        let mut node = node("gw", Some("host-1"));
        node.user_agent_name = "envoy".to_owned();
        node.user_agent_version_type = Some(UserAgentVersionType::UserAgentBuildVersion(build));
        node
    };
    let cases = [
        (node("gw", None), "host-1, host-2"),
        (node("web", Some("host-1")), "\"typical\""),
        (node("", Some("host-1")), "node with an id"),
        (old(18), "the minimum is 1.34.0"), // C061
    ];
    for (node, text) in cases {
        let mut client = server.delta("").await;
        client.node = Some(node);
        client.subscribe(CDS, &[]);
        let end = client.end().await;
        assert_eq!(end.code(), Code::InvalidArgument, "{text}");
        assert!(end.message().contains(text), "{end}");
    }
    let mut newer = server.delta("").await;
    newer.node = Some(old(99));
    newer.subscribe(CDS, &[]);
    newer.accept(CDS).await;
    let mut client = server.delta("gw").await;
    client.send(DeltaDiscoveryRequest::default());
    let end = client.end().await;
    assert_eq!(end.message(), "type URL is required for ADS");
}

/// C068 and X8: visible in CSDS and the operator API, not sent again, others go on.
#[tokio::test]
async fn a_refusal_is_visible_and_concerns_one_resource() {
    let server = XdsServer::start(Settings::default()).await;
    let gw = key("host-1", "gw");
    let mut resources = gateway(8443, &["a.dc1", "bad.dc1", "c.dc1"]);
    server.source.ready(gw.clone(), resources.clone());
    let mut client = server.delta("gw").await;
    client.subscribe(CDS, &[]);
    let first = client.next().await;
    client.nack(&first, "Error adding/updating cluster(s) bad.dc1: no");
    assert_eq!(names(&client.accept(CDS).await), ["a.dc1", "c.dc1"]);
    client.silence(Duration::from_millis(300)).await;
    let mut csds = ClientStatusDiscoveryServiceClient::new(server.channel().await);
    let status = csds
        .fetch_client_status(ClientStatusRequest::default())
        .await
        .unwrap();
    let config = &status.into_inner().config[0];
    assert_eq!(config.node.as_ref().unwrap().id, "gw");
    let of = |name: &str| {
        let all = config.generic_xds_configs.iter();
        all.clone().find(|one| one.name == name).unwrap()
    };
    let good = of("a.dc1");
    assert_eq!(good.client_status(), ClientResourceStatus::Acked);
    assert_eq!(good.config_status(), ConfigStatus::Synced);
    assert!(good.last_updated.is_some() && good.xds_config.is_some());
    let wanted = resources.clusters.get("a.dc1").unwrap().version();
    assert_eq!(good.version_info, wanted.to_string());
    let bad = of("bad.dc1");
    assert_eq!(bad.client_status(), ClientResourceStatus::Nacked);
    let error = bad.error_state.as_ref().unwrap();
    assert!(error.details.contains("bad.dc1"));
    assert!(error.failed_configuration.is_some());
    let proxies = server.server.registry().proxies(now());
    assert_eq!(proxies[0].streams[0].state(), SyncState::Refused);
    assert_eq!(proxies[0].streams[0].types[0].refused[0].name, "bad.dc1");
    resources.clusters.put(cluster("bad.dc1", 7000));
    server.source.ready(gw, resources);
    assert_eq!(names(&client.accept(CDS).await), ["bad.dc1"]);
    eventually("all is well", || {
        let proxies = server.server.registry().proxies(now());
        proxies[0].streams[0].state() == SyncState::Synced
    })
    .await;
}

#[tokio::test]
async fn the_first_change_goes_at_once_and_bursts_are_folded() {
    let server = XdsServer::start(Settings::default()).await;
    let gw = key("host-1", "gw");
    let mut resources = gateway(8443, &["a.dc1"]);
    server.source.ready(gw.clone(), resources.clone());
    let mut client = synced(&server, "gw").await;
    tokio::time::sleep(Duration::from_millis(100)).await; // A quiet time.
    let mut got = 0;
    let start = clock();
    let mut first = None;
    for port in 100..120 {
        resources.endpoints.put(endpoints("a.dc1", port));
        server.source.ready(gw.clone(), resources.clone());
        if first.is_none() {
            client.accept(EDS).await;
            first = Some(start.elapsed());
            got += 1;
        }
    }
    let last = resources
        .endpoints
        .get("a.dc1")
        .unwrap()
        .version()
        .to_string();
    loop {
        got += 1;
        if client.accept(EDS).await.resources[0].version == last {
            break;
        }
    }
    assert!(first.unwrap() < Duration::from_millis(40), "{first:?}");
    assert!(got <= 3, "20 changes in {got} responses");
}

#[tokio::test]
async fn a_reconnecting_envoy_is_not_sent_what_it_has() {
    let server = XdsServer::start(Settings::default()).await;
    let resources = gateway(8443, &["a.dc1"]);
    server.source.ready(key("host-1", "gw"), resources.clone());
    let mut client = server.delta("gw").await;
    for kind in [CDS, LDS] {
        let versions = resources.of(kind).iter();
        let versions = versions.map(|r| (r.name().to_string(), r.version().to_string()));
        client.send(DeltaDiscoveryRequest {
            type_url: kind.url().to_owned(),
            initial_resource_versions: versions.collect(),
            ..Default::default()
        });
    }
    client.silence(Duration::from_millis(200)).await;
    client.subscribe(EDS, &["a.dc1"]);
    client.accept(EDS).await;
}

#[tokio::test]
async fn single_type_services_are_the_same_session() {
    let server = XdsServer::start(Settings::default()).await;
    server
        .source
        .ready(key("host-1", "gw"), gateway(8443, &["a.dc1"]));
    let mut clusters = ClusterDiscoveryServiceClient::new(server.channel().await);
    let request = DiscoveryRequest {
        node: Some(node("gw", None)),
        ..Default::default()
    };
    let fetched = clusters
        .fetch_clusters(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(fetched.type_url, CDS.url());
    assert_eq!(fetched.resources.len(), 1);
    let wrong = DiscoveryRequest {
        type_url: EDS.url().to_owned(),
        ..request
    };
    let end = clusters.fetch_clusters(wrong).await.unwrap_err();
    assert_eq!(end.code(), Code::InvalidArgument);
    let mut assignments = EndpointDiscoveryServiceClient::new(server.channel().await);
    let request = DeltaDiscoveryRequest {
        node: Some(node("gw", None)),
        ..Default::default()
    };
    // The client says one thing and hangs up its half: it gets its answer, then the stream ends well.
    let stream = tokio_stream::once(request);
    let mut stream = assignments
        .delta_endpoints(stream)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(names(&stream.message().await.unwrap().unwrap()), ["a.dc1"]);
    assert!(stream.message().await.unwrap().is_none());
}

#[tokio::test]
async fn garbage_ends_its_own_stream_only() {
    let settings = Settings {
        message_limit: 100_000,
        ..Settings::default()
    };
    let server = XdsServer::start(settings).await;
    let gw = key("host-1", "gw");
    let mut resources = gateway(8443, &["a.dc1"]);
    server.source.ready(gw.clone(), resources.clone());
    let mut client = synced(&server, "gw").await;
    // Field 1 of the request is a message; a string that is none is garbage.
    let garbage = DiscoveryRequest {
        version_info: "\u{1}\u{2}garbage".repeat(10),
        ..Default::default()
    };
    let mut raw = RawClient::new(&server).await;
    assert_eq!(raw.call(garbage).await.code(), Code::InvalidArgument);
    let large = DiscoveryRequest {
        version_info: "x".repeat(200_000),
        ..Default::default()
    };
    let end = raw.call(large).await;
    assert_eq!(end.code(), Code::ResourceExhausted);
    assert!(end.message().contains("100000"), "{end}");
    resources.endpoints.put(endpoints("a.dc1", 12));
    server.source.ready(gw, resources);
    client.accept(EDS).await;
}

/// Sends messages of another type to the delta method.
struct RawClient(tonic::client::Grpc<tonic::transport::Channel>);

impl RawClient {
    async fn new(server: &XdsServer) -> Self {
        Self(tonic::client::Grpc::new(server.channel().await))
    }

    async fn call(&mut self, request: DiscoveryRequest) -> tonic::Status {
        self.0.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let path =
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
        let path = path.parse().unwrap();
        let stream = tonic::Request::new(tokio_stream::once(request));
        let answer = self.0.streaming(stream, path, codec).await;
        let mut answers = match answer {
            Ok(answers) => answers.into_inner(),
            Err(status) => return status,
        };
        answers.message().await.unwrap_err()
    }
}

#[tokio::test]
async fn streams_of_proxies_are_told_as_events() {
    let server = XdsServer::start(Settings::default()).await;
    let gw = key("host-1", "gw");
    server.source.ready(gw.clone(), gateway(8443, &["a.dc1"]));
    let mut events = server.server.registry().events();
    let client = synced(&server, "gw").await;
    let event = |opened| StreamEvent {
        proxy: gw.clone(),
        opened,
    };
    assert_eq!(events.recv().await.unwrap(), event(true));
    drop(client);
    assert_eq!(events.recv().await.unwrap(), event(false));
}

#[tokio::test]
async fn too_many_new_streams_are_refused_and_a_stop_is_told() {
    let settings = Settings {
        new_streams: Rate {
            burst: 2,
            per_second: 1,
        },
        ..Settings::default()
    };
    let server = XdsServer::start(settings).await;
    server
        .source
        .ready(key("host-1", "gw"), gateway(8443, &["a.dc1"]));
    let mut client = synced(&server, "gw").await;
    let _second = server.delta("gw").await;
    let mut third = server.delta("gw").await;
    assert_eq!(third.end().await.code(), Code::ResourceExhausted);
    server.shutdown.cancel();
    let end = client.end().await;
    assert_eq!(end.code(), Code::Unavailable);
    assert_eq!(end.message(), "this server is shutting down");
}

/// Two streams of one proxy do not disturb each other; different proxies have different listeners.
#[tokio::test]
async fn streams_are_independent() {
    let server = XdsServer::start(Settings::default()).await;
    let shared = gateway(8443, &["a.dc1"]);
    let mut other = shared.clone();
    other.listeners = [listener(8444, &["a.dc1"])].into_iter().collect();
    server.source.ready(key("host-1", "gw"), shared.clone());
    server.source.ready(key("host-1", "gw2"), other.clone());
    let mut one = synced(&server, "gw").await;
    let two = synced(&server, "gw").await;
    let mut three = synced(&server, "gw2").await;
    drop(two);
    other.listeners = [listener(8445, &["a.dc1"])].into_iter().collect();
    server.source.ready(key("host-1", "gw2"), other);
    let response = three.accept(LDS).await;
    assert_eq!(names(&response), ["default:127.0.0.1:8445"]);
    assert_eq!(response.removed_resources, ["default:127.0.0.1:8444"]);
    one.silence(Duration::from_millis(200)).await;
}

/// A client that answers pings but makes no room for responses is let go, whatever its neighbours do.
#[tokio::test]
async fn a_client_that_reads_nothing_is_let_go() {
    let server = XdsServer::start(Settings {
        send_timeout: Duration::from_millis(300),
        ..Settings::default()
    })
    .await;
    let many: Vec<String> = (0..2000).map(|n| format!("s{n}.dc1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let small = gateway(8443, &["a.dc1"]);
    server.source.ready(key("host-1", "gw"), small.clone());
    server
        .source
        .ready(key("host-1", "deaf"), gateway(8443, &many));
    let mut good = synced(&server, "gw").await;
    let mut deaf = server.delta("deaf").await;
    deaf.subscribe(CDS, &[]);
    let streams = || server.server.registry().streams().len();
    eventually("both are here", || streams() == 2).await;
    eventually("the deaf one is gone", || streams() == 1).await;
    // The other one has had nothing to take for longer than that, and lives.
    let mut next = small;
    next.endpoints.put(endpoints("a.dc1", 4711));
    server.source.ready(key("host-1", "gw"), next);
    assert_eq!(names(&good.accept(EDS).await), ["a.dc1"]);
    drop(deaf);
}

/// C077: a gateway with many services behind a slow link gets the newest state and not each one before it; another one
/// waits for nothing meanwhile.
#[tokio::test]
async fn a_slow_link_gets_the_newest_state_and_delays_nobody() {
    const CHANGES: u32 = 40;
    let server = XdsServer::start(Settings::default()).await;
    let services: Vec<String> = (0..1500).map(|n| format!("s{n}.dc1")).collect();
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let large = gateway(8443, &services);
    server
        .source
        .ready(key("host-1", "near"), gateway(8444, &services[..10]));
    server.source.ready(key("host-1", "far"), large.clone());
    let mut near = synced(&server, "near").await;
    let (address, speed) = slow_link(server.address, 500_000).await;
    let mut far = delta(address, "far").await;
    far.subscribe(CDS, &[]);
    far.subscribe(EDS, &services);
    let first = tokio::time::timeout(PATIENCE, far.responses.message());
    let first = first.await.unwrap().unwrap().unwrap();
    assert_eq!(
        (first.type_url.as_str(), first.resources.len()),
        (CDS.url(), 1500)
    );
    // Its endpoints are on the way now, hardly move, and change all the time.
    speed.send(2000).unwrap();
    far.ack(&first);
    let (mut large, mut small) = (large, gateway(8444, &services[..10]));
    for n in 1..=CHANGES {
        let changed = endpoints(services[3], 10_000 + n);
        large.endpoints.put(changed.clone());
        small.endpoints.put(changed);
        server.source.ready(key("host-1", "far"), large.clone());
        server.source.ready(key("host-1", "near"), small.clone());
        assert_eq!(names(&near.accept(EDS).await), [services[3]]);
    }
    speed.send(500_000).unwrap();
    let newest = large
        .endpoints
        .get(services[3])
        .unwrap()
        .version()
        .to_string();
    let (mut versions, mut others) = (Vec::new(), BTreeSet::new());
    while versions.last() != Some(&newest) {
        let next = tokio::time::timeout(PATIENCE, far.responses.message());
        let next = next.await.unwrap().unwrap().unwrap();
        assert_eq!(next.type_url, EDS.url());
        far.ack(&next);
        for resource in next.resources {
            if resource.name == services[3] {
                versions.push(resource.version);
            } else {
                others.insert(resource.name);
            }
        }
    }
    assert_eq!(others.len(), 1499, "no endpoint is lost");
    let shown = versions.len();
    assert!(shown < CHANGES as usize / 2, "{shown} versions");
}

/// An answer about all streams is built beside them, has a bound, and shows each client the whole truth.
#[tokio::test]
async fn the_status_of_many_streams_is_bounded_and_holds_up_nobody() {
    const STREAMS: usize = 40;
    let limit = 300_000;
    let server = XdsServer::start(Settings {
        status_limit: limit,
        ..Settings::default()
    })
    .await;
    let names: Vec<String> = (0..50).map(|n| format!("s{n}.dc1")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut clients = Vec::new();
    for n in 0..STREAMS {
        let id = format!("gw-{n}");
        server
            .source
            .ready(key("host-1", &id), gateway(8443, &names));
        clients.push(synced(&server, &id).await);
    }
    let csds = Csds::new(Arc::clone(server.server.registry()), limit);
    let everything = ClientStatusRequest::default();
    // One step of this thread must not build it.
    let mut answer = std::pin::pin!(csds.fetch_client_status(everything.clone().into_request()));
    assert!(futures_util::poll!(answer.as_mut()).is_pending());
    let refused = answer.await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(
        refused
            .message()
            .contains("300000 bytes: choose clients with node_matchers"),
        "{refused}"
    );
    let one = ClientStatusRequest {
        node_matchers: vec![NodeMatcher {
            node_id: Some(StringMatcher {
                match_pattern: Some(MatchPattern::Exact("gw-7".to_owned())),
                ..Default::default()
            }),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut client = ClientStatusDiscoveryServiceClient::new(server.channel().await)
        .max_decoding_message_size(2 * limit);
    let answer = client.fetch_client_status(one).await.unwrap().into_inner();
    assert_eq!(answer.config.len(), 1);
    assert_eq!(
        answer.config[0].generic_xds_configs.len(),
        2 * names.len() + 1
    );
    assert!(
        answer.config[0]
            .generic_xds_configs
            .iter()
            .all(|one| one.xds_config.is_some())
    );
    let csds = Csds::new(Arc::clone(server.server.registry()), Csds::LIMIT);
    let all = csds
        .fetch_client_status(everything.into_request())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(all.config.len(), STREAMS);
    // Somebody who hangs up makes room for the next.
    for _ in 0..3 {
        let mut answer =
            std::pin::pin!(csds.fetch_client_status(ClientStatusRequest::default().into_request()));
        assert!(futures_util::poll!(answer.as_mut()).is_pending());
    }
    csds.fetch_client_status(ClientStatusRequest::default().into_request())
        .await
        .unwrap();
}

/// Memory and time of many streams in this one process, clients included. Run by hand: `cargo test --release --test it
/// many_streams -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
#[allow(clippy::print_stderr)]
async fn many_streams() {
    const STREAMS: usize = 500;
    let server = XdsServer::start(Settings::default()).await;
    let names: Vec<String> = (0..100)
        .map(|n| format!("s{n}.default.dc1.internal.consul"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut resources = gateway(8443, &names);
    server.source.ready(key("host-1", "gw"), resources.clone());
    let start = clock();
    let mut clients = Vec::new();
    for _ in 0..STREAMS {
        clients.push(synced(&server, "gw").await);
    }
    eprintln!(
        "{STREAMS} streams synced one after another in {:?}",
        start.elapsed()
    );
    let deviations: usize = server
        .server
        .registry()
        .streams()
        .iter()
        .map(|stream| {
            let state = stream.state.lock();
            ResourceType::ALL
                .into_iter()
                .map(|kind| state.session.of(kind).ledger.deviations())
                .sum::<usize>()
        })
        .sum();
    eprintln!("deviations of all ledgers: {deviations}");
    for round in 0..5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        resources.endpoints.put(endpoints(names[5], 1000 + round));
        let start = clock();
        server.source.ready(key("host-1", "gw"), resources.clone());
        for client in &mut clients {
            client.accept(EDS).await;
        }
        eprintln!(
            "a change is at all {STREAMS} clients after {:?}",
            start.elapsed()
        );
    }
}
