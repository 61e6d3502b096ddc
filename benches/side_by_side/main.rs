//! Crossway beside Consul 1.8.7 with one client: same machine, same disk, same minute.
//!
//! `make bench` runs everything, `make bench QUICK=1` the short rows. For each row both servers get the same catalog and
//! the same number of gateway streams, in the order Consul, Crossway, Crossway, Consul; the figures are medians, the
//! verdict is a ratio. CPU comes from `/proc/PID/stat` (10 ms ticks), memory from `VmRSS`.
//!
//! Consul speaks xDS v2 (state of the world) only, Crossway v3; the client speaks delta v3 with ours. Many proxies on one
//! agent is Consul's worst case (its deployments run an agent per host), so the rows with one and ten streams stand
//! beside the headline.
#![allow(unreachable_pub)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]
#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    missing_docs
)]

mod ads;
mod http;
mod server;
mod table;

use ads::{Fleet, Round};
use server::{Kind, Server};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use table::{Gate, Table};

/// One measured configuration.
struct Row {
    services: usize,
    streams: usize,
    rounds: usize,
    /// Pairs of runs; each is Consul and Crossway once.
    pairs: usize,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let quick = std::env::var("QUICK").is_ok_and(|v| v == "1");
    let out = PathBuf::from(std::env::var("BENCH_OUT").unwrap_or("target/bench.json".into()));
    let mut table = Table::default();
    let rows = if quick {
        vec![
            (10, 1, 6, 2),
            (10, 10, 6, 2),
            (10, 100, 5, 1),
            (100, 50, 4, 1),
        ]
    } else {
        vec![
            (10, 1, 10, 2),
            (10, 10, 10, 2),
            (10, 100, 6, 2),
            (10, 500, 5, 1),
            (100, 1, 10, 2),
            (100, 10, 6, 1),
            (100, 100, 5, 1),
            (100, 500, 4, 1),
        ]
    };
    for (services, streams, rounds, pairs) in rows {
        let row = Row {
            services,
            streams,
            rounds,
            pairs,
        };
        compare(&row, &mut table).await;
    }
    alone(if quick { 1000 } else { 5000 }, &mut table).await;
    table.print();
    table.write(&out);
    println!("\nfigures as JSON: {}", out.display());
}

/// Runs one row on both servers and enters the ratios.
async fn compare(row: &Row, table: &mut Table) {
    let (mut consul, mut ours) = (Vec::new(), Vec::new());
    for pair in 0..row.pairs {
        let order = if pair % 2 == 0 {
            [Kind::Consul, Kind::Crossway]
        } else {
            [Kind::Crossway, Kind::Consul]
        };
        for kind in order {
            let measured = run(kind, row).await;
            match kind {
                Kind::Consul => consul.push(measured),
                Kind::Crossway => ours.push(measured),
            }
        }
    }
    let name = format!("S={} K={}", row.services, row.streams);
    let gates = Gate::of(row.services, row.streams);
    table.enter(&name, &gates, &consul, &ours);
}

/// What one run of a row gave.
#[derive(Clone, Default)]
pub struct Measured {
    pub round: Round,
    /// Seconds from the server's start to every gateway in the catalog and every stream in sync.
    pub restart: f64,
    pub rss_per_stream_kib: f64,
}

async fn run(kind: Kind, row: &Row) -> Measured {
    let mut server = Server::start(kind);
    server.load(row.services, 10);
    server.add_gateways(row.streams);
    let started = server.restart();
    server.wait_for_gateways(row.streams);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = server.usage();
    let connecting = Instant::now();
    let fleet = Fleet::connect(kind, &server, row.streams).await;
    let restart = started + connecting.elapsed().as_secs_f64();
    fleet.settle().await;
    let after = server.usage();
    let round = fleet.rounds(&server, row.rounds).await;
    println!(
        "{kind:?} S={} K={}: push p50 {:.2} ms p99 {:.2} ms, CPU {:.3} s/change, {:.0} B/stream, restart {restart:.2} s",
        row.services, row.streams, round.p50, round.p99, round.cpu, round.bytes_per_stream
    );
    Measured {
        rss_per_stream_kib: (after.rss_kib as f64 - before.rss_kib as f64).max(0.0)
            / row.streams as f64,
        restart,
        round,
    }
}

/// Many streams on ours alone: how long until all are in sync, and a change's p99.
async fn alone(streams: usize, table: &mut Table) {
    let row = Row {
        services: 100,
        streams,
        rounds: 4,
        pairs: 1,
    };
    let measured = run(Kind::Crossway, &row).await;
    table.enter_alone(streams, &measured);
}
