//! Several real servers of one datacenter, each a process on an address of its own.

use super::certs::Authority;
use super::http;
use super::server::PATIENCE;
use super::server::Server;
use super::server::eventually;
use rustix::process::Signal;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

/// A gossip key that every server of a secure cluster has.
pub(crate) const GOSSIP_KEY: &str = "QUJDREVGR0hJSktMTU5PUA==";

/// What a process does just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Up,
    Down,
    Paused,
}

/// A datacenter `dc1` with servers `s1`, `s2` ...
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    lives: Vec<Life>,
    extra: Value,
    pki: Option<Pki>,
}

struct Pki {
    authority: Authority,
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts so many servers that expect each other, and waits until they have formed the datacenter. `extra` is merged
    /// into the configuration of each.
    pub(crate) fn start(count: usize, extra: &Value) -> Self {
        Self::launch(count, extra, None)
    }

    /// The same with mutual TLS between the servers and encrypted gossip.
    pub(crate) fn start_secure(count: usize, extra: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new(dir.path(), "ca");
        Self::launch(count, extra, Some(Pki { authority, dir }))
    }

    fn launch(count: usize, extra: &Value, pki: Option<Pki>) -> Self {
        let mut cluster = Self {
            servers: Vec::new(),
            lives: Vec::new(),
            extra: extra.clone(),
            pki,
        };
        for _ in 0..count {
            cluster.prepare();
        }
        let everybody = cluster.addresses();
        for server in &mut cluster.servers {
            server.set("retry_join", json!(everybody));
            server.set("bootstrap_expect", json!(count));
            server.spawn();
        }
        cluster.lives = vec![Life::Up; count];
        cluster.wait_until_ready();
        cluster
    }

    /// A server that is configured and not yet running: its index.
    fn prepare(&mut self) -> usize {
        let number = self.servers.len() + 1;
        let name = format!("s{number}");
        let mut config = json!({
            "node_name": name, "bootstrap": false, "retry_interval": "500ms",
            "connect": {"enabled": true},
            "ca_file": null, "cert_file": null, "key_file": null,
            "gossip_lan": {"probe_interval": "500ms", "probe_timeout": "250ms", "gossip_interval": "50ms"},
            "performance": {"raft_multiplier": 1, "leave_drain_time": "500ms"},
            "autopilot": {"server_stabilization_time": "500ms"},
        });
        if let Some(pki) = &self.pki {
            let pair = pki.authority.server(&name, "dc1");
            let secure = json!({
                "ca_file": pki.authority.file(), "cert_file": pair.cert, "key_file": pair.key,
                "verify_incoming_rpc": true, "verify_outgoing": true, "verify_server_hostname": true,
                "encrypt": GOSSIP_KEY,
            });
            merge(&mut config, &secure);
        }
        merge(&mut config, &self.extra);
        self.servers.push(Server::prepare(&config));
        self.lives.push(Life::Down);
        number - 1
    }

    /// Starts one more server, which joins through the others: its index.
    pub(crate) fn add(&mut self) -> usize {
        let others = self.addresses();
        let index = self.prepare();
        self.servers[index].set("retry_join", json!(others));
        self.servers[index].spawn();
        self.lives[index] = Life::Up;
        index
    }

    /// Where the gossip of each server is.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|s| s.address.to_string()).collect()
    }

    /// The folder with the certificates and the authority, of a secure cluster.
    pub(crate) fn authority(&self) -> (&Authority, &std::path::Path) {
        let pki = self.pki.as_ref().unwrap();
        (&pki.authority, pki.dir.path())
    }

    /// Indexes of the servers that run and are not paused.
    pub(crate) fn live(&self) -> Vec<usize> {
        let up = |(index, life): (usize, &Life)| (*life == Life::Up).then_some(index);
        self.lives.iter().enumerate().filter_map(up).collect()
    }

    /// Waits until all live servers agree on a live leader, which has registered all of them.
    pub(crate) fn wait_until_ready(&mut self) -> usize {
        let leader = self.leader();
        let live = self.live();
        for index in live.clone() {
            eventually("every server in the catalog", || {
                let (status, rows) = self.servers[index].get("/v1/catalog/service/consul").ok()?;
                let names: BTreeSet<_> = rows
                    .as_array()?
                    .iter()
                    .filter_map(|row| row["Node"].as_str().map(str::to_owned))
                    .collect();
                let all = live.iter().all(|index| names.contains(&self.name(*index)));
                (status == 200 && all).then_some(())
            });
        }
        leader
    }

    /// The node name of a server.
    pub(crate) fn name(&self, index: usize) -> String {
        format!("s{}", index + 1)
    }

    /// The leader that all live servers name, once they name the same live one.
    pub(crate) fn leader(&self) -> usize {
        eventually("one leader that all name", || self.leader_now())
    }

    /// The leader, if all live servers name the same live one just now.
    pub(crate) fn leader_now(&self) -> Option<usize> {
        let live = self.live();
        let mut named = live.iter().map(|index| {
            let (status, leader) = self.servers[*index].get("/v1/status/leader").ok()?;
            (status == 200).then_some(leader.as_str()?.to_owned())
        });
        let first = named.next()??;
        let same = named.all(|other| other.as_ref() == Some(&first));
        let leads = |index: &usize| self.servers[*index].port(8300) == first;
        same.then(|| live.iter().copied().find(leads)).flatten()
    }

    /// Ends a server with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        self.servers[index].kill();
        self.lives[index] = Life::Down;
    }

    /// Starts a server again on its data.
    pub(crate) fn restart(&mut self, index: usize) {
        self.servers[index].spawn();
        self.lives[index] = Life::Up;
    }

    /// Asks a server to end with SIGTERM, and waits for that: its exit code.
    pub(crate) fn terminate(&mut self, index: usize) -> Option<i32> {
        self.servers[index].signal(Signal::TERM);
        self.lives[index] = Life::Down;
        self.servers[index].wait_for_end().0
    }

    /// Notes that a server ends by itself, and waits for that: its exit code.
    pub(crate) fn wait_for_end(&mut self, index: usize) -> Option<i32> {
        self.lives[index] = Life::Down;
        self.servers[index].wait_for_end().0
    }

    /// Stops a process in its tracks.
    pub(crate) fn pause(&mut self, index: usize) {
        self.servers[index].signal(Signal::STOP);
        self.lives[index] = Life::Paused;
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self, index: usize) {
        self.servers[index].signal(Signal::CONT);
        self.lives[index] = Life::Up;
    }

    /// Name and status of each member, as a server sees them.
    pub(crate) fn members(&self, index: usize) -> BTreeMap<String, u64> {
        let (_, rows) = self.servers[index]
            .get("/v1/agent/members")
            .unwrap_or_default();
        let rows = rows.as_array().cloned().unwrap_or_default();
        let pair = |row: &Value| Some((row["Name"].as_str()?.to_owned(), row["Status"].as_u64()?));
        rows.iter().filter_map(pair).collect()
    }

    /// Addresses of the servers that vote in Raft, as a server sees it.
    pub(crate) fn voters(&self, index: usize) -> BTreeSet<String> {
        let (_, facts) = self.servers[index]
            .get("/v1/agent/self")
            .unwrap_or_default();
        let text = facts["Stats"]["raft"]["latest_configuration"].as_str();
        let voters = text.unwrap_or_default().split("Suffrage:Voter").skip(1);
        let address = |text: &str| {
            let (_, rest) = text.split_once("Address:")?;
            Some(rest.split_once('}')?.0.to_owned())
        };
        voters.filter_map(address).collect()
    }

    /// Waits until every live server sees that exactly these servers vote in Raft.
    #[track_caller]
    pub(crate) fn wait_for_voters(&self, indexes: &[usize]) {
        let wanted: BTreeSet<_> = indexes
            .iter()
            .map(|i| self.servers[*i].port(8300))
            .collect();
        for index in self.live() {
            eventually("the voters of Raft", || {
                (self.voters(index) == wanted).then_some(())
            });
        }
    }

    /// Status of a node's `serfHealth` in the catalog, as a server sees it.
    pub(crate) fn serf_health(&self, index: usize, node: &str) -> Option<String> {
        let path = format!("/v1/health/node/{node}");
        let (_, checks) = self.servers[index].get(&path).ok()?;
        let checks = checks.as_array()?;
        let serf = checks
            .iter()
            .find(|check| check["CheckID"] == "serfHealth")?;
        Some(serf["Status"].as_str()?.to_owned())
    }

    /// Writes a key through a server.
    pub(crate) fn put(&self, index: usize, key: &str, value: &str) -> bool {
        put(&self.servers[index].port(8500), key, value)
    }
}

/// Writes a key through the server at this address; `true` says that the write was acknowledged.
pub(crate) fn put(address: &str, key: &str, value: &str) -> bool {
    let path = format!("/v1/kv/{key}");
    let answer = http::request(address, "PUT", &path, value);
    matches!(answer, Ok((200, body)) if body.trim() == "true")
}

fn merge(into: &mut Value, other: &Value) {
    for (key, value) in other.as_object().into_iter().flatten() {
        match (&mut into[key], value) {
            (Value::Object(_), Value::Object(_)) => merge(&mut into[key], value),
            (slot, value) => *slot = value.clone(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A paused process cannot be waited for.
        for (server, life) in self.servers.iter().zip(&self.lives) {
            if *life == Life::Paused {
                server.signal(Signal::CONT);
            }
        }
    }
}

/// Clients that write all the time, each its own keys, through whichever server takes them.
pub(crate) struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Written>>,
}

/// What a writer did.
#[derive(Default)]
pub(crate) struct Written {
    /// Keys whose write was acknowledged.
    pub(crate) acknowledged: BTreeSet<String>,
    /// The longest time from one acknowledgement to the next.
    pub(crate) longest_gap: Duration,
}

impl Writers {
    /// Starts `count` writers over the servers at these HTTP addresses.
    pub(crate) fn start(count: usize, prefix: &str, addresses: &[String]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|writer| {
            let (stop, addresses) = (stop.clone(), addresses.to_owned());
            let prefix = format!("{prefix}/{writer}");
            std::thread::spawn(move || write_for_ever(&prefix, writer, &addresses, &stop))
        });
        let threads = threads.collect();
        Self { stop, threads }
    }

    /// Ends the writers: everything that was acknowledged, and the longest gap.
    pub(crate) fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Written::default();
        for thread in self.threads {
            let one = thread.join().unwrap();
            all.acknowledged.extend(one.acknowledged);
            all.longest_gap = all.longest_gap.max(one.longest_gap);
        }
        all
    }
}

fn write_for_ever(prefix: &str, first: usize, addresses: &[String], stop: &AtomicBool) -> Written {
    let mut written = Written::default();
    let mut at = first;
    let mut last = Instant::now();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("{prefix}/{n}");
        if put(&addresses[at % addresses.len()], &key, &n.to_string()) {
            written.acknowledged.insert(key);
            written.longest_gap = written.longest_gap.max(last.elapsed());
            last = Instant::now();
        } else {
            at += 1; // This one is down, or has no leader.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    written
}

/// All keys with this prefix that a server's default mode shows, once it answers.
pub(crate) fn keys(address: &str, prefix: &str) -> BTreeSet<String> {
    let start = Instant::now();
    loop {
        let path = format!("/v1/kv/{prefix}?keys");
        if let Ok((200, text)) = http::request(address, "GET", &path, "") {
            return serde_json::from_str(&text).unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "{address} does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
}
