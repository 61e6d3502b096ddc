//! A real Consul 1.8.7 client agent in our datacenter.

use crate::cluster::ALIVE;
use crate::support::cluster::Cluster;
use crate::support::cluster::GOSSIP_KEY;
use crate::support::http;
use crate::support::peers;
use crate::support::server::eventually;
use crate::support::server::loopback;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use serde_json::Value;
use serde_json::json;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// A client agent; dropping it kills it.
struct Client {
    child: Child,
    dir: tempfile::TempDir,
    address: Ipv4Addr,
}

impl Client {
    fn start(program: &Path, cluster: &Cluster) -> Self {
        let (address, dir) = (loopback(), tempfile::tempdir().unwrap());
        let (authority, _) = cluster.authority();
        let pair = authority.sign(&["client.dc1.consul", "localhost"]);
        let config = json!({
            "node_name": "client-1", "datacenter": "dc1", "server": false,
            "bind_addr": address.to_string(), "client_addr": address.to_string(),
            "data_dir": dir.path().join("data"), "log_level": "DEBUG", "disable_update_check": true,
            "retry_join": cluster.addresses(), "retry_interval": "1s", "leave_on_terminate": true,
            "ca_file": authority.file(), "cert_file": pair.cert, "key_file": pair.key,
            "verify_incoming": true, "verify_outgoing": true, "verify_server_hostname": true,
            "encrypt": GOSSIP_KEY, "ports": {"dns": -1},
            "gossip_lan": {"probe_interval": "500ms", "probe_timeout": "250ms", "gossip_interval": "50ms"},
        });
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(program)
            .args(["agent", "-config-file"])
            .arg(dir.path().join("config.json"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            dir,
            address,
        }
    }

    fn http(&self) -> String {
        format!("{}:8500", self.address)
    }

    fn get(&self, path: &str) -> Option<Value> {
        let (status, text) = http::request(&self.http(), "GET", path, "").ok()?;
        (status == 200).then(|| serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    #[track_caller]
    fn put(&self, path: &str, body: &Value) {
        let (status, text) = http::request(&self.http(), "PUT", path, &body.to_string()).unwrap();
        assert_eq!(status, 200, "PUT {path}: {text}");
    }

    /// Leaves and ends.
    fn terminate(mut self) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        eventually("the client's end", || self.child.try_wait().unwrap());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            #[allow(clippy::print_stdout)] // A failed test shows it.
            {
                println!("--- log of the client agent ---\n{log}");
            }
        }
    }
}

/// The status of the one check of a service, as one of our servers sees it.
fn status(cluster: &Cluster, index: usize, service: &str) -> Option<String> {
    let path = format!("/v1/health/checks/{service}");
    let (_, checks) = cluster.servers[index].get(&path).ok()?;
    Some(checks[0]["Status"].as_str()?.to_owned())
}

fn register(client: &Client, cluster: &Cluster, index: usize, service: &str) {
    let definition = json!({
        "Name": service, "Port": 9090, "Tags": ["v1"],
        "Check": {"CheckID": format!("{service}-ttl"), "TTL": "10m", "Status": "critical"},
    });
    client.put("/v1/agent/service/register", &definition);
    eventually("the service in our catalog", || {
        let rows = cluster.servers[index].get(&format!("/v1/catalog/service/{service}"));
        let (_, rows) = rows.ok()?;
        (rows[0]["Node"] == "client-1" && rows[0]["ServicePort"] == 9090).then_some(())
    });
    client.put(&format!("/v1/agent/check/pass/{service}-ttl"), &json!(null));
    eventually("its check in our catalog", || {
        (status(cluster, index, service)? == "passing").then_some(())
    });
}

#[test]
fn a_consul_client_agent_lives_in_our_datacenter() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let mut cluster = Cluster::start_secure(3, &json!({}));
    let client = Client::start(&consul, &cluster);
    for index in 0..3 {
        eventually("the client among the members", || {
            (cluster.members(index).get("client-1") == Some(&ALIVE)).then_some(())
        });
    }
    eventually("the client in the catalog", || {
        (cluster.serf_health(0, "client-1")? == "passing").then_some(())
    });
    eventually("the addresses that the client adds itself", || {
        let (_, node) = cluster.servers[0].get("/v1/catalog/node/client-1").ok()?;
        let lan = &node["Node"]["TaggedAddresses"]["lan"];
        (lan == &json!(client.address.to_string())).then_some(())
    });

    // It registers through us, and reads and blocks on what we have.
    register(&client, &cluster, 0, "web");
    let servers = eventually("our servers through the client", || {
        client.get("/v1/health/service/consul?passing")
    });
    assert_eq!(servers.as_array().unwrap().len(), 3);
    let services = eventually("services", || client.get("/v1/catalog/services"));
    assert_eq!(services["web"], json!(["v1"]));
    assert!(cluster.put(1, "told", "1"));
    let entry = eventually("a key through the client", || client.get("/v1/kv/told"));
    let index = entry[0]["ModifyIndex"].as_u64().unwrap();
    let path = format!("/v1/kv/told?wait=60s&index={index}");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (client.get(&path), Instant::now()));
        std::thread::sleep(Duration::from_millis(500)); // It blocks by now; if not, it sees the write at once.
        let written = Instant::now();
        assert!(cluster.put(2, "told", "2"));
        let (news, at) = waiter.join().unwrap();
        assert!(news.unwrap()[0]["ModifyIndex"].as_u64().unwrap() > index);
        assert!(at.duration_since(written) < Duration::from_secs(10));
    });

    // The leader dies: the client goes on with the others.
    let leader = cluster.leader();
    cluster.kill(leader);
    let next = cluster.leader();
    eventually("a write through the client", || {
        let put = http::request(&client.http(), "PUT", "/v1/kv/after", "x").ok()?;
        (put == (200, "true\n".to_owned()) || put == (200, "true".to_owned())).then_some(())
    });
    assert_eq!(cluster.servers[next].get("/v1/kv/after").unwrap().0, 200);
    register(&client, &cluster, next, "after");
    assert_eq!(status(&cluster, next, "web").as_deref(), Some("passing"));

    // It leaves in order.
    client.terminate();
    eventually("the client is gone from the catalog", || {
        let (_, node) = cluster.servers[next]
            .get("/v1/catalog/node/client-1")
            .ok()?;
        node.is_null().then_some(())
    });
}
