//! Answers of Consul 1.8.7 against ours, byte for byte where the content is the same.
//!
//! `answers.json` was recorded at the server of `dc1` in a federation of two; `errors.json` at that of `dc2`.

use crate::http_api::fixture::{Fixture, Response};
use crossway::http::decode;
use crossway::model::{CaConfiguration, CaRoot, FederationState, Timestamp};
use crossway::store::{CaCommand, Command, FederationCommand};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const ANSWERS: &str = include_str!("../../data/http/answers.json");
const ERRORS: &str = include_str!("../../data/http/errors.json");
const RAW: &str = include_str!("../../data/http/raw.json");

/// Where we differ on purpose: recorded name, what differs, why.
const DIFFERENT: &[(&str, Part, &str)] = &[
    (
        "connect_ca_roots",
        Part::Header("X-Consul-Knownleader"),
        "1.8.7 overwrites the reply and so always says false; we say what is true",
    ),
    (
        "near",
        Part::Order,
        "the asking node comes first; 1.8.7 adds the node's height to its distance from itself",
    ),
    (
        "config_resolver_bad",
        Part::Body("DefaultSubset \"nope\" is not a valid subset"),
        "recorded in a secondary, which put 'rpc error making call: ' before what the primary said",
    ),
];

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Header(&'static str),
    Order,
    Body(&'static str),
}

fn recorded(text: &str) -> BTreeMap<String, Value> {
    serde_json::from_str(text).unwrap()
}

/// Raft indexes differ from run to run; the order of tags in a set has no meaning.
fn normalise(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match key.as_str() {
                    "CreateIndex" | "ModifyIndex" | "PrimaryModifyIndex" | "Index" => {
                        assert!(value.is_u64(), "{key} is {value}");
                        *value = json!(0);
                    }
                    _ => normalise(value),
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(normalise);
            if items.iter().all(Value::is_string) {
                items.sort_by_key(Value::to_string);
            }
        }
        _ => {}
    }
}

fn headers(pairs: impl Iterator<Item = (String, String)>) -> BTreeSet<(String, String)> {
    pairs
        .filter(|(name, _)| !matches!(name.as_str(), "Date" | "Content-Length" | "Connection"))
        .map(|(name, value)| match name.as_str() {
            "X-Consul-Index" => (name, "N".to_owned()),
            _ => (name, value),
        })
        .collect()
}

fn compare(name: &str, recorded: &Value, got: &Response) -> Result<(), String> {
    let parts: Vec<Part> = DIFFERENT
        .iter()
        .filter(|(other, _, _)| *other == name)
        .map(|(_, part, _)| *part)
        .collect();
    let differs = |part: Part| parts.contains(&part);
    let mut problems = Vec::new();
    if recorded["status"] != got.status {
        problems.push(format!("status {} != {}", got.status, recorded["status"]));
    }
    let wanted = recorded["headers"].as_array().unwrap().iter();
    let wanted = headers(wanted.map(|pair| {
        let text = |n: usize| pair[n].as_str().unwrap().to_owned();
        (text(0), text(1))
    }));
    let ours = headers(got.headers.iter().cloned());
    for (header, value) in wanted.symmetric_difference(&ours) {
        if !parts
            .iter()
            .any(|p| matches!(p, Part::Header(h) if h == header))
        {
            problems.push(format!("header {header}: {value} on one side only"));
        }
    }
    let other_body = parts.iter().find_map(|part| match part {
        Part::Body(text) => Some(*text),
        _ => None,
    });
    if let Some(text) = other_body {
        if got.text() != text {
            problems.push(format!("body {:?} != {text:?}", got.text()));
        }
    } else if let Some(text) = recorded["body_text"].as_str() {
        if got.text() != text {
            problems.push(format!("body {:?} != {text:?}", got.text()));
        }
    } else {
        let (mut wanted, mut ours) = (recorded["body"].clone(), got.json());
        for side in [&mut wanted, &mut ours] {
            normalise(side);
            if let (true, Value::Array(rows)) = (differs(Part::Order), side) {
                rows.sort_by_key(Value::to_string);
            }
        }
        if wanted != ours {
            problems.push(format!("body\n  ours     {ours}\n  recorded {wanted}"));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("{name}: {}", problems.join("; "))),
    }
}

async fn ask(fixture: &Fixture, recorded: &Value) -> Response {
    let request = &recorded["request"];
    let text = |key: &str| request[key].as_str().unwrap_or_default();
    fixture
        .send(text("method"), text("path"), "", text("body").as_bytes())
        .await
}

/// Registers a node as recorded: its services and checks, through the HTTP API.
async fn register(fixture: &Fixture, node: &Value, services: &[Value], checks: &[Value]) {
    let base = json!({
        "ID": node["ID"], "Node": node["Node"], "Address": node["Address"],
        "TaggedAddresses": node["TaggedAddresses"], "NodeMeta": node["Meta"],
    });
    for service in services {
        let mut body = base.clone();
        body["Service"] = service.clone();
        let answer = fixture.put("/v1/catalog/register", &body).await;
        assert_eq!(
            (answer.status, answer.text().as_str()),
            (200, "true"),
            "{body}"
        );
    }
    let mut body = base;
    body["Checks"] = json!(checks);
    let answer = fixture.put("/v1/catalog/register", &body).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "true"),
        "{body}"
    );
}

async fn dc1(answers: &BTreeMap<String, Value>) -> Fixture {
    let fixture = Fixture::start("dc1", "dc1-s1", "10.71.0.11:8300").await;
    for node in ["SERVER", "GWNODE"] {
        let of_node = &answers[&format!("catalog_node_{node}")]["body"];
        let services: Map<String, Value> = of_node["Services"].as_object().unwrap().clone();
        let services: Vec<Value> = services.into_iter().map(|(_, service)| service).collect();
        let checks = &answers[&format!("health_node_{node}")]["body"];
        let checks = checks.as_array().unwrap();
        register(&fixture, &of_node["Node"], &services, checks).await;
    }
    let states = &answers["internal_federation_states"]["body"];
    for state in states.as_array().unwrap() {
        let state: FederationState = decode::json(state.to_string().as_bytes()).unwrap();
        let command = Command::Federation(FederationCommand::Upsert(state));
        fixture.api.consensus().propose(command).await.unwrap();
    }
    roots(&fixture, &answers["connect_ca_roots"]["body"]).await;
    let entry = &answers["config_service_resolver_web"]["body"];
    assert_eq!(fixture.put("/v1/config", entry).await.text(), "true");
    let kv = fixture.send("PUT", "/v1/kv/foo", "", b"from dc2").await;
    assert_eq!(kv.text(), "true");
    fixture
}

async fn roots(fixture: &Fixture, body: &Value) {
    let time = |v: &Value| Timestamp::parse_rfc3339(v.as_str().unwrap()).unwrap();
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let root = &body["Roots"][0];
    let root = CaRoot {
        id: text(&root["ID"]),
        name: text(&root["Name"]),
        serial_number: root["SerialNumber"].as_u64().unwrap(),
        signing_key_id: text(&root["SigningKeyID"]),
        external_trust_domain: text(&root["ExternalTrustDomain"]),
        not_before: time(&root["NotBefore"]),
        not_after: time(&root["NotAfter"]),
        root_cert: text(&root["RootCert"]),
        signing_key: "never shown".into(),
        active: true,
        private_key_type: text(&root["PrivateKeyType"]),
        private_key_bits: root["PrivateKeyBits"].as_i64().unwrap(),
        ..CaRoot::default()
    };
    let domain = text(&body["TrustDomain"]);
    let config = CaConfiguration {
        cluster_id: domain.strip_suffix(".consul").unwrap().to_owned(),
        provider: "consul".into(),
        ..CaConfiguration::default()
    };
    for command in [
        CaCommand::SetConfig { cas: None, config },
        CaCommand::SetRoots {
            cas: 0,
            roots: vec![root],
        },
    ] {
        let command = Command::Ca(command);
        fixture.api.consensus().propose(command).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_consul() {
    let answers = recorded(ANSWERS);
    let fixture = dc1(&answers).await;
    let mut wrong = Vec::new();
    for (name, recorded) in &answers {
        let got = ask(&fixture, recorded).await;
        wrong.extend(compare(name, recorded, &got).err());
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

async fn dc2(errors: &BTreeMap<String, Value>) -> Fixture {
    let fixture = Fixture::start("dc2", "dc2-s1", "10.72.0.11:8300").await;
    let nodes = errors["near"]["body"].as_array().unwrap();
    let gateway = &errors["cached"]["body"][0];
    for node in nodes {
        let is_gateway = node["Node"] == gateway["Node"]["Node"];
        let (services, checks) = match is_gateway {
            true => (
                vec![gateway["Service"].clone()],
                gateway["Checks"].as_array().unwrap().clone(),
            ),
            false => (
                vec![
                    json!({"Service": "consul", "Port": 8300}),
                    json!({"Service": "x", "Kind": "nope"}),
                    json!({"Service": "y", "Port": 1}),
                ],
                vec![],
            ),
        };
        register(&fixture, node, &services, &checks).await;
    }
    fixture
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_those_of_consul() {
    let errors = recorded(ERRORS);
    let fixture = dc2(&errors).await;
    // What one request makes another removes.
    let first = ["catalog_register_ok", "catalog_deregister_ok"];
    let rest = errors.keys().map(String::as_str);
    let rest = rest.filter(|name| !first.contains(name));
    let mut wrong = Vec::new();
    for name in first.into_iter().chain(rest) {
        let got = ask(&fixture, &errors[name]).await;
        wrong.extend(compare(name, &errors[name], &got).err());
        if let Some(raw) = errors[name]["raw"].as_str() {
            assert_eq!(got.text(), raw, "{name}");
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_http_is_answered_as_by_consul() {
    let raw = recorded(RAW);
    let errors = recorded(ERRORS);
    let fixture = dc2(&errors).await;
    for (name, recorded) in &raw {
        let sent = recorded["sent"].as_str().unwrap();
        // The recorder closed after the answer; here the server is asked to.
        let sent = match sent.contains("HTTP/1.") {
            true => sent.replacen("\r\n", "\r\nConnection: close\r\n", 1),
            false => sent.to_owned(),
        };
        let bytes: Vec<u8> = sent.chars().map(|c| c as u8).collect();
        let got = Response::parse(&fixture.raw(&bytes).await);
        let wanted = Response::parse(recorded["received"].as_str().unwrap().as_bytes());
        assert_eq!(got.status, wanted.status, "{name}");
        assert_eq!(got.version, wanted.version, "{name}");
        if name == "raw_garbage" {
            continue; // What is no HTTP gets 400 and an end, but not Go's text.
        }
        assert_eq!(got.text(), wanted.text(), "{name}");
        assert_eq!(
            headers(got.headers.into_iter()),
            headers(wanted.headers.into_iter()),
            "{name}"
        );
    }
}
