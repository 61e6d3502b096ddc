//! Misuse of the command line: exit code 1, one message, no panic, nothing left behind.

use crate::support::server::Server;
use crate::support::server::binary;
use crate::support::server::loopback;
use serde_json::json;
use std::fs;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    command
        .args(args)
        .stdin(Stdio::null())
        .env_remove("CONSUL_HTTP_ADDR");
    command.envs(env.iter().copied());
    command.output().unwrap()
}

#[track_caller]
fn check_refused(output: &Output, text: &str) {
    // `validate` prints what it found as its result, all others what went wrong as an error.
    let error = [&output.stdout[..], &output.stderr].concat();
    let error = String::from_utf8_lossy(&error);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(text), "{text:?} is not in: {error}");
    assert!(
        !error.contains("panicked") && !error.contains("backtrace"),
        "{error}"
    );
    assert!(error.lines().count() < 40, "{error}");
}

#[test]
fn wrong_flags_and_arguments_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("list.json"), "[1, 2").unwrap();
    fs::write(at("binary.json"), b"\xff\xfe\0\x01").unwrap();
    fs::write(at("deep.json"), "[".repeat(200_000)).unwrap();
    fs::write(at("deep.hcl"), "a = [".repeat(50_000)).unwrap();
    let [list, binary, deep, deep_hcl, missing] = [
        "list.json",
        "binary.json",
        "deep.json",
        "deep.hcl",
        "missing.json",
    ]
    .map(at);
    for (args, text) in [
        (&["nonsense"][..], "nonsense"),
        (&["agent", "-nonsense"], "nonsense"),
        (&["agent", "-bind"], "-bind"),
        (&["agent", "-bind=not-an-address", "-dev"], "not-an-address"),
        (&["agent", "-log-level=loud", "-dev"], "loud"),
        (&["agent", "-config-file", &missing], "missing.json"),
        (&["agent", "-config-file", &list], "list.json"),
        (&["agent", "-config-file", &binary], "binary.json"),
        (&["agent", "-config-file", &deep], "deep.json"),
        (&["agent", "-config-file", &deep_hcl], "deep.hcl"),
        (&["agent", "-hcl", "a = {"], "-hcl"),
        (&["validate"], "FILE"),
        (&["validate", &missing], "missing.json"),
        (&["validate", &binary], "binary.json"),
        (&["validate", &deep], "deep.json"),
        (&["config", "write", &list], "list.json"),
        (&["config", "write", &missing], "missing.json"),
        (&["config", "read", "-kind", "service-defaults"], "-name"),
        (&["config", "delete"], "-kind"),
        (&["services", "register", &list], "list.json"),
        (&["services", "register"], ""),
        (&["services", "deregister"], ""),
        (&["rpc"], ""),
        (&["rpc", "Status.Leader", "{"], ""),
        (
            &["rpc", "-addr", "nowhere:x", "Status.Leader", "{}"],
            "nowhere",
        ),
        (&["tls", "cert", "create"], ""),
        (&["tls", "cert", "create", "-server", "-client"], ""),
        (&["tls", "nonsense"], "nonsense"),
        (&["connect", "envoy"], ""),
        (&["connect", "envoy", "-gateway=other"], "must be one of"),
        (
            &[
                "connect",
                "envoy",
                "-gateway=mesh",
                "-register",
                "-address",
                "1.2.3.4:99999",
            ],
            "99999",
        ),
    ] {
        check_refused(&run(args, &[]), text);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_server_that_is_not_there_is_named_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let entry = folder.path().join("entry.json");
    fs::write(
        &entry,
        r#"{"Kind": "service-defaults", "Name": "web", "Protocol": "http"}"#,
    )
    .unwrap();
    let service = folder.path().join("service.json");
    fs::write(&service, r#"{"service": {"name": "web", "port": 80}}"#).unwrap();
    let (entry, service) = (entry.to_str().unwrap(), service.to_str().unwrap());
    let dead = format!("{}:8500", loopback());
    let rpc = format!("{}:8300", loopback());
    for args in [
        &["config", "write", entry][..],
        &[
            "config",
            "read",
            "-kind",
            "service-defaults",
            "-name",
            "web",
        ],
        &["config", "list", "-kind", "service-defaults"],
        &[
            "config",
            "delete",
            "-kind",
            "service-defaults",
            "-name",
            "web",
        ],
        &["services", "register", service],
        &["services", "deregister", "-id", "web"],
        &[
            "connect",
            "envoy",
            "-gateway=mesh",
            "-register",
            "-address",
            "10.0.0.1:8443",
        ],
        &["connect", "envoy", "-gateway=mesh", "-bootstrap"],
    ] {
        let output = run(
            args,
            &[("CONSUL_HTTP_ADDR", &dead), ("PATH", "/nonexistent")],
        );
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(
            error.contains(&dead) || error.contains("envoy binary"),
            "{args:?}: {error}"
        );
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    check_refused(
        &run(&["rpc", "-addr", &rpc, "Status.Leader", "{}"], &[]),
        &rpc,
    );
    for (name, value) in [
        ("CONSUL_HTTP_ADDR", "http://:::"),
        ("CONSUL_HTTP_SSL", "perhaps"),
        ("CONSUL_CACERT", "/nonexistent/ca.pem"),
    ] {
        let env = [("CONSUL_HTTP_ADDR", dead.as_str()), (name, value)];
        let output = run(&["config", "list", "-kind", "service-defaults"], &env);
        assert_eq!(output.status.code(), Some(1), "{name}={value}");
        assert!(
            !String::from_utf8_lossy(&output.stderr).contains("panicked"),
            "{name}={value}"
        );
    }
}

#[test]
fn all_mistakes_of_a_configuration_are_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.hcl");
    let text = "datacenter = \"dc.1\"\nnode_nmae = \"n1\"\nbind_addr = \"300.1.1.1\"\nports {\n  server = 70000\n}\n\
                tls_min_version = \"tls9\"\nlimits {\n  http_max_conns_per_client = \"many\"\n}\n";
    fs::write(&file, text).unwrap();
    let output = run(&["validate", file.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    for (line, word) in [
        (1, "dc.1"),
        (2, "node_name"),
        (3, "300.1.1.1"),
        (5, "70000"),
        (7, "tls9"),
        (9, "http_max_conns"),
    ] {
        let named = said
            .lines()
            .any(|l| l.contains(&format!("server.hcl:{line}")) && l.contains(word));
        assert!(named, "line {line}, {word}: {said}");
    }
}

#[test]
fn a_gateway_that_cannot_start_leaves_no_registration() {
    let server = Server::start(&json!({}));
    let nodes = || {
        server
            .get("/v1/catalog/nodes")
            .unwrap()
            .1
            .as_array()
            .unwrap()
            .len()
    };
    let before = nodes();
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("envoy");
    fs::write(&text, "no program").unwrap();
    for binary in [
        "/nonexistent/envoy",
        "/bin/false",
        "/etc/hostname",
        text.to_str().unwrap(),
    ] {
        let output = server
            .command(&[
                "connect",
                "envoy",
                "-gateway=mesh",
                "-register",
                "-expose-servers",
            ])
            .args([
                "-address",
                "10.0.0.1:8443",
                "-wan-address",
                "10.0.0.1:8443",
                "-node-name",
                "gw1",
            ])
            .args(["-envoy-binary", binary])
            .output()
            .unwrap();
        check_refused(&output, "");
        assert_eq!(nodes(), before, "{binary}");
    }
}
