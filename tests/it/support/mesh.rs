//! What tests put into the catalog and the federation states, and where they read it back.

use super::gateway::Backend;
use super::gateway::Gateway;
use super::gateway::ask;
use super::server::Server;
use super::server::eventually;
use serde_json::Value;
use serde_json::json;
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

/// A mesh gateway of another datacenter: host, port and the status of its check.
pub(crate) type Remote<'a> = (&'a str, u16, &'a str);

/// Makes these the gateways of another datacenter; each call is newer than the one before.
#[track_caller]
pub(crate) fn publish(agent: &Server, dc: &str, gateways: &[Remote<'_>]) {
    static SECONDS: AtomicU32 = AtomicU32::new(0);
    let second = SECONDS.fetch_add(1, Ordering::Relaxed);
    let gateway = |(n, (host, port, status)): (usize, &Remote<'_>)| {
        let node = format!("{dc}-gw{n}");
        json!({
            "Node": {"Node": node, "Address": "192.0.2.9", "Datacenter": dc},
            "Service": {"Kind": "mesh-gateway", "ID": "gw", "Service": "mesh-gateway", "Port": 443,
                "Address": "192.0.2.9", "Meta": {"consul-wan-federation": "1"},
                "TaggedAddresses": {"wan": {"Address": host, "Port": port}}},
            "Checks": [{"Node": node, "CheckID": "c", "ServiceID": "gw", "Status": status}],
        })
    };
    let gateways: Vec<Value> = gateways.iter().enumerate().map(gateway).collect();
    let at = format!(
        "2026-01-01T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    agent.store_federation_state(
        &json!({"Datacenter": dc, "UpdatedAt": at, "MeshGateways": gateways}),
    );
}

/// An instance of a service that speaks the mesh's TLS itself, on a node of its own.
pub(crate) fn native(name: &str, id: &str, host: &str, port: u16) -> Value {
    json!({
        "Node": format!("node-{id}"), "Address": host,
        "Service": {"ID": id, "Service": name, "Address": host, "Port": port, "Connect": {"Native": true}},
    })
}

/// Registers a [`Backend`] as the only instance of a service.
#[track_caller]
pub(crate) fn offer(agent: &Server, name: &str, backend: &Backend) {
    let instance = native(name, name, &backend.address.to_string(), backend.port);
    agent.put("/v1/catalog/register", &instance);
}

/// The trust domain, as soon as there is one.
pub(crate) fn trust_domain(agent: &Server) -> String {
    eventually("the trust domain", || {
        let (_, roots) = agent.get("/v1/connect/ca/roots").ok()?;
        let td = roots["TrustDomain"].as_str()?;
        (!td.is_empty()).then(|| td.to_owned())
    })
}

/// Which backend answers behind this SNI, `None` if none does.
pub(crate) fn through(gateway: &Gateway, sni: &str) -> Option<String> {
    let answer = ask(&mut gateway.dial(Some(sni)).ok()?).ok()?;
    let (backend, seen) = answer.split_once(' ')?;
    assert_eq!(seen, sni);
    Some(backend.to_owned())
}

/// The row of a service in the catalog: `node` as `/v1/catalog/node` shows it.
pub(crate) fn service(agent: &Server, node: &str, id: &str) -> Value {
    let (_, body) = agent.get(&format!("/v1/catalog/node/{node}")).unwrap();
    body["Services"][id].clone()
}

/// The status of a gateway's check.
pub(crate) fn health(agent: &Server, node: &str) -> Option<String> {
    let (_, checks) = agent.get(&format!("/v1/health/node/{node}")).ok()?;
    Some(checks[0]["Status"].as_str()?.to_owned())
}

/// A value of `/v1/agent/metrics?format=prometheus`: the sum over all lines with this name and these labels.
pub(crate) fn metric(agent: &Server, name: &str, labels: &[&str]) -> f64 {
    let (_, text) = agent.get("/v1/agent/metrics?format=prometheus").unwrap();
    let wanted = |line: &&str| {
        let rest = line.strip_prefix(name);
        let whole = rest.is_some_and(|rest| rest.starts_with([' ', '{']));
        whole && labels.iter().all(|label| line.contains(label))
    };
    let lines = text.as_str().unwrap().lines().filter(wanted);
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    lines.filter_map(value).sum()
}

/// Calls a method of the gRPC port with grpcurl; the messages that it answered.
#[track_caller]
pub(crate) fn grpcurl(agent: &Server, options: &[&str], words: &[&str]) -> Option<Vec<Value>> {
    let text = grpcurl_text(agent, options, words)?;
    let messages = serde_json::Deserializer::from_str(&text).into_iter();
    Some(messages.map(Result::unwrap).collect())
}

/// As [`grpcurl`], with its output as it is.
#[track_caller]
pub(crate) fn grpcurl_text(agent: &Server, options: &[&str], words: &[&str]) -> Option<String> {
    let out = Command::new(super::peers::find("grpcurl")?)
        .args(["-plaintext", "-max-time", "10"])
        .args(options)
        .arg(agent.port(8502))
        .args(words)
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words:?}: {complaint}");
    Some(String::from_utf8(out.stdout).unwrap())
}
