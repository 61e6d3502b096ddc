//! SIGHUP: what of a new configuration acts in the running server, and that a wrong one changes nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use crate::support::server::Server;
use crate::support::server::eventually;
use rustix::process::Signal;
use serde_json::Value;
use serde_json::json;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Sends SIGHUP and waits for what it says: `said` once more than before.
fn hang_up(server: &Server, said: &str) {
    let count = |server: &Server| server.log().matches(said).count();
    let before = count(server);
    server.signal(Signal::HUP);
    eventually(said, || (count(server) > before).then_some(()));
}

/// Status and output of a check of this server.
fn check(server: &Server, id: &str) -> Option<(String, String)> {
    let (_, checks) = server.get("/v1/agent/checks").unwrap();
    let check = checks.get(id)?;
    let text = |key: &str| check[key].as_str().unwrap().to_owned();
    Some((text("Status"), text("Output")))
}

fn passing(output: &str) -> Option<(String, String)> {
    Some(("passing".to_owned(), output.to_owned()))
}

/// Names of the services that the catalog has on this node.
fn in_catalog(server: &Server) -> Vec<String> {
    let (_, node) = server.get("/v1/catalog/node/n1").unwrap();
    let mut names: Vec<_> = node["Services"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    names.retain(|name| name != "consul");
    names
}

fn definitions(old: bool) -> Value {
    let web = json!({"name": "web", "port": 80, "tags": [if old { "old" } else { "new" }],
        "checks": [{"id": "web-ttl", "name": "web", "ttl": "1h"}]});
    let same = json!({"name": "same", "port": 81, "check": {"id": "same-ttl", "ttl": "1h"}});
    let other = if old { "gone" } else { "come" };
    let other =
        json!({"name": other, "port": 82, "check": {"id": format!("{other}-ttl"), "ttl": "1h"}});
    json!([web, same, other])
}

#[test]
fn definitions_follow_without_losing_registrations_or_states() {
    let mut server = Server::start(&json!({
        "services": definitions(true),
        "checks": [{"id": "node-gone", "name": "n", "ttl": "1h"}],
    }));
    server.put(
        "/v1/agent/service/register",
        &json!({"Name": "mine", "Port": 90, "Check": {"CheckID": "mine-ttl", "TTL": "1h"}}),
    );
    server.put(
        "/v1/agent/check/register",
        &json!({"CheckID": "web-mine", "Name": "m", "ServiceID": "web", "TTL": "1h"}),
    );
    server.put(
        "/v1/agent/service/register",
        &json!({"Name": "come", "Port": 99}),
    );
    for id in ["web-ttl", "same-ttl", "mine-ttl", "web-mine"] {
        server.put(&format!("/v1/agent/check/pass/{id}?note=fine"), &json!(""));
    }
    eventually("the first services", || {
        (in_catalog(&server) == ["come", "gone", "mine", "same", "web"]).then_some(())
    });
    server.set("services", definitions(false));
    server.set(
        "checks",
        json!([{"id": "node-come", "name": "n", "ttl": "1h", "status": "passing"}]),
    );
    hang_up(&server, "configuration reloaded");
    eventually("the new services", || {
        (in_catalog(&server) == ["come", "mine", "same", "web"]).then_some(())
    });
    for id in ["web-ttl", "same-ttl", "mine-ttl", "web-mine"] {
        assert_eq!(check(&server, id), passing("fine"), "{id}");
    }
    assert_eq!(check(&server, "come-ttl").unwrap().0, "critical");
    assert_eq!(check(&server, "node-come"), passing(""));
    assert_eq!(
        (check(&server, "gone-ttl"), check(&server, "node-gone")),
        (None, None)
    );
    let (_, web) = server.get("/v1/agent/service/web").unwrap();
    assert_eq!(web["Tags"], json!(["new"]));
    let log = server.log();
    assert!(
        log.contains("by configuration: service gone deregistered"),
        "{log}"
    );
    assert!(
        !log.contains("by configuration: service same registered")
            || log.matches("service same registered").count() == 1,
        "{log}"
    );
    // After a restart the configuration holds what it took over, and the data directory the rest.
    server.signal(Signal::TERM);
    server.wait_for_end();
    server.spawn();
    server.wait_until_ready();
    eventually("all of them again", || {
        (in_catalog(&server) == ["come", "mine", "same", "web"]).then_some(())
    });
    let (_, come) = server.get("/v1/agent/service/come").unwrap();
    assert_eq!(come["Port"], 82);
    for id in ["web-ttl", "same-ttl", "mine-ttl", "web-mine"] {
        assert_eq!(check(&server, id), passing("fine"), "{id}");
    }
}

#[test]
fn other_keys_act_or_are_named() {
    let mut server =
        Server::start(&json!({"node_meta": {"rack": "1", "old": "x"}, "telemetry": {}}));
    server.put(
        "/v1/agent/check/register",
        &json!({"CheckID": "ttl", "Name": "t", "TTL": "1h"}),
    );
    server.put("/v1/agent/check/pass/ttl?note=loud", &json!(""));
    assert_eq!(check(&server, "ttl"), passing("loud"));
    server.set("node_meta", json!({"rack": "2"}));
    server.set("discard_check_output", json!(true));
    server.set("telemetry", json!({"prefix_filter": ["-consul.http"]}));
    server.set("limits", json!({"http_max_conns_per_client": 4}));
    server.set(
        "config_entries",
        json!({"bootstrap": [{"kind": "service-defaults", "name": "web", "protocol": "http"}]}),
    );
    server.set("max_query_time", json!("700s"));
    hang_up(&server, "configuration reloaded");
    eventually("the new metadata", || {
        let (_, node) = server.get("/v1/catalog/node/n1").unwrap();
        let meta = &node["Node"]["Meta"];
        (meta["rack"] == "2" && meta.get("old").is_none()).then_some(())
    });
    let (_, myself) = server.get("/v1/agent/self").unwrap();
    assert_eq!(myself["Meta"]["rack"], "2");
    server.put("/v1/agent/check/pass/ttl?note=louder", &json!(""));
    assert_eq!(check(&server, "ttl"), passing(""));
    let (_, metrics) = server.get("/v1/agent/metrics?format=prometheus").unwrap();
    let metrics = metrics.as_str().unwrap();
    assert!(
        metrics.contains("consul_raft") && !metrics.contains("consul_http"),
        "{metrics}"
    );
    eventually("the entry", || {
        (server.get("/v1/config/service-defaults/web").unwrap().0 == 200).then_some(())
    });
    assert!(
        server
            .log()
            .contains("changed, but with the old value until a restart: max_query_time"),
        "{}",
        server.log()
    );
    let open: Vec<_> = (0..5)
        .map(|_| {
            let mut stream = TcpStream::connect(server.port(8500)).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            write!(stream, "GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut head = [0; 12];
            stream.read_exact(&mut head).unwrap();
            (head, stream)
        })
        .collect();
    let heads: Vec<_> = open.iter().map(|(head, _)| &head[9..]).collect();
    assert_eq!(heads, [b"200", b"200", b"200", b"200", b"429"]);
}

#[test]
fn a_wrong_configuration_says_everything_and_changes_nothing() {
    let mut server =
        Server::start(&json!({"services": definitions(true), "node_meta": {"rack": "1"}}));
    server.put("/v1/agent/check/pass/web-ttl?note=fine", &json!(""));
    // Each is well formed; what is wrong shows only beside the rest, or in the parts of the server.
    server.put(
        "/v1/agent/service/register",
        &json!({"Name": "mine", "Port": 90}),
    );
    server.set("services", json!([{"name": "MINE", "port": 1}, {"name": "x", "port": 1, "weights": {"passing": -1, "warning": 1}}]));
    server.set(
        "checks",
        json!([{"name": "lost", "service_id": "nowhere", "ttl": "1h"}]),
    );
    server.set("node_meta", json!({"rack": "2"}));
    server.set("log_level", json!("ERR"));
    let key = std::fs::read(server.path("dc1-server-consul-0-key.pem")).unwrap();
    std::fs::write(server.path("dc1-server-consul-0-key.pem"), "no key").unwrap();
    hang_up(&server, "configuration not reloaded");
    std::fs::write(server.path("dc1-server-consul-0-key.pem"), key).unwrap();
    let log = server.log();
    let line = log.split("configuration not reloaded").nth(1).unwrap();
    assert!(line.contains("key_file"), "{line}");
    hang_up(&server, "configuration not reloaded");
    let log = server.log();
    let line = log.split("configuration not reloaded").nth(2).unwrap();
    for part in ["\"MINE\" differs", "\"nowhere\" does not exist", "eight"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(check(&server, "web-ttl"), passing("fine"));
    let (_, node) = server.get("/v1/catalog/node/n1").unwrap();
    assert_eq!(node["Node"]["Meta"]["rack"], "1");
    eventually("the services", || {
        (in_catalog(&server) == ["gone", "mine", "same", "web"]).then_some(())
    });
}
