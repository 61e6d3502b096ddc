//! The xDS server against a real Envoy and a real grpcurl.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr
)] // Test code: a failed step should stop the test.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crossway::proto::crossway::v1::{ProxyStream, SyncState};
use crossway::testing::xds::key;
use crossway::xds::registry::Now;
use crossway::xds::resources::ProxyResources;
use crossway::xds::server::Settings;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::support::peers;
use crate::support::xds::{XdsServer, cluster, endpoints, gateway};

#[expect(clippy::disallowed_methods, reason = "a test looks at the clock")]
fn now() -> Now {
    Now {
        instant: Instant::now(),
        wall: std::time::SystemTime::now(),
    }
}

/// What is not held up takes milliseconds; what is waits 15 s for Envoy's own timeout. Nothing in between is a fault.
const PROMPT: Duration = Duration::from_secs(10);

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A running Envoy.
struct Envoy {
    _process: Child,
    folder: TempDir,
}

impl Envoy {
    fn start(program: PathBuf, xds: u16, api_type: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let bootstrap = folder.path().join("bootstrap.json");
        std::fs::write(&bootstrap, bootstrap_json(xds, api_type).to_string()).unwrap();
        let log = std::fs::File::create(folder.path().join("envoy.log")).unwrap();
        let process = Command::new(program)
            .arg("--config-path")
            .arg(&bootstrap)
            .arg("--admin-address-path")
            .arg(folder.path().join("admin"))
            .args(["--disable-hot-restart", "--concurrency", "1"])
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            _process: process,
            folder,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("envoy.log")).unwrap()
    }

    async fn stat(&self, name: &str) -> u64 {
        let admin = std::fs::read_to_string(self.folder.path().join("admin")).unwrap();
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let url = format!("http://{admin}/stats?filter=^{name}$&format=json");
        let text = reqwest::get(url).await.unwrap().text().await.unwrap();
        let stats: Value = serde_json::from_str(&text).unwrap();
        let found = stats["stats"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["name"] == name);
        found
            .and_then(|s| s["value"].as_u64())
            .unwrap_or_else(|| panic!("{name}: {stats}"))
    }
}

fn bootstrap_json(xds: u16, api_type: &str) -> Value {
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    });
    let ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "node": {"id": "gw", "cluster": "mesh-gateway", "metadata": {"node_name": "host-1"}},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"clusters": [{
            "name": "local_agent",
            "type": "STATIC",
            "connect_timeout": "1s",
            "typed_extension_protocol_options":
                {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
            "load_assignment": {"cluster_name": "local_agent", "endpoints": [{"lb_endpoints": [
                {"endpoint": {"address": {"socket_address":
                    {"address": "127.0.0.1", "port_value": xds}}}},
            ]}]},
        }]},
        "dynamic_resources": {
            "cds_config": ads,
            "lds_config": ads,
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "local_agent"}}],
            },
        },
    })
}

/// The stream of the gateway, if there is exactly one.
fn stream(server: &XdsServer) -> Option<ProxyStream> {
    let mut proxies = server.server.registry().proxies(now());
    let mut proxy = proxies.pop()?;
    proxy.streams.pop()
}

/// How long it takes until the stream is as wanted.
async fn until(server: &XdsServer, envoy: &Envoy, wanted: SyncState, types: usize) -> Duration {
    let start = now().instant;
    loop {
        let stream = stream(server);
        let ready = |s: &ProxyStream| s.state() == wanted && s.types.len() >= types;
        if stream.as_ref().is_some_and(ready) {
            return start.elapsed();
        }
        let late = start.elapsed() > Duration::from_secs(20);
        assert!(!late, "{wanted:?} in time: {stream:?}\n{}", envoy.log());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn give(server: &XdsServer, resources: &ProxyResources) {
    server.source.ready(key("host-1", "gw"), resources.clone());
}

/// Gives the resources and waits until the stream has begun to send them: how soon Envoy acknowledges is a matter of
/// microseconds, so the state on the way there may never be seen.
async fn give_and_send(server: &XdsServer, resources: &ProxyResources) {
    let mut changes = server.server.registry().changes();
    give(server, resources);
    let sent = tokio::time::timeout(Duration::from_secs(20), changes.changed());
    sent.await.unwrap().unwrap();
}

async fn drives_an_envoy(api_type: &str) {
    let Some(program) = peers::find("envoy") else {
        return;
    };
    // What is measured is Envoy's part, not the hold-off after the change before.
    let settings = Settings {
        hold_off: Duration::ZERO,
        ..Settings::default()
    };
    let server = XdsServer::start(settings).await;
    let mut resources = gateway(u32::from(free_port()), &["a.dc1.consul", "b.dc1.consul"]);
    give(&server, &resources);
    let envoy = Envoy::start(program, server.address.port(), api_type);
    let sync = until(&server, &envoy, SyncState::Synced, 3).await;
    eprintln!("{api_type}: initial sync {sync:?}");
    assert!(sync < PROMPT, "{sync:?}");
    let mut slowest = Duration::ZERO;
    for round in 1..=20 {
        resources
            .clusters
            .put(cluster("a.dc1.consul", 5000 + round));
        give_and_send(&server, &resources).await;
        slowest = slowest.max(until(&server, &envoy, SyncState::Synced, 3).await);
    }
    eprintln!("{api_type}: a changed cluster is acknowledged within {slowest:?}");
    assert!(slowest < PROMPT, "{slowest:?}");
    // A new cluster without endpoints does not wait for Envoy's fetch timeout either.
    resources.clusters.put(cluster("empty.dc1.consul", 5000));
    give_and_send(&server, &resources).await;
    let empty = until(&server, &envoy, SyncState::Synced, 3).await;
    assert!(empty < PROMPT, "{empty:?}");
    // Envoy refuses the whole response for one wrong cluster; the others arrive all the same.
    for (name, timeout) in [
        ("bad.dc1.consul", 0),
        ("c.dc1.consul", 5000),
        ("d.dc1.consul", 5000),
    ] {
        resources.clusters.put(cluster(name, timeout));
        resources.endpoints.put(endpoints(name, 9));
    }
    give(&server, &resources);
    until(&server, &envoy, SyncState::Refused, 3).await;
    let start = now().instant;
    loop {
        let types = stream(&server).unwrap().types;
        let clusters = types
            .iter()
            .find(|t| t.type_url.ends_with("Cluster"))
            .unwrap();
        if clusters.acknowledged == 5 && clusters.refused.len() == 1 {
            break assert_eq!(clusters.refused.first().unwrap().name, "bad.dc1.consul");
        }
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{types:?}\n{}",
            envoy.log()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(envoy.stat("cluster_manager.warming_clusters").await, 0);
    assert_eq!(envoy.stat("cluster_manager.active_clusters").await, 1 + 5);
}

#[tokio::test]
async fn drives_an_envoy_by_delta() {
    drives_an_envoy("DELTA_GRPC").await;
}

#[tokio::test]
async fn drives_an_envoy_by_state_of_the_world() {
    drives_an_envoy("GRPC").await;
}

async fn grpcurl(server: &XdsServer, options: &[&str], words: &[&str]) -> Option<Output> {
    let program = peers::find("grpcurl")?;
    let output = Command::new(program)
        .args(["-plaintext", "-max-time", "10"])
        .args(options)
        .arg(server.address.to_string())
        .args(words)
        .output()
        .await
        .unwrap();
    Some(output)
}

fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[tokio::test]
async fn everything_can_be_seen_with_grpcurl() {
    let server = XdsServer::start(Settings::default()).await;
    give(&server, &gateway(8443, &["a.dc1.consul"]));
    let Some(list) = grpcurl(&server, &[], &["list"]).await else {
        return;
    };
    let list = text(&list);
    let services: Vec<_> = list.lines().collect();
    for service in [
        "envoy.service.discovery.v3.AggregatedDiscoveryService",
        "envoy.service.cluster.v3.ClusterDiscoveryService",
        "envoy.service.status.v3.ClientStatusDiscoveryService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    ] {
        assert!(services.contains(&service), "{service} in {services:?}");
    }
    assert_eq!(services.len(), 6 + 4, "only what is served: {services:?}");
    let proxy = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
    let described = grpcurl(&server, &[], &["describe", proxy]).await.unwrap();
    assert!(text(&described).contains("weighted_clusters"));
    let health = grpcurl(&server, &[], &["grpc.health.v1.Health/Check"])
        .await
        .unwrap();
    assert!(text(&health).contains("SERVING"));
    let request = json!({
        "node": {"id": "gw"},
        "type_url": "type.googleapis.com/envoy.config.listener.v3.Listener",
    });
    let method = "envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
    let request = request.to_string();
    let delta = grpcurl(&server, &["-d", &request], &[method])
        .await
        .unwrap();
    let delta: Value = serde_json::from_str(&text(&delta)).unwrap();
    let listener = &delta["resources"][0]["resource"];
    let filter = &listener["filterChains"][0]["filters"][0]["typedConfig"];
    assert_eq!(filter["@type"], format!("type.googleapis.com/{proxy}"));
    assert_eq!(filter["cluster"], "a.dc1.consul");
    let csds = "envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
    let status = grpcurl(&server, &[], &[csds]).await.unwrap();
    text(&status);
}
