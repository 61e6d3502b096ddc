//! Crossway beside Consul 1.8.7 with one client: same machine, same disk, same minute.
//!
//! `make bench` runs everything, `make bench QUICK=1` the short rows. For each row both servers get the same catalog and
//! the same number of gateway streams, in the order Consul, Crossway, Crossway, Consul; the figures are medians, the
//! ratio is the median of the pairs with its extremes. CPU comes from `/proc/PID/stat` (10 ms ticks), memory from
//! `VmRSS`. Both servers write to disk with fsync.
//!
//! Consul speaks xDS v2 (state of the world) only, Crossway v3; the client speaks delta v3 with ours. Many proxies on one
//! agent is Consul's worst case (its deployments run an agent per host), so the rows with one and ten streams stand
//! beside the headline.
//!
//! | variable | meaning |
//! |---|---|
//! | `QUICK=1` | the short rows; rows where Consul takes many minutes use the figures in `recorded.rs`, labelled so |
//! | `BENCH_ROWS=10x1,100x500` | these rows (services x streams) instead, each once, and nothing else |
//! | `BENCH_ROUNDS=N` | changes per run in those rows |
//! | `BENCH_ALONE=1` | Crossway without Consul |
//! | `BENCH_WRITES=1` | start, footprint and writes only |
//! | `BENCH_CLUSTER=1` | three servers of each only |
//! | `BENCH_TRACE=1` | for every change when it had arrived everywhere, and the CPU until then |
//! | `BENCH_OUT=FILE` | where the JSON goes; `target/bench.json` otherwise |
//! | `BENCH_DIR=FOLDER` | where the servers keep their data; `target` otherwise |
//! | `CROSSWAY_PEERS=FOLDER` | where `consul` is; `target/peers` otherwise |
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
mod cluster;
mod http;
mod recorded;
mod server;
mod table;
mod writes;

use ads::{Fleet, Round};
use server::{Kind, Server};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use table::Table;

/// One measured configuration.
#[derive(Clone, Copy)]
struct Row {
    services: usize,
    streams: usize,
    rounds: usize,
    /// Pairs of runs; each is Consul and Crossway once.
    pairs: usize,
    against: Against,
}

/// What Crossway is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Against {
    Consul,
    Recorded,
    Nothing,
}

fn set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| v == "1")
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let out = PathBuf::from(std::env::var("BENCH_OUT").unwrap_or("target/bench.json".into()));
    let (quick, alone) = (set("QUICK"), set("BENCH_ALONE"));
    let mut table = Table::new(server::busy_cores(Duration::from_secs(1)));
    let chosen = chosen();
    if chosen.is_none() && !set("BENCH_CLUSTER") || set("BENCH_WRITES") {
        writes::compare(quick, alone, &mut table);
    }
    if chosen.is_none() && !set("BENCH_WRITES") || set("BENCH_CLUSTER") {
        cluster::compare(quick, alone, &mut table);
    }
    let rows = match chosen {
        Some(rows) => rows,
        None if set("BENCH_WRITES") || set("BENCH_CLUSTER") => Vec::new(),
        None => matrix(quick),
    };
    for mut row in rows {
        if alone && row.against == Against::Consul {
            row.against = Against::Nothing;
        }
        compare(&row, &mut table).await;
    }
    table.print();
    table.write(&out);
    println!("\nfigures as JSON: {}", out.display());
}

fn matrix(quick: bool) -> Vec<Row> {
    let row = |services, streams, rounds, pairs, against| Row {
        services,
        streams,
        rounds,
        pairs,
        against,
    };
    use Against::{Consul, Nothing, Recorded};
    if quick {
        return vec![
            row(10, 1, 6, 1, Consul),
            row(10, 10, 5, 1, Consul),
            row(100, 20, 3, 1, Consul),
            row(10, 500, 5, 1, Recorded),
            row(100, 500, 5, 1, Recorded),
            row(100, 5000, 3, 1, Nothing),
        ];
    }
    vec![
        row(10, 1, 10, 4, Consul),
        row(10, 10, 10, 2, Consul),
        row(10, 100, 6, 2, Consul),
        row(10, 500, 5, 1, Consul),
        row(100, 1, 10, 2, Consul),
        row(100, 10, 6, 2, Consul),
        row(100, 100, 5, 1, Consul),
        row(100, 500, 4, 1, Consul),
        row(1000, 500, 5, 1, Nothing),
        row(100, 5000, 5, 1, Nothing),
    ]
}

/// The rows of `BENCH_ROWS`.
fn chosen() -> Option<Vec<Row>> {
    let text = std::env::var("BENCH_ROWS").ok()?;
    let rounds = std::env::var("BENCH_ROUNDS").map_or(5, |n| n.parse().expect("BENCH_ROUNDS"));
    let rows = text.split(',').map(|row| {
        let (services, streams) = row
            .split_once('x')
            .expect("BENCH_ROWS is SERVICESxSTREAMS,...");
        Row {
            services: services.parse().expect("services in BENCH_ROWS"),
            streams: streams.parse().expect("streams in BENCH_ROWS"),
            rounds,
            pairs: 1,
            against: Against::Consul,
        }
    });
    Some(rows.collect())
}

/// Runs one row on both servers and enters the figures.
async fn compare(row: &Row, table: &mut Table) {
    let (mut consul, mut ours) = (Vec::new(), Vec::new());
    for pair in 0..row.pairs {
        let order = if pair % 2 == 0 {
            [Kind::Consul, Kind::Crossway]
        } else {
            [Kind::Crossway, Kind::Consul]
        };
        for kind in order {
            match kind {
                Kind::Crossway => ours.push(run(kind, row).await),
                Kind::Consul if row.against == Against::Consul => {
                    consul.push(run(kind, row).await);
                }
                Kind::Consul => {}
            }
        }
    }
    let recorded = (row.against == Against::Recorded)
        .then(|| recorded::figures(row.services, row.streams))
        .flatten();
    let known = recorded.is_some();
    consul.extend(recorded);
    table.enter(row.services, row.streams, &consul, known, &ours);
}

/// What one run of a row gave.
#[derive(Clone, Default)]
pub struct Measured {
    pub round: Round,
    /// Seconds from the server's start to every gateway in the catalog, and until every stream was in sync then.
    pub restart: (f64, f64),
    /// Memory with all gateways registered and in sync, less that with the same catalog and no gateway, per gateway.
    pub kib_per_gateway: f64,
}

async fn run(kind: Kind, row: &Row) -> Measured {
    let mut server = Server::start(kind);
    server.load(row.services, 10);
    server.restart(0);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = server.usage();
    server.add_gateways(row.streams);
    let registered = server.restart(row.streams);
    let (connecting, start_cpu) = (Instant::now(), server.usage().cpu_seconds);
    let fleet = Fleet::connect(kind, &server, row.streams).await;
    let synced = connecting.elapsed().as_secs_f64();
    let sync_cpu = server.usage().cpu_seconds - start_cpu;
    fleet.settle().await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = server.usage();
    let round = fleet.rounds(&server, row.rounds).await;
    println!(
        "{kind:?} S={} K={}: push p50 {:.2} ms p99 {:.2} ms, CPU {:.3} s/change, {:.0} B/stream, restart {registered:.2} + {synced:.2} s, RSS {} -> {} KiB",
        row.services,
        row.streams,
        round.p50,
        round.p99,
        round.cpu,
        round.bytes_per_stream,
        before.rss_kib,
        after.rss_kib,
    );
    if set("BENCH_TRACE") {
        drop(fleet);
        tokio::time::sleep(Duration::from_secs(15)).await;
        println!(
            "  CPU until all were in sync {sync_cpu:.2} s; RSS after all left {} KiB",
            server.usage().rss_kib
        );
    }
    Measured {
        kib_per_gateway: (after.rss_kib as f64 - before.rss_kib as f64).max(0.0)
            / row.streams as f64,
        restart: (registered, synced),
        round,
    }
}
