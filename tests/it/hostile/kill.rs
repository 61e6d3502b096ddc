//! kill -9 of the whole server at any moment: what was acknowledged is there.

use crate::hostile::soak;
use crate::support::http;
use crate::support::server::Server;
use crate::support::server::eventually;
use rand::Rng;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::panic::resume_unwind;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What was acknowledged: paths that must answer.
#[derive(Default)]
pub(super) struct Acknowledged {
    pub(super) paths: BTreeSet<String>,
}

/// Writes until `stop`: keys for even numbers, nodes with a service for odd ones. Answers the paths that must exist.
pub(super) fn write(at: &str, prefix: &str, number: usize, stop: &AtomicBool) -> Vec<String> {
    let mut done = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("{prefix}-{number}-{n}");
        let (path, body, check) = match number % 2 {
            0 => (
                format!("/v1/kv/{name}"),
                json!(name),
                format!("/v1/kv/{name}"),
            ),
            _ => {
                let service = json!({"Service": "killed", "Port": 80});
                let body = json!({"Node": name, "Address": "10.0.0.1", "Service": service});
                let check = format!("/v1/catalog/node/{name}");
                ("/v1/catalog/register".to_owned(), body, check)
            }
        };
        match http::request(at, "PUT", &path, &body.to_string()) {
            Ok((200, answer)) if answer.trim() == "true" => done.push(check),
            // Not acknowledged: it may be there or not.
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    done
}

/// Writes from four threads while `meanwhile` runs; collects what was acknowledged.
pub(super) fn under_load(
    server: &mut Server,
    prefix: &str,
    acks: &mut Acknowledged,
    meanwhile: impl FnOnce(&mut Server),
) -> usize {
    let (at, stop) = (server.port(8500), AtomicBool::new(false));
    let before = acks.paths.len();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|number| {
                let (at, stop) = (&at, &stop);
                scope.spawn(move || write(at, prefix, number, stop))
            })
            .collect();
        let done = catch_unwind(AssertUnwindSafe(|| meanwhile(server)));
        stop.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| resume_unwind(panic));
        for writer in writers {
            acks.paths.extend(writer.join().unwrap());
        }
    });
    acks.paths.len() - before
}

/// The index of the catalog and of the keys.
pub(super) fn indexes(server: &Server) -> [u64; 2] {
    ["/v1/catalog/nodes", "/v1/kv/?keys"].map(|path| {
        let text = index_header(server, path);
        text.parse().unwrap()
    })
}

fn index_header(server: &Server, path: &str) -> String {
    use std::io::Read;
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(server.port(8500)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("x-consul-index")
            .then(|| value.to_owned())
    });
    line.unwrap_or_else(|| panic!("no index: {answer}"))
}

/// Everything that was acknowledged answers.
#[track_caller]
pub(super) fn check_nothing_lost(server: &Server, acks: &Acknowledged) {
    let (_, keys) = server.get("/v1/kv/?keys").unwrap();
    let (_, nodes) = server.get("/v1/catalog/nodes").unwrap();
    let list = |value: &Value, name: fn(&Value) -> &Value| -> BTreeSet<String> {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(|item| Some(name(item).as_str()?.to_owned()))
            .collect()
    };
    let keys = list(&keys, |key| key);
    let nodes = list(&nodes, |node| &node["Node"]);
    for path in &acks.paths {
        let name = path.rsplit('/').next().unwrap();
        let there = match path.starts_with("/v1/kv/") {
            true => keys.contains(name),
            false => nodes.contains(name),
        };
        assert!(there, "{path} was acknowledged and is lost");
    }
}

#[test]
fn kills_lose_no_acknowledged_write_and_no_registered_service() {
    let rounds = soak(8, 30);
    let mut server = Server::start(&json!({"raft_snapshot_threshold": 200}));
    for name in ["web", "db"] {
        let check = json!({"TTL": "10h", "Status": "passing"});
        let service = json!({"Name": name, "Port": 80, "Check": check});
        server.put("/v1/agent/service/register", &service);
    }
    let (mut acks, mut before, mut productive) = (Acknowledged::default(), [0; 2], 0);
    for round in 0..rounds {
        let lifetime = Duration::from_millis(rand::rng().random_range(20..600));
        let new = under_load(&mut server, &format!("r{round}"), &mut acks, |server| {
            std::thread::sleep(lifetime);
            server.kill();
        });
        productive += usize::from(new > 0);
        server.spawn();
        // Every other time it is killed again in the middle of its start.
        if round % 2 == 1 {
            std::thread::sleep(lifetime / 4);
            server.kill();
            server.spawn();
        }
        server.wait_until_ready();
        check_nothing_lost(&server, &acks);
        let now = indexes(&server);
        assert!(
            now[0] >= before[0] && now[1] >= before[1],
            "{now:?} after {before:?}"
        );
        before = now;
        let (_, services) = server.get("/v1/agent/services").unwrap();
        assert!(
            services["web"].is_object() && services["db"].is_object(),
            "{services}"
        );
        eventually("the services in the catalog", || {
            let (_, rows) = server.get("/v1/health/service/web?passing").ok()?;
            (rows.as_array()?.len() == 1).then_some(())
        });
    }
    println!(
        "{rounds} kills, {} writes acknowledged, none lost, indexes {before:?}",
        acks.paths.len()
    );
    assert!(
        productive * 2 > rounds,
        "only {productive} rounds wrote anything"
    );
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
