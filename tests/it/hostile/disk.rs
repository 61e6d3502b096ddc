//! Disks that are full, read-only, damaged, or somebody else's.

use crate::support::server::Server;
use crate::support::server::eventually;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// Starts the server, which must end with code 1 and this in its one error line.
#[track_caller]
fn check_refused(server: &mut Server, texts: &[&str]) {
    fs::remove_file(server.path("log")).unwrap_or_default();
    server.spawn();
    let (code, _) = server.wait_for_end();
    let log = server.log();
    assert_eq!(code, Some(1), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    // Mistakes of the configuration are printed before there is a log.
    let errors: Vec<_> = log
        .lines()
        .filter(|l| l.contains("ERROR") || l.contains("* "))
        .collect();
    assert_eq!(errors.len(), 1, "{log}");
    for text in texts {
        assert!(errors[0].contains(text), "{text}: {log}");
    }
    assert!(
        errors[0].matches("(os error").count() <= 1,
        "the reason once: {log}"
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// A server with some state that was killed, and a copy of its data directory.
fn with_state() -> (Server, PathBuf) {
    let mut server = Server::start(&json!({}));
    for n in 0..50 {
        server.put(&format!("/v1/kv/k{n}"), &json!("v".repeat(200)));
    }
    for name in ["web", "db"] {
        let service = json!({"Name": name, "Port": 80, "Check": {"TTL": "1h"}});
        server.put("/v1/agent/service/register", &service);
    }
    server.kill();
    let kept = server.path("kept");
    copy(&server.path("data"), &kept);
    (server, kept)
}

fn restore(server: &Server, kept: &Path) -> PathBuf {
    let data = server.path("data");
    fs::remove_dir_all(&data).unwrap();
    copy(kept, &data);
    data
}

#[test]
fn a_damaged_log_is_refused_or_harmless_but_never_a_silent_loss() {
    let (mut server, kept) = with_state();
    let length = fs::metadata(kept.join("raft/raft.db")).unwrap().len();
    let mut refused = 0;
    for n in 0..12 {
        let db = restore(&server, &kept).join("raft/raft.db");
        let mut bytes = fs::read(&db).unwrap();
        let at = usize::try_from(length * (2 * n + 1) / 24).unwrap();
        bytes[at..at + 1024]
            .iter_mut()
            .for_each(|byte| *byte ^= 0x5a);
        fs::write(&db, bytes).unwrap();
        fs::remove_file(server.path("log")).unwrap();
        server.spawn();
        let outcome = eventually("a decision", || {
            if server.log().contains("raft.db is damaged") {
                return Some(false);
            }
            let answer = server.get("/v1/kv/k49").ok()?;
            (answer.0 == 200).then_some(true)
        });
        if outcome {
            for n in 0..50 {
                assert_eq!(
                    server.get(&format!("/v1/kv/k{n}")).unwrap().0,
                    200,
                    "k{n} at {at}"
                );
            }
            server.kill();
        } else {
            assert_eq!(server.wait_for_end().0, Some(1));
            refused += 1;
        }
        assert!(!server.log().contains("panicked"), "{}", server.log());
    }
    assert!(refused > 0, "no damage was noticed");
    let data = restore(&server, &kept);
    let db = data.join("raft/raft.db");
    fs::File::options()
        .write(true)
        .open(&db)
        .unwrap()
        .set_len(length / 2)
        .unwrap();
    check_refused(
        &mut server,
        &[
            "raft.db is damaged",
            "Restore the data directory from a backup",
        ],
    );
    fs::write(&db, "").unwrap();
    check_refused(&mut server, &["raft.db is damaged", "empty"]);
    fs::write(&db, "hello ".repeat(10_000)).unwrap();
    check_refused(&mut server, &["raft.db is damaged"]);
    fs::remove_file(&db).unwrap();
    check_refused(&mut server, &["raft.db is damaged", "missing"]);
    // And with the backup everything is there again.
    restore(&server, &kept);
    server.spawn();
    server.wait_until_ready();
    assert_eq!(server.get("/v1/kv/k49").unwrap().0, 200);
}

#[test]
fn a_damaged_service_is_named_and_the_rest_serves() {
    let (mut server, kept) = with_state();
    let (_, before) = {
        server.spawn();
        server.wait_until_ready();
        server.get("/v1/agent/services").unwrap()
    };
    assert_eq!(before.as_object().unwrap().len(), 2);
    server.kill();
    for content in [&b""[..], b"\xff\xfe\0", b"[[[[[[", b"{\"Service\":5}"] {
        let folder = restore(&server, &kept).join("services");
        let file = fs::read_dir(&folder)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        fs::write(&file, content).unwrap();
        fs::remove_file(server.path("log")).unwrap();
        server.spawn();
        server.wait_until_ready();
        let (_, services) = server.get("/v1/agent/services").unwrap();
        assert_eq!(services.as_object().unwrap().len(), 1);
        let warnings = server.lines(" WARN ");
        let named = warnings
            .iter()
            .any(|line| line.contains(file.to_str().unwrap()) && line.contains("remove the file"));
        assert!(named, "{warnings:?}");
        server.kill();
    }
}

#[test]
fn the_directory_of_another_server_is_refused_and_left_alone() {
    let (mut server, kept) = with_state();
    let id = fs::read_to_string(kept.join("node-id")).unwrap();
    server.set("node_id", json!("ddd6fddd-b174-f428-7633-0e0dabed6a2c"));
    check_refused(&mut server, &["belongs to node", &id, "own data_dir"]);
    assert_eq!(fs::read_to_string(server.path("data/node-id")).unwrap(), id);
    server.set("node_id", json!(id));
    server.spawn();
    server.wait_until_ready();
    // While it runs, a second one on the same directory.
    let mut second = Server::prepare(&json!({"data_dir": server.path("data")}));
    check_refused(&mut second, &["in use by another process", "data_dir"]);
    server.kill();
    fs::write(server.path("data/node-id"), b"\xff\xfe\xfd").unwrap();
    server.set("node_id", json!(null));
    check_refused(&mut server, &["node-id", "no UUID"]);
}

#[test]
fn ports_and_addresses_that_cannot_be_had_are_named() {
    let server = Server::start(&json!({"ports": {"https": 8501, "grpc_tls": 8503}}));
    let address = server.address.to_string();
    for (port, key) in [
        (8300, "ports.server"),
        (8500, "ports.http"),
        (8501, "ports.https"),
        (8502, "ports.grpc"),
        (8503, "ports.grpc_tls"),
    ] {
        // Everything of its own but one port.
        let own = crate::support::server::loopback().to_string();
        let (mut bind, mut client) = (own.clone(), json!({"http": own, "https": own, "grpc": own}));
        match port {
            8300 => bind = address.clone(),
            8500 => client["http"] = json!(address),
            8501 => client["https"] = json!(address),
            _ => client["grpc"] = json!(address),
        }
        let mut ports = json!({"https": 8501, "grpc_tls": 8503});
        if port == 8503 {
            ports["grpc"] = json!(8504);
        }
        let mut second =
            Server::prepare(&json!({"bind_addr": bind, "addresses": client, "ports": ports}));
        check_refused(
            &mut second,
            &[key, &format!("{address}:{port}"), "already in use"],
        );
        assert!(!second.path("data/raft").exists(), "nothing was begun");
    }
    let mut elsewhere = Server::prepare(&json!({"bind_addr": "192.0.2.1"}));
    check_refused(&mut elsewhere, &["no address of this machine", "bind_addr"]);
}

/// Becomes somebody else who may not write, which needs root.
#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let mut server = Server::prepare(&json!({}));
    check_unwritable(&mut server, "/proc/crossway".into(), &[]);
    if !rustix::process::getuid().is_root()
        || Command::new("setpriv").arg("--version").output().is_err()
    {
        println!("SKIPPED: not root, or no setpriv");
        return;
    }
    let nobody = [
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
    ];
    let mode =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&server.path(""), 0o755);
    mode(&server.path("dc1-server-consul-0-key.pem"), 0o644);
    let locked = server.path("locked/data");
    check_unwritable(&mut server, locked, &nobody);
    // There already, but of another user.
    let roots = server.path("roots");
    fs::create_dir(&roots).unwrap();
    check_unwritable(&mut server, roots, &nobody);
    // Only a file in it is of another user.
    let mixed = server.path("mixed");
    fs::create_dir_all(mixed.join("raft")).unwrap();
    mode(&mixed, 0o777);
    check_unwritable(&mut server, mixed, &nobody);
}

#[track_caller]
fn check_unwritable(server: &mut Server, data: PathBuf, wrapper: &[&str]) {
    server.set("data_dir", json!(data));
    fs::remove_file(server.path("log")).unwrap_or_default();
    server.spawn_through(wrapper);
    let (code, _) = server.wait_for_end();
    let log = server.log();
    assert_eq!(code, Some(1), "{log}");
    let named = log.contains("data_dir") && log.contains(data.to_str().unwrap());
    assert!(named, "{log}");
    assert!(!log.contains("panicked"), "{log}");
    assert!(
        log.matches("(os error").count() <= 1,
        "the reason once: {log}"
    );
}

/// What does not fit on the disk is not registered, not even in part, and the answer says why.
#[test]
fn a_registration_that_cannot_be_kept_is_refused_whole() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("SKIPPED: prlimit is not installed");
        return;
    }
    let mut server = Server::prepare(&json!({}));
    // A file beyond its limit fails as a full disk does.
    server.spawn_through(&["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    server.wait_until_ready();
    server.put(
        "/v1/agent/service/register",
        &json!({"Name": "old", "Port": 1, "Check": {"CheckID": "kept", "TTL": "1h"}}),
    );
    let limit = |size: &str| {
        let pid = server.pid().to_string();
        let mut command = Command::new("prlimit");
        command.args([&format!("--fsize={size}:"), "--pid", &pid]);
        assert!(command.status().unwrap().success());
    };
    let files = || {
        let folders = ["services", "checks"].map(|name| server.path("data").join(name));
        let entries = folders
            .iter()
            .flat_map(|folder| fs::read_dir(folder).unwrap());
        entries.count()
    };
    assert_eq!(files(), 2);
    // The service fits, its check does not.
    limit("3000");
    let notes = "n".repeat(4000);
    for name in ["new", "old"] {
        let check = json!({"CheckID": "large", "TTL": "1h", "Notes": notes});
        let service = json!({"Name": name, "Port": 2, "Check": check}).to_string();
        let (status, text) = server
            .send(
                "PUT",
                "/v1/agent/service/register?replace-existing-checks",
                &service,
            )
            .unwrap();
        let text = text.as_str().unwrap();
        assert!(
            status == 500 && text.contains("cannot write") && text.contains("checks/"),
            "{status} {text}"
        );
    }
    let check = json!({"CheckID": "large", "Name": "l", "TTL": "1h", "Notes": notes}).to_string();
    assert_eq!(
        server
            .send("PUT", "/v1/agent/check/register", &check)
            .unwrap()
            .0,
        500
    );
    assert_eq!(files(), 2);
    limit("unlimited");
    for restarted in [false, true] {
        if restarted {
            server.restart();
        }
        let (_, services) = server.get("/v1/agent/services").unwrap();
        let names: Vec<_> = services.as_object().unwrap().keys().collect();
        assert_eq!(names, ["old"], "restarted: {restarted}");
        assert_eq!(services["old"]["Port"], 1);
        let (_, checks) = server.get("/v1/agent/checks").unwrap();
        let names: Vec<_> = checks.as_object().unwrap().keys().collect();
        assert_eq!(names, ["kept"], "restarted: {restarted}");
    }
}

#[test]
fn a_full_disk_fails_writes_keeps_reads_and_recovers() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        println!("SKIPPED: prlimit is not installed");
        return;
    }
    let mut server = Server::prepare(&json!({}));
    // A file beyond its limit fails as a full disk does.
    server.spawn_through(&["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
    server.wait_until_ready();
    let limit = |size: &str| {
        let pid = server.pid().to_string();
        let mut command = Command::new("prlimit");
        command.args([&format!("--fsize={size}:"), "--pid", &pid]);
        assert!(command.status().unwrap().success());
    };
    let size = fs::metadata(server.path("data/raft/raft.db"))
        .unwrap()
        .len();
    limit(&(size + 500_000).to_string());
    let value = json!("x".repeat(100_000)).to_string();
    let mut written = 0;
    let refusal = eventually("the disk to be full", || {
        let path = format!("/v1/kv/fill/{written}");
        match server.send("PUT", &path, &value).unwrap() {
            (200, _) => {
                written += 1;
                None
            }
            other => Some(other),
        }
    });
    assert_eq!(refusal.0, 500);
    let text = refusal.1.as_str().unwrap();
    assert!(
        text.contains("the disk is full") && text.contains("raft.db"),
        "{text}"
    );
    assert_eq!(server.get("/v1/health/service/consul").unwrap().0, 200);
    let service = json!({"Name": "late", "Port": 1}).to_string();
    let (status, _) = server
        .send("PUT", "/v1/agent/service/register", &service)
        .unwrap();
    println!("{written} writes before it was full; a registration meanwhile: {status}");
    limit("unlimited");
    eventually("writes again", || {
        let (status, _) = server.send("PUT", "/v1/kv/after", "1").unwrap();
        (status == 200).then_some(())
    });
    server.restart();
    for n in 0..written {
        assert_eq!(
            server.get(&format!("/v1/kv/fill/{n}")).unwrap().0,
            200,
            "fill/{n}"
        );
    }
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
