//! TLS settings from files: what works, and one clear message for everything that does not.
#![allow(clippy::unwrap_used, clippy::panic)] // Test code: a failed step should stop the test.
#![allow(clippy::disallowed_methods)] // The certificates are valid by the real clock.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::SystemTime;

use crossway::net::Tls;
use crossway::net::TlsError;
use crossway::net::TlsSettings;
use crossway::net::TlsVersion;

use crate::support::certs::Authority;
use crate::support::certs::Pair;

struct Files {
    folder: tempfile::TempDir,
    ca: Authority,
    server: Pair,
}

fn files() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca");
    let server = ca.server("s1", "dc1");
    Files { folder, ca, server }
}

fn settings(files: &Files, pair: &Pair) -> TlsSettings {
    TlsSettings {
        ca_files: vec![files.ca.file()],
        cert_file: Some(pair.cert.clone()),
        key_file: Some(pair.key.clone()),
        domain: "consul.".to_owned(),
        datacenter: "dc1".to_owned(),
        node: "s1".to_owned(),
        ..TlsSettings::default()
    }
}

fn load(settings: TlsSettings) -> Result<Tls, TlsError> {
    Tls::load(settings, SystemTime::now())
}

/// The message must hold all of `parts`.
fn check_refused(settings: TlsSettings, parts: &[&str]) {
    let message = match load(settings) {
        Ok(_) => panic!("accepted, should say {parts:?}"),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn a_server_with_everything_has_all_configurations() {
    let files = files();
    let tls = load(settings(&files, &files.server)).unwrap();
    assert!(tls.is_mutual());
    assert!(tls.warnings().is_empty(), "{:?}", tls.warnings());
    let native = tls.native_server().unwrap();
    let names: Vec<_> = native
        .alpn_protocols
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    let expected = [
        "consul/rpc-single",
        "consul/raft",
        "consul/rpc-multi",
        "consul/rpc-snapshot",
        "consul/rpc-gossip",
        "consul/wan-gossip/packet",
        "consul/wan-gossip/stream",
    ];
    assert_eq!(names, expected);
    assert_eq!(tls.grpc_server().unwrap().alpn_protocols, [b"h2"]);
    assert_eq!(tls.https_server().unwrap().alpn_protocols.len(), 2);
    assert!(
        tls.named_client("s2.server.dc2.consul", "consul/rpc-multi")
            .is_ok()
    );
    assert!(tls.named_client("no name", "consul/rpc-multi").is_err());
    tls.check_server_names().unwrap();
}

#[test]
fn without_files_there_is_no_tls() {
    let tls = load(TlsSettings::default()).unwrap();
    assert!(!tls.is_mutual() && !tls.dials_with_tls());
    assert!(tls.upgrade_server().is_none() && tls.https_server().is_none());
    assert!(tls.named_client("server.dc1.consul", "").is_err());
}

#[test]
fn wrong_files_are_named_with_a_remedy() {
    let files = files();
    let good = || settings(&files, &files.server);
    let file = |name: &str, text: &str| {
        let path = files.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let with_ca = |path: PathBuf| TlsSettings {
        ca_files: vec![path],
        ..good()
    };
    let with_cert = |path: PathBuf| TlsSettings {
        cert_file: Some(path),
        ..good()
    };
    let with_key = |path: PathBuf| TlsSettings {
        key_file: Some(path),
        ..good()
    };
    let missing = || files.folder.path().join("missing.pem");
    check_refused(
        with_ca(missing()),
        &["ca_file", "missing.pem", "check the path"],
    );
    check_refused(with_cert(missing()), &["cert_file", "missing.pem"]);
    check_refused(with_key(missing()), &["key_file", "missing.pem"]);
    check_refused(
        with_ca(file("empty.pem", "")),
        &["ca_file", "empty.pem", "it is empty"],
    );
    check_refused(
        with_ca(file("text.pem", "hello")),
        &["ca_file", "no PEM file"],
    );
    check_refused(
        with_cert(files.server.key.clone()),
        &["cert_file", "no certificate", "swapped"],
    );
    check_refused(
        with_key(files.server.cert.clone()),
        &["key_file", "private key", "swapped"],
    );
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    check_refused(
        with_key(file("enc.pem", encrypted)),
        &["key_file", "decrypt it"],
    );
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    check_refused(
        with_cert(file("broken.pem", broken)),
        &["cert_file", "broken.pem"],
    );
    check_refused(
        with_ca(file("broken-ca.pem", broken)),
        &["ca_file", "broken-ca.pem"],
    );
}

#[test]
fn certificates_that_cannot_serve_are_named_with_a_remedy() {
    let files = files();
    let good = || settings(&files, &files.server);
    let other = files.ca.server("s2", "dc1");
    let mixed = TlsSettings {
        key_file: Some(other.key.clone()),
        ..good()
    };
    check_refused(
        mixed,
        &[
            "key_file",
            "not the private key",
            &text(&other.key),
            &text(&files.server.cert),
        ],
    );
    let expired = files.ca.sign_for(&["server.dc1.consul"], (-9, -2));
    check_refused(
        settings(&files, &expired),
        &["cert_file", "expired at", &text(&expired.cert)],
    );
    let early = files.ca.sign_for(&["server.dc1.consul"], (2, 9));
    check_refused(settings(&files, &early), &["cert_file", "clock"]);
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn settings_that_need_others_are_refused() {
    let files = files();
    let bare = TlsSettings::default;
    check_refused(
        TlsSettings {
            verify_incoming: true,
            ..bare()
        },
        &["verify_incoming", "ca_file or ca_path"],
    );
    let no_cert = TlsSettings {
        verify_incoming_rpc: true,
        ca_files: vec![files.ca.file()],
        ..bare()
    };
    check_refused(no_cert, &["verify_incoming_rpc", "cert_file"]);
    check_refused(
        TlsSettings {
            verify_outgoing: true,
            ..bare()
        },
        &["verify_outgoing", "ca_file"],
    );
    check_refused(
        TlsSettings {
            cert_file: Some("x".into()),
            ..bare()
        },
        &["cert_file", "key_file"],
    );
    check_refused(
        TlsSettings {
            key_file: Some("x".into()),
            ..bare()
        },
        &["key_file", "cert_file"],
    );
    let version = "tls14".parse::<TlsVersion>().unwrap_err().to_string();
    assert!(
        version.contains("tls_min_version") && version.contains("tls13"),
        "{version}"
    );
}

#[test]
fn names_that_other_datacenters_verify_are_checked() {
    let files = files();
    let check = |names: &[&str], missing: &[&str]| {
        let tls = load(settings(&files, &files.ca.sign(names))).unwrap();
        match tls.check_server_names() {
            Ok(()) => assert!(missing.is_empty(), "{names:?}"),
            Err(error) => {
                let message = error.to_string();
                assert!(!missing.is_empty(), "{message}");
                for part in missing
                    .iter()
                    .chain(&["tls cert create -server -node s1 -dc dc1"])
                {
                    assert!(message.contains(part), "{part} is not in {message}");
                }
            }
        }
    };
    check(&["s1.server.dc1.consul", "server.dc1.consul"], &[]);
    check(&["*.server.dc1.consul", "server.dc1.consul"], &[]);
    check(
        &["server.dc1.consul"],
        &["lacks the DNS name s1.server.dc1.consul (it has: server.dc1.consul)"],
    );
    check(
        &["other.example"],
        &["s1.server.dc1.consul and server.dc1.consul"],
    );
}

#[test]
fn a_certificate_of_another_authority_is_warned_about() {
    let files = files();
    let other = Authority::new(files.folder.path(), "other-ca");
    let tls = load(settings(&files, &other.server("s1", "dc1"))).unwrap();
    let warnings = tls.warnings();
    assert!(
        warnings[0].contains("CN=other-ca") && warnings[0].contains("ca_file"),
        "{warnings:?}"
    );
}

#[test]
fn a_folder_of_authorities_works() {
    let files = files();
    let folder = files.folder.path().join("cas");
    fs::create_dir(&folder).unwrap();
    let with = |settings: TlsSettings| TlsSettings {
        ca_files: Vec::new(),
        ca_path: Some(folder.clone()),
        ..settings
    };
    check_refused(
        with(settings(&files, &files.server)),
        &["ca_path", "holds no files"],
    );
    fs::copy(files.ca.file(), folder.join("a.pem")).unwrap();
    assert!(
        load(with(settings(&files, &files.server)))
            .unwrap()
            .is_mutual()
    );
}

#[test]
fn a_failed_reload_changes_nothing() {
    let files = files();
    let tls = load(settings(&files, &files.server)).unwrap();
    let before = tls.native_server().unwrap();
    let bad = TlsSettings {
        cert_file: Some("/nowhere".into()),
        ..settings(&files, &files.server)
    };
    assert!(tls.reload(bad, SystemTime::now()).is_err());
    assert!(std::sync::Arc::ptr_eq(
        &before,
        &tls.native_server().unwrap()
    ));
    let next = files.ca.server("s1", "dc1");
    tls.reload(settings(&files, &next), SystemTime::now())
        .unwrap();
    assert!(!std::sync::Arc::ptr_eq(
        &before,
        &tls.native_server().unwrap()
    ));
}
