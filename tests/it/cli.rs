//! The command line against a stand-in for the server's HTTP API, with a real Envoy where one is started.
#![allow(clippy::unwrap_used, clippy::panic)] // Test code: a failed step should stop the test.

use crate::support::peers;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::Method;
use axum::http::StatusCode;
use axum::http::Uri;
use axum::response::IntoResponse;
use axum::response::Response;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

/// A server that answers from a table and remembers what was asked.
#[derive(Clone, Default)]
pub(crate) struct FakeServer {
    answers: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl FakeServer {
    /// What a server with one node `s1` and no gateways answers.
    pub(crate) fn usual() -> Self {
        let server = Self::default();
        server.answer(
            "GET /v1/agent/self",
            &json!({
                "Config": {"Datacenter": "dc1", "NodeName": "s1"},
                "DebugConfig": {"DNSDomain": "consul.", "GRPCPort": 8502, "GRPCAddrs": ["tcp://127.0.0.1:8502"]},
                "xDS": {"Ports": {"TLS": -1, "Plaintext": 8502}},
            }),
        );
        server.answer(
            "GET /v1/catalog/service/consul",
            &json!([{"Node": "s1", "Address": "10.0.0.1", "ServiceAddress": "", "ServicePort": 8300}]),
        );
        server.answer("PUT /v1/catalog/register", &json!(true));
        server.answer("PUT /v1/catalog/deregister", &json!(true));
        server
    }

    pub(crate) fn answer(&self, request: &str, body: &Value) {
        self.answer_status(request, 200, &body.to_string());
    }

    pub(crate) fn answer_status(&self, request: &str, status: u16, body: &str) {
        let mut answers = self.answers.lock().unwrap();
        answers.insert(request.to_owned(), (status, body.to_owned()));
    }

    /// The bodies sent with `request`, in order.
    pub(crate) fn bodies(&self, request: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        let matching = seen.iter().filter(|(what, _)| what == request);
        matching
            .map(|(_, body)| serde_json::from_str(body).unwrap_or(Value::Null))
            .collect()
    }

    pub(crate) fn start(&self) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(handle).with_state(self.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, app).await.unwrap();
            });
        });
        address
    }
}

async fn handle(
    State(server): State<FakeServer>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let request = format!("{method} {uri}");
    let body = String::from_utf8_lossy(&body).into_owned();
    server.seen.lock().unwrap().push((request.clone(), body));
    let answers = server.answers.lock().unwrap();
    match answers.get(&request) {
        Some((status, text)) => {
            (StatusCode::from_u16(*status).unwrap(), text.clone()).into_response()
        }
        None if request.contains("/catalog/node/") => "null".into_response(),
        None if request.contains("/catalog/service/") => "[]".into_response(),
        None => (StatusCode::NOT_FOUND, "not here").into_response(),
    }
}

fn crossway(address: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    command
        .args(args)
        .env_clear()
        .env("CONSUL_HTTP_ADDR", address.to_string())
        .stdin(Stdio::null());
    command
}

fn run(server: &FakeServer, args: &[&str]) -> Output {
    crossway(server.start(), args).output().unwrap()
}

#[track_caller]
fn check_failure(output: &Output, text: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(text), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[track_caller]
fn check_stdout(output: &Output, text: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);
}

const REGISTER: [&str; 8] = [
    "connect",
    "envoy",
    "-gateway=mesh",
    "-register",
    "-expose-servers",
    "-address=127.0.0.1:8443",
    "-wan-address=gw.example.com:443",
    "-node-name=gw-host",
];

fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [args, more].concat()
}

/// Nineteen tags are as many regular expressions for each statistic of Envoy: a gateway gets the old ones on demand only.
#[test]
fn a_gateway_gets_deprecated_tags_on_demand_only() {
    let server = FakeServer::usual();
    for (flags, old) in [
        (&[][..], false),
        (&["-omit-deprecated-tags"], false),
        (&["-omit-deprecated-tags=true"], false),
        (&["-omit-deprecated-tags=false"], true),
    ] {
        let output = run(
            &server,
            &with(&REGISTER, &[&["-bootstrap"], flags].concat()),
        );
        let bootstrap: Value = serde_json::from_slice(&output.stdout).unwrap();
        let tags = bootstrap["stats_config"]["stats_tags"].as_array().unwrap();
        let names = tags.iter().map(|tag| tag["tag_name"].as_str().unwrap());
        let names: Vec<_> = names.collect();
        assert!(names.contains(&"consul.destination.service"), "{names:?}");
        assert_eq!(
            names.contains(&"consul.service"),
            old,
            "{flags:?}: {names:?}"
        );
    }
}

#[test]
fn bootstrap_prints_json_alone() {
    let server = FakeServer::usual();
    let output = run(&server, &with(&REGISTER, &["-bootstrap"]));
    assert!(output.status.success(), "{output:?}");
    let bootstrap: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(bootstrap["node"]["metadata"]["node_name"], "gw-host");
    let registered = server.bodies("PUT /v1/catalog/register");
    assert_eq!(registered.len(), 1);
    assert_eq!(registered[0]["Node"], "gw-host");
    assert_eq!(
        registered[0]["Service"]["Meta"]["consul-wan-federation"],
        "1"
    );
    assert_eq!(
        registered[0]["Check"]["Definition"]["DeregisterCriticalServiceAfter"],
        "6h0m0s"
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("Registered service: mesh-gateway"),
        "{stderr}"
    );
}

/// `crossway ... | head` must not end in a panic.
#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let server = FakeServer::usual();
    let mut command = crossway(server.start(), &with(&REGISTER, &["-bootstrap"]));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn addresses_may_be_templates() {
    let server = FakeServer::usual();
    let address = r#"-address={{ GetInterfaceIP "lo" }}:8443"#;
    let output = run(
        &server,
        &[
            "connect",
            "envoy",
            "-gateway=mesh",
            "-register",
            "-bootstrap",
            address,
        ],
    );
    assert!(output.status.success(), "{output:?}");
    let registered = server.bodies("PUT /v1/catalog/register");
    assert_eq!(registered[0]["Service"]["Address"], "127.0.0.1");
    let output = run(
        &server,
        &[
            "connect",
            "envoy",
            "-gateway=mesh",
            "-register",
            "-address={{ Nope }}",
        ],
    );
    check_failure(&output, "-address \"{{ Nope }}\"");
}

/// Case C110: the scheme of the HTTP address says nothing about gRPC, and TLS needs a CA.
#[test]
fn tls_follows_the_grpc_address() {
    let server = FakeServer::usual();
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/bootstrap/ca.pem");
    let flags = ["-bootstrap", "-grpc-addr=https://xds.example.com:8503"];
    let output = run(&server, &with(&REGISTER, &flags));
    check_failure(&output, "-grpc-ca-file or CONSUL_GRPC_CACERT");
    assert!(server.bodies("PUT /v1/catalog/register").is_empty());

    let mut command = crossway(server.start(), &with(&REGISTER, &flags));
    let output = command.env("CONSUL_GRPC_CACERT", ca).output().unwrap();
    let bootstrap: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cluster = &bootstrap["static_resources"]["clusters"][0];
    let context = &cluster["transport_socket"]["typed_config"];
    assert_eq!(context["sni"], "server.dc1.consul");

    server.answer(
        "GET /v1/agent/self",
        &json!({"Config": {"Datacenter": "dc1", "NodeName": "s1"}, "DebugConfig": {"GRPCPort": -1}}),
    );
    let output = run(&server, &with(&REGISTER, &["-bootstrap"]));
    check_failure(&output, "gRPC is switched off on the server");
}

#[test]
fn a_gateway_never_takes_an_agents_node() {
    let server = FakeServer::usual();
    let node = json!({"Node": {"Node": "gw-host"}, "Services": {"consul": {"ID": "consul"}}});
    server.answer("GET /v1/catalog/node/gw-host", &node);
    server.answer(
        "GET /v1/health/node/gw-host",
        &json!([{"CheckID": "serfHealth", "Status": "passing"}]),
    );
    let output = run(&server, &with(&REGISTER, &["-bootstrap"]));
    check_failure(&output, "is the node of a server or agent");
    assert!(server.bodies("PUT /v1/catalog/register").is_empty());
}

#[test]
fn a_missing_old_or_broken_envoy_leaves_no_registration() {
    let server = FakeServer::usual();
    let folder = tempfile::tempdir().unwrap();
    let check = |binary: &Path, text: &str| {
        let flag = format!("-envoy-binary={}", binary.display());
        let output = run(&server, &with(&REGISTER, &[&flag]));
        check_failure(&output, text);
        assert!(server.bodies("PUT /v1/catalog/register").is_empty());
    };
    check(Path::new("/nonexistent/envoy"), "Failed to exec envoy");
    let old = script(folder.path(), "old", "echo version: x/1.20.1/y");
    check(&old, "Envoy 1.20.1 is too old");
    let picky = "case $1 in --version) echo x/1.40.0/y;; *) echo 'bad field' >&2; exit 1;; esac";
    check(&script(folder.path(), "picky", picky), "bad field");
    let output = run(&server, &REGISTER);
    check_failure(&output, "Couldn't find envoy binary");
}

/// The binary works while it is checked and is gone when it shall run: the registration is taken back.
#[test]
fn a_failed_start_takes_the_registration_back() {
    let server = FakeServer::usual();
    let folder = tempfile::tempdir().unwrap();
    let body = "case $1 in --version) echo x/1.40.0/y;; *) rm \"$0\";; esac";
    let vanishing = script(folder.path(), "vanishing", body);
    let flag = format!("-envoy-binary={}", vanishing.display());
    let output = run(&server, &with(&REGISTER, &[&flag]));
    check_failure(&output, "Failed to exec envoy");
    assert_eq!(server.bodies("PUT /v1/catalog/register").len(), 1);
    assert_eq!(
        server.bodies("PUT /v1/catalog/deregister"),
        [json!({"Node": "gw-host"})]
    );
}

fn script(folder: &Path, name: &str, body: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Cases C110 and C111: a real Envoy starts from a bootstrap of a megabyte, without a token in its arguments.
#[test]
fn envoy_starts_with_a_large_bootstrap() {
    let Some(envoy) = peers::find("envoy") else {
        return;
    };
    let server = FakeServer::usual();
    let padding = json!({
        "name": "padding",
        "type": "STATIC",
        "metadata": {"filter_metadata": {"padding": {"text": "x".repeat(1024 * 1024)}}},
    });
    server.answer(
        "GET /v1/config/proxy-defaults/global",
        &json!({
            "Kind": "proxy-defaults",
            "Name": "global",
            "Config": {"envoy_extra_static_clusters_json": padding.to_string()},
        }),
    );
    let admin = free_port();
    let envoy = format!("-envoy-binary={}", envoy.display());
    let bind = format!("-admin-bind=127.0.0.1:{admin}");
    let mut command = crossway(server.start(), &with(&REGISTER, &[&envoy, &bind]));
    let mut child = command
        .args(["--", "--concurrency", "1", "--log-level", "error"])
        .env("CONSUL_HTTP_TOKEN", "very-secret-token")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = wait_until(Duration::from_secs(60), || {
        std::net::TcpStream::connect(("127.0.0.1", admin)).is_ok()
    });
    let arguments = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
    let _ = child.kill();
    let _ = child.wait();
    assert!(started, "Envoy's admin interface did not open");
    let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
    assert!(arguments.contains("--disable-hot-restart"), "{arguments}");
    assert!(arguments.contains("/dev/fd/"), "{arguments}");
    assert!(!arguments.contains("very-secret-token"), "{arguments}");
    assert!(!arguments.contains("--max-obj-name-len"), "{arguments}");
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn wait_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    #[expect(clippy::disallowed_methods, reason = "a deadline for a real process")]
    let start = Instant::now();
    while start.elapsed() < limit {
        if done() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn messages_of_wrong_flags_and_lookups() {
    let server = FakeServer::usual();
    let check = |args: &[&str], text: &str| {
        check_failure(&run(&server, &with(&["connect", "envoy"], args)), text);
    };
    check(
        &["-gateway=x"],
        "Gateway must be one of: terminating, mesh, or ingress",
    );
    check(
        &[],
        "No proxy ID specified. One of -proxy-id, -sidecar-for, or -gateway is required",
    );
    check(
        &["-gateway=mesh", "-register", "-address=gw"],
        "Error parsing address \"gw\": not an IP address",
    );
    check(
        &["-gateway=mesh", "-register", "-bind-address=x"],
        "Missing \"=\" in argument: x",
    );
    check(
        &[
            "-gateway=mesh",
            "-register",
            "-address=198.51.100.9:443",
            "-bootstrap",
        ],
        "The LAN address \"198.51.100.9\" will not be bindable.",
    );
    check(
        &["-gateway=mesh", "-bootstrap"],
        "No mesh-gateway services registered with this agent",
    );
    check(
        &["-proxy-id=nope", "-bootstrap"],
        "failed fetch proxy config from local agent: Unexpected response code: 404 (unknown service ID: nope)",
    );
    server.answer(
        "GET /v1/agent/service/web",
        &json!({"ID": "web", "Service": "web", "Kind": ""}),
    );
    check(
        &["-proxy-id=web", "-bootstrap"],
        "service is not a Connect proxy or gateway",
    );
    check(&["-gateway=mesh", "-no-such-flag"], "no-such-flag");
}

#[test]
fn a_server_that_is_down_is_named_with_a_remedy() {
    let port = free_port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let output = crossway(address, &["config", "list", "-kind=proxy-defaults"])
        .output()
        .unwrap();
    check_failure(
        &output,
        &format!("cannot reach the server at http://127.0.0.1:{port}"),
    );
    check_failure(&output, "Set -http-addr or CONSUL_HTTP_ADDR");
    let folder = tempfile::tempdir().unwrap();
    let fake = script(folder.path(), "envoy", "echo x/1.40.0/y");
    let flag = format!("-envoy-binary={}", fake.display());
    let output = crossway(address, &with(&REGISTER, &[&flag]))
        .output()
        .unwrap();
    check_failure(
        &output,
        "Error connecting to Consul agent: cannot reach the server",
    );
}

#[test]
fn the_environment_has_twins_and_tokens_travel_in_the_header() {
    let server = FakeServer::usual();
    server.answer(
        "GET /v1/config/service-resolver",
        &json!([{"Kind": "service-resolver", "Name": "web"}]),
    );
    let mut command = crossway(
        SocketAddr::from(([127, 0, 0, 1], 1)),
        &["config", "list", "-kind", "service-resolver"],
    );
    let address = server.start().to_string();
    let output = command.env("CROSSWAY_HTTP_ADDR", address).output().unwrap();
    check_stdout(&output, "web\n");
}

#[test]
fn config_entries() {
    let server = FakeServer::usual();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.json");
    std::fs::write(&file, r#"{"Kind": "service-resolver", "Name": "web"}"#).unwrap();
    let file = file.to_str().unwrap();
    server.answer("PUT /v1/config", &json!(true));
    let output = run(&server, &["config", "write", file]);
    check_stdout(&output, "Config entry written: service-resolver/web\n");
    assert_eq!(server.bodies("PUT /v1/config")[0]["Name"], "web");

    server.answer("PUT /v1/config?cas=7", &json!(false));
    let output = run(
        &server,
        &["config", "write", "-cas", "-modify-index=7", file],
    );
    check_failure(&output, "Config entry not updated: service-resolver/web");

    server.answer(
        "GET /v1/config/service-resolver/web",
        &json!({"ConnectTimeout": "15s", "Kind": "service-resolver"}),
    );
    let one = ["-kind=service-resolver", "-name=web"];
    let output = run(&server, &with(&["config", "read"], &one));
    check_stdout(
        &output,
        "{\n    \"ConnectTimeout\": \"15s\",\n    \"Kind\": \"service-resolver\"\n}\n",
    );
    server.answer("DELETE /v1/config/service-resolver/web", &json!({}));
    let output = run(&server, &with(&["config", "delete"], &one));
    check_stdout(&output, "Config entry deleted: service-resolver/web\n");
    check_failure(
        &run(&server, &["config", "read", "-kind=service-resolver"]),
        "Must specify the -name parameter",
    );
    check_failure(
        &run(&server, &["config", "read", "-kind=x", "-name=y"]),
        "Error reading config entry x/y",
    );
}

#[test]
fn services() {
    let server = FakeServer::usual();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.json");
    std::fs::write(
        &file,
        r#"{"services": [{"name": "web", "id": "web1", "port": 80}]}"#,
    )
    .unwrap();
    let file = file.to_str().unwrap();
    server.answer("PUT /v1/agent/service/register", &json!(null));
    server.answer("PUT /v1/agent/service/deregister/web1", &json!(null));
    server.answer("PUT /v1/agent/service/deregister/nope", &json!(null));
    let output = run(&server, &["services", "register", file]);
    check_stdout(&output, "Registered service: web\n");
    assert_eq!(
        server.bodies("PUT /v1/agent/service/register")[0]["port"],
        80
    );
    let output = run(&server, &["services", "deregister", file]);
    check_stdout(&output, "Deregistered service: web1\n");
    let output = run(&server, &["services", "deregister", "-id", "nope"]);
    check_stdout(&output, "Deregistered service: nope\n");
    server.answer_status("PUT /v1/agent/service/register", 403, "Permission denied");
    let output = run(&server, &["services", "register", "-name=db", "-port=1"]);
    check_failure(&output, "Permission denied. Give a token");
}
