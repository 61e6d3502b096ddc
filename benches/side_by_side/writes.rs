//! Start, footprint and writes of one server with the default configuration; everything on disk with fsync.

use crate::ads::percentile;
use crate::server::{Kind, Server, Usage, instance};
use crate::table::{Goal, Line, Table};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROW: &str = "one server";
const WRITERS: usize = 64;
/// How long one server is asked before it is the other's turn.
const SLICE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Default)]
struct Figures {
    first_write: f64,
    idle_mib: f64,
    idle_cpu: f64,
    kv_ms: f64,
    sync_ms: f64,
    registrations: f64,
    registration_cpu: f64,
}

/// Runs both servers and enters the figures.
pub fn compare(quick: bool, alone: bool, table: &mut Table) {
    let kinds = if alone {
        vec![Kind::Crossway]
    } else {
        vec![Kind::Consul, Kind::Crossway]
    };
    let (mut consul, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..if quick { 1 } else { 3 } {
        for (kind, figures) in measure(&kinds, if quick { 4 } else { 10 }) {
            match kind {
                Kind::Consul => consul.push(figures),
                Kind::Crossway => ours.push(figures),
            }
        }
    }
    let mut line = |figure: &str, unit: &str, at: fn(&Figures) -> f64, goal: Option<Goal>| {
        let of = |all: &[Figures]| all.iter().map(at).collect::<Vec<_>>();
        table.add(&Line {
            row: ROW,
            figure,
            unit,
            consul: &of(&consul),
            ours: &of(&ours),
            goal,
            recorded: false,
        });
    };
    let (at_most, more) = (
        |a, b| Some(Goal::AtMost(a, b)),
        |a, b| Some(Goal::More(a, b)),
    );
    line(
        "start to first write, default configuration",
        "s",
        |f| f.first_write,
        at_most(0.3, 0.1),
    );
    line("memory, idle", "MiB", |f| f.idle_mib, at_most(25.0, 12.5));
    line("CPU, idle", "% of a core", |f| f.idle_cpu, None);
    line("one KV writer, p50", "ms", |f| f.kv_ms, None);
    line(
        "one KV writer, p50, over fdatasync p50",
        "times",
        |f| f.kv_ms / f.sync_ms,
        at_most(2.0, 1.5),
    );
    line(
        "catalog registrations, 64 writers",
        "1/s",
        |f| f.registrations,
        more(3.0, 6.0),
    );
    line(
        "CPU per registration",
        "ms",
        |f| f.registration_cpu,
        Some(Goal::Better(4.0, 8.0)),
    );
}

/// Both servers run at the same time and are asked in turn, a second each: so they meet the same disk.
fn measure(kinds: &[Kind], slices: usize) -> Vec<(Kind, Figures)> {
    let mut servers: Vec<_> = kinds
        .iter()
        .map(|kind| (*kind, Server::first_write(*kind)))
        .map(|(kind, (server, first_write))| {
            let figures = Figures {
                first_write,
                ..Figures::default()
            };
            (kind, server, figures)
        })
        .collect();
    std::thread::sleep(Duration::from_secs(8));
    let before: Vec<Usage> = servers.iter().map(|(_, s, _)| s.usage()).collect();
    std::thread::sleep(Duration::from_secs(5));
    for ((_, server, figures), before) in servers.iter_mut().zip(before) {
        let after = server.usage();
        figures.idle_mib = after.rss_kib as f64 / 1024.0;
        figures.idle_cpu = (after.cpu_seconds - before.cpu_seconds) / 5.0 * 100.0;
    }
    let mut sync = Vec::new();
    let mut kv: Vec<_> = servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..slices {
        fdatasync(&mut sync);
        for ((_, server, _), times) in servers.iter().zip(&mut kv) {
            one_writer(server, times);
        }
    }
    let sync = percentile(&mut sync, 0.5);
    for ((_, _, figures), mut times) in servers.iter_mut().zip(kv) {
        figures.sync_ms = sync;
        figures.kv_ms = percentile(&mut times, 0.5);
    }
    let mut next = vec![0; servers.len()];
    for _ in 0..slices {
        for ((_, server, figures), next) in servers.iter_mut().zip(&mut next) {
            let (rate, cpu) = registrations(server, next);
            figures.registrations += rate / slices as f64;
            figures.registration_cpu += cpu / slices as f64;
        }
    }
    for (kind, _, f) in &servers {
        println!(
            "{kind:?}: first write {:.3} s, idle {:.1} MiB {:.2} %, KV {:.3} ms (fdatasync {sync:.3} ms), {:.0} registrations/s of {:.3} ms CPU",
            f.first_write, f.idle_mib, f.idle_cpu, f.kv_ms, f.registrations, f.registration_cpu,
        );
    }
    servers.into_iter().map(|(kind, _, f)| (kind, f)).collect()
}

/// Times of appending 4 KiB and fdatasync, in milliseconds.
fn fdatasync(times: &mut Vec<f64>) {
    let file = tempfile::tempfile_in(crate::server::base()).unwrap();
    let (page, end) = ([1; 4096], Instant::now() + SLICE / 2);
    for at in 0.. {
        let start = Instant::now();
        if start > end {
            return;
        }
        file.write_all_at(&page, at * 4096).unwrap();
        file.sync_data().unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
}

/// Times of one write after the other, in milliseconds.
fn one_writer(server: &Server, times: &mut Vec<f64>) {
    let mut http = server.client();
    let (body, end) = ("v".repeat(128), Instant::now() + SLICE);
    while Instant::now() < end {
        let path = format!("/v1/kv/bench/{}", times.len() % 1000);
        let start = Instant::now();
        let (status, _) = http.send("PUT", &path, &body).unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e3);
        assert_eq!(status, 200);
    }
}

/// Registrations per second (node, service and check over 100 nodes) and server CPU milliseconds for each.
fn registrations(server: &Server, from: &mut usize) -> (f64, f64) {
    let next = AtomicUsize::new(*from);
    let (start, before) = (Instant::now(), server.usage());
    let end = start + SLICE;
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut http = server.client();
                while Instant::now() < end {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let body = instance(at / 10, at % 10, at % 100, "10.9.9.9");
                    let (status, text) = http.send("PUT", "/v1/catalog/register", &body).unwrap();
                    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
                }
            });
        }
    });
    let count = (next.into_inner() - *from) as f64;
    *from += count as usize;
    let cpu = server.usage().cpu_seconds - before.cpu_seconds;
    (count / start.elapsed().as_secs_f64(), cpu / count * 1e3)
}
