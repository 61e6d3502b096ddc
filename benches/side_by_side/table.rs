//! The figures as a table and as JSON.

use crate::Measured;
use crate::ads::percentile;
use serde_json::{Value, json};
use std::path::Path;

/// What a figure must reach, and what it is to reach one day.
#[derive(Clone, Copy)]
pub enum Goal {
    /// Ours, at most.
    AtMost(f64, f64),
    /// Consul's divided by ours, at least.
    Better(f64, f64),
    /// Ours divided by Consul's, at least.
    More(f64, f64),
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::AtMost(gate, stretch) => format!("<= {gate} (stretch {stretch})"),
            Self::Better(gate, stretch) => format!("1/{gate} (stretch 1/{stretch})"),
            Self::More(gate, stretch) => format!("{gate}x (stretch {stretch}x)"),
        }
    }

    /// Whether the gate and the stretch are reached; `None` without what to compare with.
    fn verdict(self, consul: f64, ours: f64) -> Option<(bool, bool)> {
        let (value, gate, stretch) = match self {
            Self::AtMost(gate, stretch) => (-ours, -gate, -stretch),
            Self::Better(gate, stretch) => (consul / ours.max(1e-6), gate, stretch),
            Self::More(gate, stretch) => (ours / consul.max(1e-6), gate, stretch),
        };
        (!value.is_nan()).then_some((value >= gate, value >= stretch))
    }
}

/// One figure of one row; `consul` is empty where there is nothing to compare with.
pub struct Line<'a> {
    pub row: &'a str,
    pub figure: &'a str,
    pub unit: &'a str,
    pub consul: &'a [f64],
    pub ours: &'a [f64],
    pub goal: Option<Goal>,
    /// The figure of Consul is from an earlier run.
    pub recorded: bool,
}

#[derive(Default)]
pub struct Table {
    lines: Vec<[String; 7]>,
    json: Vec<Value>,
    /// Cores that other programs kept busy when the benchmark began.
    others: f64,
}

fn median(of: &[f64]) -> f64 {
    percentile(&mut of.to_vec(), 0.5)
}

/// About three significant digits; nothing for "not measured".
fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => String::new(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn number(value: f64) -> Value {
    if value.is_nan() {
        Value::Null
    } else {
        json!((value * 1e4).round() / 1e4)
    }
}

impl Table {
    /// An empty table of a machine on which other programs keep so many cores busy.
    pub fn new(others: f64) -> Self {
        Self {
            others,
            ..Self::default()
        }
    }

    /// Enters the figures of one configuration.
    pub fn enter(
        &mut self,
        services: usize,
        streams: usize,
        consul: &[Measured],
        recorded: bool,
        ours: &[Measured],
    ) {
        let row = format!("S={services} K={streams}");
        let mut line = |figure: &str, unit: &str, at: fn(&Measured) -> f64, goal: Option<Goal>| {
            let of = |all: &[Measured]| all.iter().map(at).collect::<Vec<_>>();
            self.add(&Line {
                row: &row,
                figure,
                unit,
                consul: &of(consul),
                ours: &of(ours),
                goal,
                recorded,
            });
        };
        let headline = (services, streams) == (100, 500);
        let p50 = ((services, streams) == (10, 1)).then_some(Goal::AtMost(10.0, 4.0));
        let p99 = match (services, streams) {
            (100, 500) => Some(Goal::AtMost(150.0, 30.0)),
            (10, 500) => Some(Goal::Better(40.0, 100.0)),
            (_, 5000) => Some(Goal::AtMost(1000.0, 300.0)),
            _ => None,
        };
        let synced = (streams == 5000).then_some(Goal::AtMost(10.0, 3.0));
        let bytes = (services >= 100).then_some(Goal::AtMost(1130.0, 510.0));
        line("push p50", "ms", |m| m.round.p50, p50);
        line("push p99", "ms", |m| m.round.p99, p99);
        let cpu = headline.then_some(Goal::AtMost(0.2, 0.028));
        line("server CPU per change", "s", |m| m.round.cpu, cpu);
        line(
            "bytes per stream per change",
            "B",
            |m| m.round.bytes_per_stream,
            bytes,
        );
        let kib = (streams >= 500).then_some(Goal::AtMost(220.0, 100.0));
        line("memory per gateway", "KiB", |m| m.kib_per_gateway, kib);
        line("connect to all in sync", "s", |m| m.restart.1, synced);
        let restart = headline.then_some(Goal::AtMost(5.0, 1.5));
        line(
            "restart to all in sync",
            "s",
            |m| m.restart.0 + m.restart.1,
            restart,
        );
    }

    /// Enters one figure.
    pub fn add(&mut self, line: &Line<'_>) {
        let (consul, ours) = (median(line.consul), median(line.ours));
        let higher = matches!(line.goal, Some(Goal::More(..)));
        let pairs = line.consul.iter().zip(line.ours).filter_map(|(a, b)| {
            let (of, by) = if higher { (b, a) } else { (a, b) };
            (*by > 0.0).then_some(of / by)
        });
        let mut ratios: Vec<f64> = pairs.collect();
        let ratio = percentile(&mut ratios, 0.5);
        let spread = match &ratios[..] {
            [min, .., max] => format!(" ({}-{})", short(*min), short(*max)),
            _ => String::new(),
        };
        let verdict = line.goal.and_then(|goal| goal.verdict(consul, ours));
        self.lines.push([
            line.row.to_owned(),
            format!("{} ({})", line.figure, line.unit),
            short(consul)
                + if line.recorded && !consul.is_nan() {
                    " recorded"
                } else {
                    ""
                },
            short(ours),
            if ratio.is_nan() {
                String::new()
            } else {
                format!("{}x{spread}", short(ratio))
            },
            line.goal.map(Goal::text).unwrap_or_default(),
            match verdict {
                Some((_, true)) => "stretch reached",
                Some((true, false)) => "reached",
                Some((false, false)) => "MISSED",
                None => "",
            }
            .to_owned(),
        ]);
        self.json.push(json!({
            "row": line.row, "figure": line.figure, "unit": line.unit,
            "consul": number(consul), "consul_recorded": line.recorded, "crossway": number(ours),
            "ratio": number(ratio), "goal": line.goal.map(Goal::text),
            "gate_reached": verdict.map(|v| v.0), "stretch_reached": verdict.map(|v| v.1),
        }));
    }

    /// Prints all lines, and how many gates are missed.
    pub fn print(&self) {
        let head = [
            "row",
            "figure",
            "Consul 1.8.7",
            "Crossway",
            "better by",
            "gate",
            "",
        ]
        .map(str::to_owned);
        let width = |at: usize| {
            let cells = self
                .lines
                .iter()
                .chain([&head])
                .map(|l| l[at].chars().count());
            cells.max().unwrap_or(0)
        };
        println!();
        let mut row = "";
        for line in [&head].into_iter().chain(&self.lines) {
            let cells: Vec<String> = (0..7)
                .map(|at| {
                    let text = if at == 0 && line[0] == row {
                        ""
                    } else {
                        &line[at]
                    };
                    let right = (2..5).contains(&at);
                    let pad = " ".repeat(width(at) - text.chars().count());
                    if right {
                        pad + text
                    } else {
                        text.to_owned() + &pad
                    }
                })
                .collect();
            row = &line[0];
            println!("{}", cells.join("  ").trim_end());
        }
        let missed = self.lines.iter().filter(|l| l[6] == "MISSED").count();
        let gates = self.lines.iter().filter(|l| !l[6].is_empty()).count();
        println!("\n{} of {gates} gates reached", gates - missed);
        if self.others > 0.5 {
            println!(
                "Other programs kept {:.1} cores busy: compare CPU, memory and bytes, not times.",
                self.others
            );
        }
    }

    /// Writes all figures with the machine that they are from.
    pub fn write(&self, path: &Path) {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let cpu = info
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
            .map_or("", |(_, name)| name);
        let all = json!({
            "machine": {
                "cpu": cpu,
                "cores": std::thread::available_parallelism().map_or(0, usize::from),
                "kernel": read("/proc/sys/kernel/osrelease").trim(),
                "cores_busy_before": number(self.others),
            },
            "figures": self.json,
        });
        let text = serde_json::to_string_pretty(&all).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
}
