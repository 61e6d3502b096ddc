//! Signals: an orderly end under load, and a reload that goes wrong.

use crate::hostile::check_alive;
use crate::hostile::kill::Acknowledged;
use crate::hostile::kill::check_nothing_lost;
use crate::hostile::kill::under_load;
use crate::support::server::Server;
use crate::support::server::eventually;
use rustix::process::Signal;
use serde_json::json;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn signals_end_it_in_time_without_losing_a_write() {
    let mut server = Server::start(&json!({}));
    let mut acks = Acknowledged::default();
    for (signal, idle) in [
        (Signal::TERM, false),
        (Signal::INT, false),
        (Signal::TERM, true),
    ] {
        // A reader that waits for a change, and clients that say nothing, must not hold it up.
        let mut waiting = Vec::new();
        for port in [8300, 8500, 8502] {
            waiting.push(TcpStream::connect((server.address, port)).unwrap());
        }
        let mut reader = TcpStream::connect(server.port(8500)).unwrap();
        write!(
            reader,
            "GET /v1/kv/nothing?index=1&wait=60s HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        .unwrap();
        let end = |server: &mut Server| {
            std::thread::sleep(Duration::from_millis(300));
            server.signal(signal);
            let (code, took) = server.wait_for_end();
            assert_eq!(code, Some(0), "{}", server.log());
            assert!(took < Duration::from_secs(4), "{took:?}");
            println!("{signal:?}, idle {idle}: ended in {took:?}");
        };
        match idle {
            true => end(&mut server),
            false => {
                let new = under_load(&mut server, &format!("s{signal:?}"), &mut acks, end);
                assert!(new > 0, "nothing was written");
            }
        }
        server.spawn();
        server.wait_until_ready();
        check_nothing_lost(&server, &acks);
    }
    assert!(
        server.log().matches("leadership begins").count() < 10,
        "{}",
        server.log()
    );
    assert!(
        server.lines("ERROR").is_empty(),
        "{:?}",
        server.lines("ERROR")
    );
}

#[test]
fn a_broken_configuration_changes_nothing_and_a_good_one_acts() {
    let mut server = Server::start(&json!({}));
    let good = std::fs::read_to_string(server.path("agent.json")).unwrap();
    for broken in ["{", "{\"datacentre\": \"dc1\"}", ""] {
        std::fs::write(server.path("agent.json"), broken).unwrap();
        let before = server.log().matches("not reloaded").count();
        server.signal(Signal::HUP);
        eventually("the refusal", || {
            (server.log().matches("not reloaded").count() > before).then_some(())
        });
        check_alive(&server);
    }
    std::fs::remove_file(server.path("agent.json")).unwrap();
    server.signal(Signal::HUP);
    eventually("the refusal", || {
        (server.log().matches("not reloaded").count() > 3).then_some(())
    });
    std::fs::write(server.path("agent.json"), good).unwrap();
    server.set("limits", json!({"rpc_max_conns_per_client": 3}));
    server.signal(Signal::HUP);
    eventually("the reload", || {
        server
            .log()
            .contains("configuration reloaded")
            .then_some(())
    });
    let open: Vec<_> = (0..4)
        .map(|_| TcpStream::connect(server.port(8300)).unwrap())
        .collect();
    eventually("the new limit", || {
        server
            .log()
            .contains("rpc_max_conns_per_client allows")
            .then_some(())
    });
    drop(open);
    eventually("room again", || {
        let mut stream = TcpStream::connect(server.port(8300)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_millis(50)))
            .ok()?;
        stream.write_all(&[0]).ok()?;
        let open = std::io::Read::read(&mut stream, &mut [0]);
        open.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
            .then_some(())
    });
}
