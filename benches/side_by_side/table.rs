//! The figures as a table and as JSON.

use crate::Measured;
use crate::ads::percentile;
use serde_json::{Value, json};
use std::path::Path;

/// What a row must reach.
#[derive(Default)]
pub struct Gate {
    /// Consul's p99 divided by ours, at least.
    p99_ratio: Option<f64>,
    /// Our p50 in milliseconds, at most.
    p50_ms: Option<f64>,
    /// Our CPU seconds per change, at most.
    cpu: Option<f64>,
    /// Our memory per gateway in KiB, at most.
    kib: Option<f64>,
    /// Consul's bytes per stream divided by ours, at least.
    bytes_ratio: Option<f64>,
    /// Seconds from start to all in sync, at most.
    restart: Option<f64>,
}

impl Gate {
    pub fn of(services: usize, streams: usize) -> Self {
        match (services, streams) {
            (10, 1) => Self {
                p50_ms: Some(10.0),
                ..Self::default()
            },
            (10, 500) => Self {
                p99_ratio: Some(40.0),
                ..Self::default()
            },
            (100, 500) => Self {
                p99_ratio: Some(100.0),
                cpu: Some(0.2),
                kib: Some(220.0),
                bytes_ratio: Some(50.0),
                restart: Some(5.0),
                ..Self::default()
            },
            (100, _) => Self {
                bytes_ratio: Some(50.0),
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}

#[derive(Default)]
pub struct Table {
    lines: Vec<[String; 6]>,
    json: Vec<Value>,
}

fn median(of: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    percentile(&mut of.iter().map(value).collect::<Vec<_>>(), 0.5)
}

impl Table {
    pub fn enter(&mut self, name: &str, gate: &Gate, consul: &[Measured], ours: &[Measured]) {
        let mut line = |figure: &str,
                        unit: &str,
                        at: fn(&Measured) -> f64,
                        verdict: &dyn Fn(f64, f64) -> Option<bool>| {
            let (a, b) = (median(consul, at), median(ours, at));
            let ok = verdict(a, b);
            self.lines.push([
                name.to_owned(),
                format!("{figure} ({unit})"),
                format!("{a:.3}"),
                format!("{b:.3}"),
                format!("{:.1}x", a / b.max(1e-6)),
                ok.map_or("", |ok| if ok { "reached" } else { "MISSED" })
                    .to_owned(),
            ]);
            self.json.push(json!({"row": name, "figure": figure, "unit": unit, "consul": a, "crossway": b, "gate_reached": ok}));
        };
        let ratio = |min: Option<f64>| move |a: f64, b: f64| min.map(|min| a / b.max(1e-6) >= min);
        let most = |max: Option<f64>| move |_: f64, b: f64| max.map(|max| b <= max);
        line("push p50", "ms", |m| m.round.p50, &most(gate.p50_ms));
        line("push p99", "ms", |m| m.round.p99, &ratio(gate.p99_ratio));
        line(
            "server CPU per change",
            "s",
            |m| m.round.cpu,
            &most(gate.cpu),
        );
        line(
            "bytes per stream per change",
            "B",
            |m| m.round.bytes_per_stream,
            &ratio(gate.bytes_ratio),
        );
        line(
            "memory per gateway",
            "KiB",
            |m| m.rss_per_stream_kib,
            &most(gate.kib),
        );
        line(
            "restart to all in sync",
            "s",
            |m| m.restart,
            &most(gate.restart),
        );
    }

    pub fn enter_alone(&mut self, streams: usize, ours: &Measured) {
        let name = format!("S=100 K={streams}, alone");
        let gates = [
            (
                "all streams in sync after a restart",
                "s",
                ours.restart,
                Some(ours.restart <= 10.0),
            ),
            (
                "push p99",
                "ms",
                ours.round.p99,
                Some(ours.round.p99 <= 1000.0),
            ),
            ("server CPU per change", "s", ours.round.cpu, None),
            ("memory per gateway", "KiB", ours.rss_per_stream_kib, None),
        ];
        for (figure, unit, value, ok) in gates {
            self.lines.push([
                name.clone(),
                format!("{figure} ({unit})"),
                String::new(),
                format!("{value:.3}"),
                String::new(),
                ok.map_or("", |ok| if ok { "reached" } else { "MISSED" })
                    .to_owned(),
            ]);
            self.json.push(json!({"row": name, "figure": figure, "unit": unit, "crossway": value, "gate_reached": ok}));
        }
    }

    pub fn print(&self) {
        let head =
            ["row", "figure", "Consul 1.8.7", "Crossway", "ratio", "gate"].map(str::to_owned);
        let width = |at: usize| {
            let cells = self
                .lines
                .iter()
                .chain([&head])
                .map(|l| l[at].chars().count());
            cells.max().unwrap_or(0)
        };
        for line in [&head].into_iter().chain(&self.lines) {
            let cells: Vec<String> = (0..6)
                .map(|at| format!("{:<w$}", line[at], w = width(at)))
                .collect();
            println!("{}", cells.join("  ").trim_end());
        }
    }

    pub fn write(&self, path: &Path) {
        let text = serde_json::to_string_pretty(&self.json).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
}
