//! What a server meets in the world: clients that talk nonsense or nothing, wrong certificates, full and damaged disks,
//! kills. Real processes with the ports of production.
//!
//! `CROSSWAY_SOAK=1` runs the long forms: 5,000 idle connections at each port, 30 kills, 2,000 streams.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // A failed step should stop the test.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // Figures are printed; deadlines are of the real clock.

mod certificates;
mod commands;
mod connections;
mod disk;
mod kill;
mod requests;
mod signals;
mod streams;

use crate::support::server::Server;
use serde_json::Value;
use serde_json::json;

/// `short`, or `long` with CROSSWAY_SOAK=1.
fn soak(short: usize, long: usize) -> usize {
    match std::env::var("CROSSWAY_SOAK").is_ok_and(|value| value == "1") {
        true => long,
        false => short,
    }
}

/// All five ports, with client certificates demanded.
fn all_ports() -> Value {
    json!({
        "ports": {"https": 8501, "grpc_tls": 8503},
        "verify_incoming": true, "verify_outgoing": true, "verify_server_hostname": true,
    })
}

/// Answers on 8500 and 8300, and nothing has panicked.
#[track_caller]
fn check_alive(server: &Server) {
    let (status, _) = server.get("/v1/status/leader").unwrap();
    assert_eq!(status, 200);
    let leader = server.rpc(
        &server.port(8300),
        "server.dc1.consul",
        "Status.Leader",
        &json!({}),
    );
    assert_eq!(leader, json!(server.port(8300)));
    assert!(!server.log().contains("panicked"), "{}", server.log());
}
