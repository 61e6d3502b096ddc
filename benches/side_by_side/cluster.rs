//! Three servers of each product side by side: writes, reads at a follower, and the gap after a leader's death.
//!
//! Both clusters run on one machine and one disk at the same time and are asked in turn, a slice each, so that they meet
//! the same conditions. A leader is ended with SIGKILL; the clock runs until one of the others accepts a write.

use crate::ads::percentile;
use crate::http::Http;
use crate::server::{Kind, Usage, base, binary, free_port, instance};
use crate::table::{Goal, Line, Table};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const ROW: &str = "three servers";
const SLICE: Duration = Duration::from_secs(1);
const READERS: usize = 16;
const INSTANCES: usize = 100;
/// How long a cluster may take for anything before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(120);

/// One server of a cluster.
struct Member {
    child: Option<Child>,
    http: String,
    /// `host:port` of its RPC port, as `/v1/status/leader` names the leader.
    rpc: String,
}

struct Cluster {
    kind: Kind,
    dir: tempfile::TempDir,
    members: Vec<Member>,
}

impl Cluster {
    /// Three servers on free ports of loopback that find each other by `retry_join`; waits for their leader.
    fn start(kind: Kind, raft_multiplier: u32) -> Self {
        let prefix = format!("bench-{kind:?}-");
        let dir = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(base())
            .unwrap();
        let ports: Vec<[u16; 5]> = (0..3).map(|_| [(); 5].map(|()| free_port())).collect();
        let join: Vec<_> = ports
            .iter()
            .map(|p| format!("127.0.0.1:{}", p[3]))
            .collect();
        let members = ports.iter().enumerate().map(|(at, ports)| {
            let config = serde_json::json!({
                "node_name": format!("s{at}"), "datacenter": "dc1", "bind_addr": "127.0.0.1",
                "client_addr": "127.0.0.1", "server": true, "bootstrap_expect": 3, "log_level": "WARN",
                "data_dir": dir.path().join(format!("data{at}")), "disable_update_check": true,
                "retry_join": join, "retry_interval": "1s",
                "ports": {"http": ports[0], "grpc": ports[1], "dns": -1, "server": ports[2],
                          "serf_lan": ports[3], "serf_wan": ports[4]},
                "connect": {"enabled": true},
                "limits": {"http_max_conns_per_client": 12000, "rpc_max_conns_per_client": 12000},
                "performance": {"raft_multiplier": raft_multiplier},
            });
            std::fs::write(config_file(dir.path(), at), config.to_string()).unwrap();
            Member {
                child: None,
                http: format!("127.0.0.1:{}", ports[0]),
                rpc: format!("127.0.0.1:{}", ports[2]),
            }
        });
        let members = members.collect();
        let mut cluster = Self { kind, dir, members };
        (0..3).for_each(|at| cluster.spawn(at));
        cluster.ready();
        cluster
    }

    fn spawn(&mut self, at: usize) {
        let log = std::fs::File::create(self.dir.path().join(format!("log{at}"))).unwrap();
        let child = Command::new(binary(self.kind))
            .args(["agent", "-config-file"])
            .arg(config_file(self.dir.path(), at))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", binary(self.kind).display()));
        self.members[at].child = Some(child);
    }

    /// Waits until all three see the same leader and three healthy servers.
    fn ready(&self) {
        for member in &self.members {
            self.until("three healthy servers", || {
                let mut http = Http::connect(&member.http).ok()?;
                let (_, leader) = http.send("GET", "/v1/status/leader", "").ok()?;
                let path = "/v1/health/service/consul?passing";
                let (_, servers) = http.send("GET", path, "").ok()?;
                let servers = String::from_utf8_lossy(&servers).into_owned();
                (leader.len() > 3 && servers.matches("\"serfHealth\"").count() == 3).then_some(())
            });
        }
    }

    fn until<T>(&self, what: &str, mut done: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = done() {
                return value;
            }
            if start.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(self.dir.path().join("log0")).unwrap_or_default();
                panic!("{:?} gave no {what}:\n{log}", self.kind);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Which of the three leads.
    fn leader(&self) -> usize {
        self.until("leader", || {
            self.members.iter().find_map(|member| {
                let mut http = Http::connect(&member.http).ok()?;
                let (_, text) = http.send("GET", "/v1/status/leader", "").ok()?;
                let text = String::from_utf8_lossy(&text).into_owned();
                self.members
                    .iter()
                    .position(|m| m.child.is_some() && text.contains(&m.rpc))
            })
        })
    }

    /// Ends the leader and gives the seconds until another server accepts a write; then the dead one comes back.
    fn lose_leader(&mut self) -> f64 {
        let leader = self.leader();
        let mut child = self.members[leader].child.take().unwrap();
        let start = Instant::now();
        child.kill().unwrap();
        let others: Vec<_> = (0..3).filter(|at| *at != leader).collect();
        let mut turn = 0;
        self.until("write after the leader's death", || {
            turn += 1;
            let mut http = Http::connect(&self.members[others[turn % 2]].http).ok()?;
            let (status, _) = http.send("PUT", "/v1/kv/after", "v").ok()?;
            (status == 200).then_some(())
        });
        let seconds = start.elapsed().as_secs_f64();
        child.wait().unwrap();
        self.spawn(leader);
        self.ready();
        seconds
    }

    fn usage(&self) -> Vec<Usage> {
        let pids = self.members.iter().filter_map(|m| m.child.as_ref());
        pids.map(|child| Usage::of(&child.id().to_string()))
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn config_file(dir: &Path, at: usize) -> std::path::PathBuf {
    dir.join(format!("server{at}.json"))
}

#[derive(Clone, Default)]
struct Figures {
    idle_mib: f64,
    registrations: Vec<f64>,
    puts_64: Vec<f64>,
    puts_256: Vec<f64>,
    follower_reads: Vec<f64>,
    /// Leader's death to the next write at `raft_multiplier` 1 and 5.
    failover: [Vec<f64>; 2],
}

/// Runs both clusters and enters the figures.
pub fn compare(quick: bool, alone: bool, table: &mut Table) {
    let kinds = if alone {
        vec![Kind::Crossway]
    } else {
        vec![Kind::Consul, Kind::Crossway]
    };
    let mut all = vec![Figures::default(); kinds.len()];
    load(&kinds, &mut all, if quick { 3 } else { 8 });
    for (at, multiplier, rounds) in [
        (0, 1, if quick { 3 } else { 8 }),
        (1, 5, if quick { 1 } else { 3 }),
    ] {
        let mut clusters: Vec<_> = kinds
            .iter()
            .map(|k| Cluster::start(*k, multiplier))
            .collect();
        for _ in 0..rounds {
            for (cluster, figures) in clusters.iter_mut().zip(&mut all) {
                figures.failover[at].push(cluster.lose_leader());
            }
        }
    }
    for (kind, figures) in kinds.iter().zip(&all) {
        println!(
            "{kind:?} x 3: idle {:.1} MiB, {:.0} registrations/s, {:.0} and {:.0} puts/s, {:.0} reads/s at a follower, leader's death {:.2?} s and {:.2?} s",
            figures.idle_mib,
            median(&figures.registrations),
            median(&figures.puts_64),
            median(&figures.puts_256),
            median(&figures.follower_reads),
            figures.failover[0],
            figures.failover[1],
        );
    }
    let (consul, ours) = match all.as_slice() {
        [consul, ours] => (Some(consul), ours),
        [ours] => (None, ours),
        _ => return,
    };
    enter(consul, ours, table);
}

fn enter(consul: Option<&Figures>, ours: &Figures, table: &mut Table) {
    let mut line = |figure: &str, unit: &str, at: fn(&Figures) -> Vec<f64>, goal: Goal| {
        table.add(&Line {
            row: ROW,
            figure,
            unit,
            consul: &consul.map(at).unwrap_or_default(),
            ours: &at(ours),
            goal: Some(goal),
            recorded: false,
        });
    };
    line(
        "memory per idle server",
        "MiB",
        |f| vec![f.idle_mib],
        Goal::Better(2.0, 4.0),
    );
    line(
        "catalog registrations, 64 writers",
        "1/s",
        |f| f.registrations.clone(),
        Goal::More(3.0, 6.0),
    );
    line(
        "KV puts, 64 writers",
        "1/s",
        |f| f.puts_64.clone(),
        Goal::More(2.0, 4.0),
    );
    line(
        "KV puts, 256 writers",
        "1/s",
        |f| f.puts_256.clone(),
        Goal::More(2.0, 4.0),
    );
    line(
        "default reads at a follower, 100 instances, 16 connections",
        "1/s",
        |f| f.follower_reads.clone(),
        Goal::More(5.0, 10.0),
    );
    line(
        "leader's death to the next write, raft_multiplier 1",
        "s",
        |f| f.failover[0].clone(),
        Goal::Better(2.0, 3.0),
    );
    line(
        "leader's death to the next write, raft_multiplier 5",
        "s",
        |f| f.failover[1].clone(),
        Goal::Better(2.0, 3.0),
    );
}

fn median(of: &[f64]) -> f64 {
    percentile(&mut of.to_vec(), 0.5)
}

/// Memory, then writes to the leader and reads at a follower, a slice of time for each cluster in turn.
fn load(kinds: &[Kind], all: &mut [Figures], slices: usize) {
    let clusters: Vec<_> = kinds.iter().map(|k| Cluster::start(*k, 1)).collect();
    std::thread::sleep(Duration::from_secs(8));
    for (cluster, figures) in clusters.iter().zip(all.iter_mut()) {
        let usage = cluster.usage();
        let kib: u64 = usage.iter().map(|u| u.rss_kib).sum();
        figures.idle_mib = kib as f64 / 1024.0 / usage.len() as f64;
    }
    let mut next = vec![0; clusters.len()];
    let mut each = |run: &mut dyn FnMut(&Cluster, &mut Figures, &mut usize)| {
        for _ in 0..slices {
            for ((cluster, figures), next) in clusters.iter().zip(all.iter_mut()).zip(&mut next) {
                run(cluster, figures, next);
            }
        }
    };
    each(&mut |cluster, figures, next| {
        let http = &cluster.members[cluster.leader()].http;
        let rate = hammer(http, 64, next, |http, at| {
            let body = instance(at / 10, at % 10, at % 100, "10.9.9.9");
            http.send("PUT", "/v1/catalog/register", &body)
        });
        figures.registrations.push(rate);
    });
    for writers in [64, 256] {
        each(&mut |cluster, figures, next| {
            let http = &cluster.members[cluster.leader()].http;
            let value = "v".repeat(128);
            let rate = hammer(http, writers, next, |http, at| {
                http.send("PUT", &format!("/v1/kv/bench/{}", at % 100_000), &value)
            });
            if writers == 64 {
                figures.puts_64.push(rate);
            } else {
                figures.puts_256.push(rate);
            }
        });
    }
    for cluster in &clusters {
        let mut http = Http::connect(&cluster.members[cluster.leader()].http).unwrap();
        for at in 0..INSTANCES {
            let body = instance(999_999, at, at, &format!("10.8.0.{at}"));
            let (status, _) = http.send("PUT", "/v1/catalog/register", &body).unwrap();
            assert_eq!(status, 200);
        }
    }
    each(&mut |cluster, figures, next| {
        let follower = (cluster.leader() + 1) % 3;
        let http = &cluster.members[follower].http;
        let path = "/v1/health/service/svc-999999?passing";
        let rate = hammer(http, READERS, next, |http, _| http.send("GET", path, ""));
        figures.follower_reads.push(rate);
    });
}

/// Requests per second of so many clients, each one after the other over its own connection, for a slice of time.
fn hammer(
    address: &str,
    clients: usize,
    from: &mut usize,
    request: impl Fn(&mut Http, usize) -> std::io::Result<(u16, Vec<u8>)> + Sync,
) -> f64 {
    let next = AtomicUsize::new(*from);
    let mut connections: Vec<_> = (0..clients)
        .map(|_| Http::connect(address).unwrap())
        .collect();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for http in &mut connections {
            scope.spawn(|| {
                while start.elapsed() < SLICE {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let (status, text) = request(http, at).unwrap();
                    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
                }
            });
        }
    });
    let done = next.into_inner() - *from;
    *from += done;
    done as f64 / start.elapsed().as_secs_f64()
}
