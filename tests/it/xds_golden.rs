//! What gateways get, as JSON: `tests/data/xds_golden/<state>.json` -> `<state>.golden.json`.
//!
//! `UPDATE=1 cargo test --test it xds_golden` rewrites the golden files; read the difference. States that Consul 1.8.7 was
//! once put into are compared with what it answered, and each result is loaded by a real Envoy.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use crate::support::{gateways, peers};
use crossway::model::{ProxyDefaults, ServiceKind};
use crossway::proxycfg::{Gateway, View, check_ready};
use crossway::store::State;
use crossway::xds::generate;
use crossway::xds::resources::{ProxyResources, ResourceType, Version};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xds_golden")
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Name and content of every fixture.
fn fixtures() -> Vec<(String, Value)> {
    let files = fs::read_dir(folder()).unwrap().map(|f| f.unwrap().path());
    let mut found: Vec<_> = files
        .filter(|path| !path.to_str().unwrap().ends_with(".golden.json"))
        .map(|path| {
            (
                path.file_stem().unwrap().to_str().unwrap().to_owned(),
                read(&path),
            )
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 20);
    found
}

fn gateway(state: &State, fixture: &Value) -> Gateway {
    let text = |key: &str| fixture["Gateway"][key].as_str().unwrap();
    let service = state.service(text("Node"), text("ID")).unwrap();
    assert_eq!(service.kind, ServiceKind::MeshGateway);
    let defaults = state.config_entry(crossway::model::ConfigKind::ProxyDefaults, "global");
    let defaults: Option<&ProxyDefaults> = defaults.and_then(|entry| match &**entry {
        crossway::model::ConfigEntry::ProxyDefaults(defaults) => Some(defaults),
        _ => None,
    });
    Gateway::of(service, defaults)
}

fn generate(state: &State, fixture: &Value) -> (View, Gateway, ProxyResources) {
    let view = View::build(&gateways::place(fixture), state, None);
    let gateway = gateway(state, fixture);
    let resources = generate::everything(&view, &gateway);
    (view, gateway, resources)
}

fn hashes(resources: &ProxyResources) -> Vec<Version> {
    let hash = |kind: &ResourceType| resources.of(*kind).hash();
    ResourceType::ALL.iter().map(hash).collect()
}

fn in_words(fixture: &Value) -> Value {
    let state = gateways::apply(&gateways::commands(fixture));
    let (view, gateway, resources) = generate(&state, fixture);
    if let Err(why) = check_ready(&view, &gateway) {
        return json!({ "not_ready": why.to_string() });
    }
    let mut all = gateways::to_json(&resources);
    let warnings = view.warnings().chain(&gateway.warnings);
    all["warnings"] = warnings.cloned().collect::<Vec<_>>().into();
    all
}

#[test]
fn every_state_gives_its_golden_resources() {
    let update = std::env::var("UPDATE").is_ok_and(|v| v == "1");
    let mut wrong = Vec::new();
    for (name, fixture) in fixtures() {
        let golden = folder().join(format!("{name}.golden.json"));
        let found = in_words(&fixture);
        if update {
            let text = serde_json::to_string_pretty(&found).unwrap() + "\n";
            fs::write(&golden, text).unwrap();
        } else if found != read(&golden) {
            wrong.push(format!("{name}: {found:#}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "UPDATE=1 rewrites them\n{}",
        wrong.join("\n")
    );
}

/// Cluster names, timeouts, endpoints with health and weight are those that Consul 1.8.7 sent in the same state. What we
/// do otherwise on purpose (listeners, limits, DNS form) is in the golden files alone.
#[test]
fn clusters_and_endpoints_are_those_that_consul_sends() {
    let recorded = folder().join("../xds_recorded/consul-1.8.7.json");
    let recorded = read(&recorded);
    for (name, answer) in recorded.as_object().unwrap() {
        let fixture = read(&folder().join(format!("{name}.json")));
        let ours = in_words(&fixture);
        let clusters = ours["clusters"].as_array().unwrap().iter().map(|c| {
            json!({
                "name": c["name"],
                "connect_timeout": c["connect_timeout"],
                "dns": c.get("cluster_type").is_some(),
            })
        });
        let clusters: Vec<_> = clusters.collect();
        assert_eq!(json!(clusters), answer["clusters"], "{name}");
        let endpoints: BTreeMap<_, _> = ours["endpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|a| (a["cluster_name"].as_str().unwrap(), endpoints(a)))
            .collect();
        assert_eq!(json!(endpoints), answer["endpoints"], "{name}");
    }
}

fn endpoints(assignment: &Value) -> Vec<Value> {
    let group = &assignment["endpoints"][0]["lb_endpoints"];
    let endpoint = |e: &Value| {
        let at = &e["endpoint"]["address"]["socket_address"];
        json!({
            "address": at["address"],
            "port": at["port_value"],
            "health": e.get("health_status").cloned().unwrap_or("UNKNOWN".into()),
            "weight": e.get("load_balancing_weight").cloned().unwrap_or(0.into()),
        })
    };
    group.as_array().unwrap().iter().map(endpoint).collect()
}

/// C041, C042: neither the order of writes nor that of maps shows in the bytes.
#[test]
fn the_order_of_writes_never_shows_in_the_bytes() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    for name in ["options", "dc1_3servers_web_resolver"] {
        let fixture = read(&folder().join(format!("{name}.json")));
        let mut commands = gateways::commands(&fixture);
        let expected = hashes(&generate(&gateways::apply(&commands), &fixture).2);
        for _ in 0..500 {
            for at in (1..commands.len()).rev() {
                commands.swap(at, next(at + 1));
            }
            let found = hashes(&generate(&gateways::apply(&commands), &fixture).2);
            assert_eq!(found, expected, "{name}: {commands:?}");
        }
    }
}

/// A bootstrap that holds the resources: endpoints that come by EDS are put into their clusters.
fn bootstrap(resources: &Value) -> Value {
    let mut clusters = resources["clusters"].as_array().unwrap().clone();
    for cluster in &mut clusters {
        if cluster.get("eds_cluster_config").is_some() {
            let assignments = resources["endpoints"].as_array().unwrap();
            let of = assignments
                .iter()
                .find(|a| a["cluster_name"] == cluster["name"]);
            let cluster = cluster.as_object_mut().unwrap();
            cluster.remove("eds_cluster_config");
            cluster.insert("type".to_owned(), "STATIC".into());
            cluster.insert("load_assignment".to_owned(), of.unwrap().clone());
        }
    }
    json!({
        "static_resources": { "clusters": clusters, "listeners": resources["listeners"] },
    })
}

#[test]
fn envoy_accepts_every_golden() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    for (name, fixture) in fixtures() {
        let found = in_words(&fixture);
        if found.get("not_ready").is_some() {
            continue;
        }
        let file = scratch.path().join(format!("{name}.json"));
        fs::write(&file, bootstrap(&found).to_string()).unwrap();
        let output = Command::new(&envoy)
            .args([
                "--mode",
                "validate",
                "--log-level",
                "warning",
                "--config-path",
            ])
            .arg(&file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {text}\n{found:#}");
        assert!(!text.contains("deprecated"), "{name}: {text}");
    }
}
