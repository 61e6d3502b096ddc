//! Members of this process in the LAN pool of a real Consul 1.8.7 server.

use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::start;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::PATIENCE;
use crate::support::server::loopback;
use bytes::Bytes;
use crossway::gossip::Config;
use crossway::gossip::MemberStatus;
use crossway::gossip::Tags;
use crossway::gossip::serf::KeyOperation;
use crossway::gossip::wire::Key;
use crossway::gossip::wire::Keyring;
use serde_json::Value;
use serde_json::json;
use std::fs::File;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;
use tokio::time::timeout;

const KEY: [u8; 16] = [1; 16];
const PAUSE: Duration = Duration::from_millis(100);

/// A Consul server that leads its datacenter; dropping it kills it.
struct Consul {
    program: PathBuf,
    address: Ipv4Addr,
    dir: tempfile::TempDir,
    child: Child,
}

impl Consul {
    async fn start(program: PathBuf) -> Self {
        crossway::net::install_crypto_provider(); // The HTTP client wants one.
        let (address, dir) = (loopback(), tempfile::tempdir().unwrap());
        let config = json!({
            "node_name": "c1", "datacenter": "dc1", "server": true, "bootstrap": true,
            "bind_addr": address.to_string(), "client_addr": address.to_string(),
            "data_dir": dir.path().join("data"), "encrypt": Key::new(&KEY).unwrap().to_base64(),
            "performance": {"raft_multiplier": 1}, "ports": {"grpc": -1, "dns": -1},
            "gossip_lan": {"gossip_interval": "100ms", "probe_interval": "500ms",
                           "probe_timeout": "200ms", "suspicion_mult": 3},
        });
        std::fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let child = Command::new(&program)
            .args(["agent", "-config-file"])
            .arg(dir.path().join("config.json"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let consul = Self {
            program,
            address,
            dir,
            child,
        };
        consul
            .until("/v1/status/leader", |leader| {
                leader.as_str().is_some_and(|l| !l.is_empty())
            })
            .await;
        consul
    }

    fn gossip(&self) -> SocketAddr {
        (self.address, 8301).into()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}:8500{path}", self.address)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    async fn get(&self, path: &str) -> Value {
        match reqwest::get(self.url(path)).await {
            Ok(answer) => answer.json().await.unwrap_or_default(),
            Err(_) => Value::Null,
        }
    }

    /// Waits until an answer is as it should be.
    async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path).await;
            if holds(&answer) {
                return;
            }
            assert!(Instant::now() < end, "{path}: {answer:#}\n{}", self.log());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until it sees a member with serf's number of a status.
    async fn until_status(&self, name: &str, status: MemberStatus) {
        let number = u8::from(status);
        self.until("/v1/agent/members", |members| {
            let mut all = members.as_array().into_iter().flatten();
            all.any(|member| member["Name"] == name && member["Status"] == number)
        })
        .await;
    }

    async fn run(&self, args: &[&str]) -> String {
        let http = format!("-http-addr=http://{}:8500", self.address);
        let mut command = tokio::process::Command::new(&self.program);
        let (name, rest) = args.split_first().unwrap();
        let running = command.arg(name).arg(http).args(rest).kill_on_drop(true);
        let output = timeout(PATIENCE, running.output()).await.unwrap().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "consul {args:?}: {text}{problem}");
        text
    }
}

impl Drop for Consul {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A member that Consul takes for one of its client agents.
fn client(name: &str, datacenter: &str) -> Config {
    let mut config = config(name);
    let id = format!("00000000-0000-0000-0000-{:012x}", name.len());
    config.serf.tags = Tags::from_iter([
        ("role", "node"),
        ("dc", datacenter),
        ("segment", ""),
        ("id", &*id),
        ("vsn", "2"),
        ("vsn_min", "2"),
        ("vsn_max", "3"),
        ("build", "1.8.7:12345678"),
        ("acls", "0"),
    ]);
    config.serf.keyring = Some(Keyring::new(Key::new(&KEY).unwrap()));
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_takes_our_member_for_a_client_and_registers_its_life() {
    let Some(program) = peers::find("consul") else {
        return;
    };
    let consul = Consul::start(program).await;
    let config = client("ours", "dc1");
    let ours = start(config.clone()).await;
    ours.join(&[at(consul.gossip())]).await.unwrap();
    until_status(&ours, "c1", MemberStatus::Alive).await;
    consul.until_status("ours", MemberStatus::Alive).await;
    let health = |status: &'static str| {
        move |checks: &Value| checks[0]["CheckID"] == "serfHealth" && checks[0]["Status"] == status
    };
    consul
        .until("/v1/health/node/ours", health("passing"))
        .await;

    // Consul's own events and ours.
    let mut events = ours.events();
    consul.run(&["event", "-name=deploy", "7"]).await;
    let event = timeout(PATIENCE, events.recv()).await.unwrap().unwrap();
    assert_eq!(event.name, "consul:event:deploy");
    ours.user_event("consul:new-leader", Bytes::from_static(b"c1"), false)
        .await
        .unwrap();

    // A member that dies is seen to have failed, one that leaves is deregistered.
    ours.shutdown().await;
    consul.until_status("ours", MemberStatus::Failed).await;
    consul
        .until("/v1/health/node/ours", health("critical"))
        .await;
    let ours = start(config).await;
    ours.join(&[at(consul.gossip())]).await.unwrap();
    consul
        .until("/v1/health/node/ours", health("passing"))
        .await;
    ours.leave().await;
    consul.until_status("ours", MemberStatus::Left).await;
    consul.until("/v1/catalog/node/ours", Value::is_null).await;
    ours.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_refuses_our_member_of_another_datacenter() {
    let Some(program) = peers::find("consul") else {
        return;
    };
    let consul = Consul::start(program).await;
    let other = start(client("other", "dc2")).await;
    let _ = other.join(&[at(consul.gossip())]).await;
    let end = Instant::now() + PATIENCE;
    while !consul.log().contains("part of wrong datacenter") {
        assert!(Instant::now() < end, "{}", consul.log());
        tokio::time::sleep(PAUSE).await;
    }
    let members = consul.get("/v1/agent/members").await;
    assert_eq!(members.as_array().unwrap().len(), 1, "{members:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_with_consul() {
    let Some(program) = peers::find("consul") else {
        return;
    };
    let consul = Consul::start(program).await;
    let ours = start(client("ours", "dc1")).await;
    consul.run(&["join", &address(&ours).to_string()]).await;
    until_status(&ours, "c1", MemberStatus::Alive).await;
    let (old, new) = (
        Key::new(&KEY).unwrap().to_base64(),
        Key::new(&[2; 32]).unwrap().to_base64(),
    );
    for option in ["-install", "-use"] {
        consul.run(&["keyring", option, &new]).await;
    }
    consul.run(&["keyring", "-remove", &old]).await;
    let listed = consul.run(&["keyring", "-list"]).await;
    assert!(
        listed.contains(&format!("{new} [2/2]")) && !listed.contains(&old),
        "{listed}"
    );

    // And back, by us. The pool of the WAN has only Consul's own keys.
    for operation in [
        KeyOperation::Install(Key::new(&KEY).unwrap()),
        KeyOperation::Use(Key::new(&KEY).unwrap()),
        KeyOperation::Remove(Key::new(&[2; 32]).unwrap()),
    ] {
        let report = ours.keyring(operation, 0).await.unwrap();
        assert_eq!(
            (report.num_resp, report.num_err),
            (2, 0),
            "{:?}",
            report.messages
        );
    }
    let report = ours.keyring(KeyOperation::List, 1).await.unwrap();
    assert_eq!(report.keys.into_iter().collect::<Vec<_>>(), [(old, 2)]);
    consul.until_status("ours", MemberStatus::Alive).await;
}
