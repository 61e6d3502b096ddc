//! `tls ca create` and `tls cert create` as operators run them, judged by openssl.
#![allow(clippy::unwrap_used, clippy::panic)] // Test code: a failed step should stop the test.
#![allow(clippy::print_stderr)] // A skipped test says so.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::process::Output;

fn crossway(folder: &Path, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crossway"))
        .args(args.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

fn check_made(folder: &Path, args: &str, stem: &str) {
    let output = crossway(folder, args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args}: {err}");
    assert_eq!(
        out,
        format!("==> Saved {stem}.pem\n==> Saved {stem}-key.pem\n"),
        "{args}"
    );
    let key = folder.join(format!("{stem}-key.pem"));
    assert_eq!(
        key.metadata().unwrap().permissions().mode() & 0o777,
        0o600,
        "{key:?}"
    );
}

fn check_refused(folder: &Path, args: &str, part: &str) {
    let output = crossway(folder, args);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{args}: {err}");
    assert!(err.contains(part), "{args}: {part:?} is not in {err}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `openssl` says; `None` when it is not installed.
fn openssl(folder: &Path, args: &str) -> Option<String> {
    let output = Command::new("openssl")
        .args(args.split_whitespace())
        .current_dir(folder)
        .output();
    let Ok(output) = output else {
        assert!(
            std::env::var("CROSSWAY_REQUIRE_PEERS").is_err(),
            "openssl is not installed"
        );
        eprintln!("SKIPPED: openssl is not installed");
        return None;
    };
    Some(text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn makes_what_consul_makes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    check_made(folder, "tls ca create", "consul-agent-ca");
    check_made(
        folder,
        "tls cert create -server -dc dc1 -node dc1-s1",
        "dc1-server-consul-0",
    );
    check_made(
        folder,
        "tls cert create -server -dc=dc1 -node=s2 -additional-dnsname a.example -additional-dnsname b.example -additional-ipaddress 10.0.0.1",
        "dc1-server-consul-1",
    );
    check_made(folder, "tls cert create -client", "dc1-client-consul-0");
    check_made(folder, "tls cert create -cli -dc dc2", "dc2-cli-consul-0");
    let Some(ca) = openssl(folder, "x509 -in consul-agent-ca.pem -noout -text") else {
        return;
    };
    for part in [
        "Public-Key: (256 bit)",
        "X509v3 Basic Constraints: critical\n                CA:TRUE",
        "X509v3 Key Usage: critical\n                Digital Signature, Certificate Sign, CRL Sign",
    ] {
        assert!(ca.contains(part), "{part:?} is not in {ca}");
    }
    for (stem, subject, usage, names) in [
        (
            "dc1-server-consul-0",
            "Subject: CN = server.dc1.consul",
            "TLS Web Server Authentication, TLS Web Client Authentication",
            "DNS:dc1-s1.server.dc1.consul, DNS:server.dc1.consul, DNS:localhost, IP Address:127.0.0.1\n",
        ),
        (
            "dc1-server-consul-1",
            "Subject: CN = server.dc1.consul",
            "TLS Web Server Authentication, TLS Web Client Authentication",
            "DNS:a.example, DNS:b.example, DNS:s2.server.dc1.consul, DNS:server.dc1.consul, DNS:localhost, IP Address:10.0.0.1, IP Address:127.0.0.1\n",
        ),
        (
            "dc1-client-consul-0",
            "Subject: CN = client.dc1.consul",
            "TLS Web Client Authentication, TLS Web Server Authentication",
            "DNS:client.dc1.consul, DNS:localhost, IP Address:127.0.0.1\n",
        ),
        (
            "dc2-cli-consul-0",
            "Subject: CN = cli.dc2.consul",
            "TLS Web Client Authentication",
            "DNS:cli.dc2.consul, DNS:localhost\n",
        ),
    ] {
        let cert = openssl(folder, &format!("x509 -in {stem}.pem -noout -text")).unwrap();
        let common = [
            "X509v3 Key Usage: critical\n                Digital Signature, Key Encipherment",
            "X509v3 Basic Constraints: critical\n                CA:FALSE",
            "X509v3 Authority Key Identifier",
        ];
        for part in common.into_iter().chain([subject, usage, names]) {
            assert!(cert.contains(part), "{stem}: {part:?} is not in {cert}");
        }
        let verified = openssl(
            folder,
            &format!("verify -CAfile consul-agent-ca.pem {stem}.pem"),
        )
        .unwrap();
        assert_eq!(verified, format!("{stem}.pem: OK\n"));
    }
}

#[test]
fn an_authority_with_name_constraints_signs_its_names_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    check_made(
        folder,
        "tls ca create -domain corp.example -name-constraint -additional-name-constraint extra.example -days 30",
        "corp.example-agent-ca",
    );
    check_made(
        folder,
        "tls cert create -server -node s1 -domain corp.example -days 10",
        "dc1-server-corp.example-0",
    );
    check_made(
        folder,
        "tls cert create -client -domain corp.example -additional-dnsname evil.test",
        "dc1-client-corp.example-0",
    );
    let Some(ca) = openssl(folder, "x509 -in corp.example-agent-ca.pem -noout -text") else {
        return;
    };
    for part in ["DNS:extra.example", "DNS:corp.example", "DNS:localhost"] {
        assert!(ca.contains(part), "{part} is not in {ca}");
    }
    let verify = |stem: &str| {
        openssl(
            folder,
            &format!("verify -CAfile corp.example-agent-ca.pem {stem}.pem"),
        )
        .unwrap()
    };
    assert!(verify("dc1-server-corp.example-0").contains("OK"));
    assert!(verify("dc1-client-corp.example-0").contains("permitted subtree violation"));
}

/// Keys as Consul 1.8 writes them: "EC PRIVATE KEY", not PKCS #8.
#[test]
fn signs_with_an_authority_of_another_tool() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    if openssl(
        folder,
        "ecparam -name prime256v1 -genkey -noout -out ca-key.pem",
    )
    .is_none()
    {
        return;
    }
    openssl(
        folder,
        "req -x509 -new -key ca-key.pem -subj /CN=made-by-openssl -days 9 -out ca.pem",
    );
    check_made(
        folder,
        "tls cert create -server -node s1 -ca ca.pem -key ca-key.pem",
        "dc1-server-consul-0",
    );
    let verified = openssl(folder, "verify -CAfile ca.pem dc1-server-consul-0.pem").unwrap();
    assert!(verified.contains("OK"), "{verified}");
}

#[test]
fn mistakes_are_explained_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    check_refused(folder, "tls cert create -server", "crossway tls ca create");
    check_made(folder, "tls ca create", "consul-agent-ca");
    let before = std::fs::read(folder.join("consul-agent-ca-key.pem")).unwrap();
    check_refused(folder, "tls ca create", "exists already");
    assert_eq!(
        std::fs::read(folder.join("consul-agent-ca-key.pem")).unwrap(),
        before
    );
    check_refused(
        folder,
        "tls cert create",
        "exactly one of -server, -client and -cli",
    );
    check_refused(folder, "tls cert create -server -client", "exactly one of");
    check_refused(
        folder,
        "tls cert create -client -node n1",
        "-node requires -server",
    );
    check_refused(folder, "tls cert create -server -dc Bad!", "datacenter");
    check_refused(folder, "tls cert create -server -days 0", "days");
    check_refused(
        folder,
        "tls cert create -server -additional-ipaddress 10.0.0",
        "ipaddress",
    );
    check_refused(folder, "tls cert create -server -domain a..b", "domain");
    check_refused(
        folder,
        "tls cert create -server -ca consul-agent-ca-key.pem",
        "cannot sign",
    );
    std::fs::remove_file(folder.join("consul-agent-ca.pem")).unwrap();
    check_refused(folder, "tls ca create", "exists already");
    assert_eq!(
        std::fs::read(folder.join("consul-agent-ca-key.pem")).unwrap(),
        before
    );
}
