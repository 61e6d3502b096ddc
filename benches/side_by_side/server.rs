//! Starts and loads the two servers alike.

use crate::http::Http;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Consul,
    Crossway,
}

pub struct Server {
    kind: Kind,
    dir: tempfile::TempDir,
    child: Option<Child>,
    pub http: String,
    pub grpc: String,
}

#[derive(Clone, Copy, Default)]
pub struct Usage {
    pub cpu_seconds: f64,
    pub rss_kib: u64,
}

impl Usage {
    /// What the process `/proc/PID` has used.
    pub fn of(pid: &str) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let ticks = |at: usize| {
            fields
                .get(at)
                .and_then(|f| f.parse::<f64>().ok())
                .unwrap_or(0.0)
        };
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rss = status
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:"))
            .and_then(|l| l.split_whitespace().next()?.parse().ok());
        Self {
            cpu_seconds: (ticks(11) + ticks(12)) / 100.0,
            rss_kib: rss.unwrap_or(0),
        }
    }
}

/// How many cores of the machine are busy over a while.
pub fn busy_cores(over: Duration) -> f64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let columns: Vec<f64> = line.split(' ').filter_map(|n| n.parse().ok()).collect();
        // user, nice and system
        columns.iter().take(3).sum::<f64>()
    };
    let before = ticks();
    std::thread::sleep(over);
    (ticks() - before) / 100.0 / over.as_secs_f64()
}

pub fn binary(kind: Kind) -> PathBuf {
    match kind {
        Kind::Consul => std::env::var("CROSSWAY_PEERS")
            .map_or_else(|_| PathBuf::from("target/peers"), PathBuf::from)
            .join("consul"),
        Kind::Crossway => PathBuf::from(env!("CARGO_BIN_EXE_crossway")),
    }
}

/// Where the servers keep their data.
pub fn base() -> PathBuf {
    let base = std::env::var("BENCH_DIR").map_or_else(|_| PathBuf::from("target"), PathBuf::from);
    std::fs::create_dir_all(&base).unwrap();
    base
}

impl Server {
    /// An empty server on free ports of loopback, with its log and data on disk and short Raft timeouts.
    pub fn start(kind: Kind) -> Self {
        let mut server = Self::prepare(kind, serde_json::json!({"raft_multiplier": 1}));
        server.spawn();
        server.until("a leader", |http| {
            let (_, leader) = http.send("GET", "/v1/status/leader", "").ok()?;
            let (_, own) = http
                .send("GET", "/v1/health/service/consul?passing", "")
                .ok()?;
            (leader.len() > 3 && own.len() > 10).then_some(())
        });
        server
    }

    /// An empty server with default timeouts, and the seconds from its start to the first accepted write.
    pub fn first_write(kind: Kind) -> (Self, f64) {
        let mut server = Self::prepare(kind, serde_json::json!({}));
        let start = Instant::now();
        server.spawn();
        server.until("first write", |http| {
            let (status, _) = http.send("PUT", "/v1/kv/first", "v").ok()?;
            (status == 200).then_some(())
        });
        let seconds = start.elapsed().as_secs_f64();
        (server, seconds)
    }

    fn prepare(kind: Kind, performance: serde_json::Value) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("bench-")
            .tempdir_in(base())
            .unwrap();
        let ports: Vec<u16> = (0..5).map(|_| free_port()).collect();
        let mut config = serde_json::json!({
            "node_name": "s1", "datacenter": "dc1", "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
            "server": true, "bootstrap": true, "data_dir": dir.path().join("data"), "log_level": "WARN",
            "disable_update_check": true,
            "ports": {"http": ports[0], "grpc": ports[1], "dns": -1, "server": ports[2],
                      "serf_lan": ports[3], "serf_wan": ports[4]},
            "connect": {"enabled": true},
            "limits": {"http_max_conns_per_client": 12000, "rpc_max_conns_per_client": 12000},
            "performance": performance,
        });
        if kind == Kind::Crossway {
            config["limits"]["grpc_max_conns_per_client"] = 12000.into(); // Consul does not know it.
        }
        std::fs::write(dir.path().join("server.json"), config.to_string()).unwrap();
        Self {
            kind,
            http: format!("127.0.0.1:{}", ports[0]),
            grpc: format!("127.0.0.1:{}", ports[1]),
            dir,
            child: None,
        }
    }

    fn spawn(&mut self) {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = Command::new(binary(self.kind));
        command.arg("agent").args([
            "-config-file".as_ref(),
            self.dir.path().join("server.json").as_os_str(),
        ]);
        let gateways = self.dir.path().join("gateways.json");
        if gateways.exists() {
            command.args(["-config-file".as_ref(), gateways.as_os_str()]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", binary(self.kind).display()));
        self.child = Some(child);
    }

    fn until<T>(&self, what: &str, mut done: impl FnMut(&mut Http) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Ok(mut http) = Http::connect(&self.http)
                && let Some(value) = done(&mut http)
            {
                return value;
            }
            if start.elapsed() > Duration::from_secs(600) {
                let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
                panic!("{:?} gave no {what}:\n{log}", self.kind);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn client(&self) -> Http {
        Http::connect(&self.http).unwrap()
    }

    /// `services` Connect-native services with `instances` each, over 100 nodes, by 8 writers.
    pub fn load(&self, services: usize, instances: usize) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut http = self.client();
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= services * instances {
                            return;
                        }
                        let (s, i) = (at / instances, at % instances);
                        let body = instance(
                            s,
                            i,
                            at % 100,
                            &format!("10.{}.{}.{}", 10 + s / 250, s % 250, i),
                        );
                        let (status, text) =
                            http.send("PUT", "/v1/catalog/register", &body).unwrap();
                        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&text));
                    }
                });
            }
        });
    }

    /// Puts `count` mesh gateways into the configuration; they are registered by [`Server::restart`].
    pub fn add_gateways(&self, count: usize) {
        let gateways: Vec<_> = (0..count)
            .map(|i| {
                serde_json::json!({"kind": "mesh-gateway", "name": "mesh-gateway", "id": format!("gw-{i}"),
                    "address": "127.0.0.1", "port": 20000 + i})
            })
            .collect();
        let text = serde_json::json!({ "services": gateways }).to_string();
        std::fs::write(self.dir.path().join("gateways.json"), text).unwrap();
    }

    /// Ends the server with SIGKILL and starts it again; seconds until it serves with `gateways` in the catalog.
    pub fn restart(&mut self, gateways: usize) -> f64 {
        self.stop();
        let start = Instant::now();
        self.spawn();
        self.wait_for_gateways(gateways);
        start.elapsed().as_secs_f64()
    }

    fn wait_for_gateways(&self, count: usize) {
        if count == 0 {
            return self.until("a leader", |http| {
                let (_, leader) = http.send("GET", "/v1/status/leader", "").ok()?;
                (leader.len() > 3).then_some(())
            });
        }
        self.until("gateways", |http| {
            // The answer is large: asking all the time would be what is measured.
            std::thread::sleep(Duration::from_millis(count as u64 / 25));
            let (_, body) = http
                .send("GET", "/v1/catalog/service/mesh-gateway", "")
                .ok()?;
            let text = String::from_utf8_lossy(&body).into_owned();
            (text.matches("\"ServiceID\":\"gw-").count() >= count).then_some(())
        });
    }

    pub fn usage(&self) -> Usage {
        let pid = self.child.as_ref().map_or(0, Child::id);
        Usage::of(&pid.to_string())
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The body that registers one instance at `address`.
pub fn instance(service: usize, instance: usize, node: usize, address: &str) -> String {
    let id = format!("svc-{service}-{instance}");
    serde_json::json!({
        "Node": format!("n-{node}"), "Address": format!("10.0.0.{}", node + 1),
        "Service": {"ID": id, "Service": format!("svc-{service}"), "Address": address, "Port": 9000,
                    "Tags": ["v1", "bench"], "Meta": {"version": "1"}, "Connect": {"Native": true}},
        "Check": {"CheckID": format!("svc:{id}"), "Name": "c", "Status": "passing", "ServiceID": id},
    })
    .to_string()
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}
