//! Envoy's bootstrap: golden documents, each of them and the examples read by a real Envoy.
//!
//! `UPDATE=1 cargo test --test it bootstrap` rewrites `tests/data/bootstrap/*.json`; read the difference.
#![allow(clippy::unwrap_used, clippy::panic)] // Test code: a failed step should stop the test.

use crate::support::peers;
use crossway::bootstrap;
use crossway::bootstrap::ClientTls;
use crossway::bootstrap::ControlPlane;
use crossway::bootstrap::Endpoint;
use crossway::bootstrap::Node;
use crossway::bootstrap::Options;
use crossway::bootstrap::ServerTls;
use crossway::bootstrap::Stats;
use serde_json::Value;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

const CA: &str = include_str!("../data/bootstrap/ca.pem");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/bootstrap")
        .join(name)
}

fn plain() -> Options {
    Options {
        node: Node {
            id: "mesh-gateway".to_owned(),
            cluster: "mesh-gateway".to_owned(),
            name: "gw-host-1".to_owned(),
            datacenter: "dc1".to_owned(),
        },
        admin: "127.0.0.1:19000".parse().unwrap(),
        admin_access_log: "/dev/null".into(),
        control_plane: ControlPlane {
            endpoints: vec![Endpoint::Ip("127.0.0.1:8502".parse().unwrap())],
            ..ControlPlane::default()
        },
        // The old names of tags, too.
        stats: Stats {
            omit_deprecated_tags: false,
            ..Stats::default()
        },
        ready: None,
        proxy_config: serde_json::Map::new(),
    }
}

fn tls() -> Options {
    let mut options = plain();
    options.stats.omit_deprecated_tags = true;
    options.control_plane = ControlPlane {
        endpoints: ["10.0.0.1:8503", "10.0.0.2:8503", "[fd00::3]:8503"]
            .map(|address| Endpoint::Ip(address.parse().unwrap()))
            .to_vec(),
        tls: Some(ClientTls {
            ca_pem: CA.to_owned(),
            server_name: "server.dc1.consul".to_owned(),
            accepted_names: vec!["server.dc1.consul".to_owned()],
            certificate: None,
        }),
        token: "5c8ecd41-5d4d-4d3b-9b6a-0d0f0b6a7f3a \"quoted\"".to_owned(),
    };
    options
}

fn dns() -> Options {
    let mut options = plain();
    options.stats.omit_deprecated_tags = true;
    options.control_plane.endpoints = vec![
        Endpoint::Ip("10.0.0.1:8502".parse().unwrap()),
        Endpoint::Dns("xds.example.com".to_owned(), 8502),
    ];
    options
}

fn unix() -> Options {
    let mut options = plain();
    options.stats.omit_deprecated_tags = true;
    options.control_plane.endpoints = vec![Endpoint::Unix("/run/crossway/xds.sock".into())];
    options
}

fn everything() -> Options {
    let mut options = plain();
    options.stats = Stats {
        omit_deprecated_tags: true,
        prometheus_backend_port: Some(20_100),
        ..Stats::default()
    };
    options.ready = Some("0.0.0.0:8080".parse().unwrap());
    let config = json!({
        "envoy_statsd_url": "udp://${HOST_IP}:8125",
        "envoy_dogstatsd_url": "unix:///run/dogstatsd.sock",
        "envoy_stats_tags": ["Team=edge", "canary"],
        "envoy_prometheus_bind_addr": "0.0.0.0:9102",
        "envoy_stats_bind_addr": "[::]:9103",
        "envoy_stats_flush_interval": "1m30s",
        "envoy_extra_static_clusters_json": r#"{"name": "zipkin", "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": "zipkin", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 9411}}}}]}]}}"#,
    });
    options.proxy_config = config.as_object().unwrap().clone();
    options
}

fn render(options: &Options) -> Value {
    bootstrap::render(options, &|name| {
        (name == "HOST_IP").then(|| "10.0.0.9".to_owned())
    })
    .unwrap()
}

/// Compares with the golden file, then has Envoy read it.
#[track_caller]
fn check(name: &str, options: &Options) {
    let text = serde_json::to_string_pretty(&render(options)).unwrap() + "\n";
    let path = data(&format!("{name}.json"));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == golden,
        "{} differs; UPDATE=1 rewrites it",
        path.display()
    );
    envoy_reads(&path);
}

/// `envoy --mode validate` accepts the file, and has nothing to say about deprecated fields.
#[track_caller]
fn envoy_reads(path: &Path) {
    let Some((accepted, log)) = validate(path) else {
        return;
    };
    assert!(accepted, "{}:\n{log}", path.display());
    assert!(!log.contains("eprecated"), "{}:\n{log}", path.display());
}

/// Whether Envoy accepts the file, and what it logs; nothing without Envoy.
#[track_caller]
fn validate(path: &Path) -> Option<(bool, String)> {
    let output = Command::new(peers::find("envoy")?)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "warning",
            "--config-path",
        ])
        .arg(path)
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    Some((output.status.success(), log))
}

#[test]
fn plain_grpc() {
    check("mesh_plain", &plain());
}

#[test]
fn grpc_with_tls_and_several_servers() {
    check("mesh_tls", &tls());
}

#[test]
fn servers_behind_a_dns_name() {
    check("mesh_dns", &dns());
}

#[test]
fn a_server_on_a_socket_file() {
    check("mesh_unix", &unix());
}

#[test]
fn all_sinks_and_listeners() {
    check("mesh_everything", &everything());
}

#[test]
fn client_certificates_and_a_tls_listener_for_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificate(folder.path());
    let mut options = everything();
    options.stats.prometheus_backend_port = None;
    options.stats.prometheus_tls = Some(ServerTls {
        cert_file: files.0.clone(),
        key_file: files.1.clone(),
        ca_pem: Some(CA.to_owned()),
    });
    let mut control_plane = tls().control_plane;
    if let Some(tls) = &mut control_plane.tls {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap();
        tls.certificate = Some((read(&files.0), read(&files.1)));
    }
    options.control_plane = control_plane;
    let path = folder.path().join("bootstrap.json");
    fs::write(&path, render(&options).to_string()).unwrap();
    envoy_reads(&path);
}

/// Envoy wants tracing elsewhere by now, but still reads it from here.
#[test]
fn tracing_of_the_proxy_configuration() {
    let mut options = everything();
    let tracing = json!({
        "envoy_tracing_json": r#"{"http": {"name": "envoy.tracers.zipkin", "typed_config": {"@type": "type.googleapis.com/envoy.config.trace.v3.ZipkinConfig", "collector_cluster": "zipkin", "collector_endpoint": "/api/v2/spans", "collector_endpoint_version": "HTTP_JSON"}}}"#,
    });
    let tracing = tracing.as_object().unwrap().clone();
    options.proxy_config.extend(tracing);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bootstrap.json");
    fs::write(&path, render(&options).to_string()).unwrap();
    let (accepted, log) = validate(&path).unwrap_or((true, String::new()));
    assert!(accepted, "{log}");
}

/// The examples are what a person would write; certificates come from a folder of this test.
#[test]
fn the_examples_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    fs::write(folder.path().join("ca.pem"), CA).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("envoy-configs");
    let mut seen = 0;
    for entry in fs::read_dir(examples).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("/etc/crossway/tls", folder.path().to_str().unwrap());
        let copy = folder.path().join(path.file_name().unwrap());
        fs::write(&copy, text).unwrap();
        envoy_reads(&copy);
        seen += 1;
    }
    assert!(seen >= 2, "envoy-configs has {seen} examples");
}

/// A certificate and key as files in `folder`.
fn certificate(folder: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["gw.example.com".to_owned()]).unwrap();
    let files = (folder.join("gateway.pem"), folder.join("gateway-key.pem"));
    fs::write(&files.0, made.cert.pem()).unwrap();
    fs::write(&files.1, made.signing_key.serialize_pem()).unwrap();
    files
}
