//! Our client and our certificates against a real Consul 1.8.7 server.

use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Instant;

use crossway::codec::Value;
use crossway::net::Tls;
use crossway::rpc::ClientError;
use crossway::rpc::Security;
use crossway::rpc::Session;
use crossway::rpc::Target;

use super::port::PATIENCE;
use crate::support::peers;

/// A Consul server that is killed at the end of its test.
struct Consul(Child);

impl Drop for Consul {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn crossway(folder: &Path, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
    let output = command.args(args).current_dir(folder).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts a server that insists on TLS; gives its RPC port.
fn start(consul: &Path, folder: &Path) -> (Consul, u16) {
    let held: Vec<_> = (0..4)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports: Vec<u16> = held
        .iter()
        .map(|port| port.local_addr().unwrap().port())
        .collect();
    let config = serde_json::json!({
        "server": true, "bootstrap_expect": 1, "node_name": "s1", "datacenter": "dc1",
        "bind_addr": "127.0.0.1", "data_dir": folder.join("data"), "log_level": "warn",
        "ports": { "server": ports[0], "http": ports[1], "serf_lan": ports[2], "serf_wan": ports[3],
                   "dns": -1, "grpc": -1, "https": -1 },
        "ca_file": folder.join("consul-agent-ca.pem"),
        "cert_file": folder.join("dc1-server-consul-0.pem"),
        "key_file": folder.join("dc1-server-consul-0-key.pem"),
        "verify_incoming": true, "verify_outgoing": true, "verify_server_hostname": true,
    });
    std::fs::write(folder.join("consul.json"), config.to_string()).unwrap();
    drop(held);
    let log = std::fs::File::create(folder.join("consul.log")).unwrap();
    let child = Command::new(consul)
        .args(["agent", "-config-file"])
        .arg(folder.join("consul.json"))
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (Consul(child), ports[0])
}

async fn until_leader(target: &Target, tls: &Tls, folder: &Path) {
    let start = Instant::now();
    loop {
        let answer = async {
            let session = Session::connect(target, tls, PATIENCE).await?;
            let query = serde_json::json!({ "Datacenter": "dc1" });
            let services: Value = session
                .call_with("Catalog.ListServices", &query, PATIENCE)
                .await?;
            let listed = services.get("Services");
            Ok::<_, ClientError>(listed.is_some_and(|names| names.get("consul").is_some()))
        };
        match answer.await {
            Ok(true) => return, // It leads and has registered itself.
            other if start.elapsed() > 2 * PATIENCE => {
                let log = std::fs::read_to_string(folder.join("consul.log")).unwrap_or_default();
                panic!("no leader: {other:?}\n{log}");
            }
            _ => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_consul_server_takes_our_calls_in_every_mode() {
    let Some(consul) = peers::find("consul") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    crossway(folder, &["tls", "ca", "create"]);
    crossway(
        folder,
        &[
            "tls", "cert", "create", "-server", "-dc", "dc1", "-node", "s1",
        ],
    );
    crossway(folder, &["tls", "cert", "create", "-client"]);
    let (_consul, port) = start(&consul, folder);
    let settings = crossway::net::TlsSettings {
        ca_files: vec![folder.join("consul-agent-ca.pem")],
        cert_file: Some(folder.join("dc1-client-consul-0.pem")),
        key_file: Some(folder.join("dc1-client-consul-0-key.pem")),
        verify_server_hostname: true,
        domain: "consul".into(),
        ..Default::default()
    };
    let tls = Tls::load(settings, std::time::SystemTime::now()).unwrap();
    let target = |security, multiplexed| Target {
        address: ([127, 0, 0, 1], port).into(),
        datacenter: "dc1".into(),
        node: "s1".into(),
        security,
        multiplexed,
    };
    until_leader(&target(Security::TypeByte, true), &tls, folder).await;
    for security in [Security::TypeByte, Security::Native { sni: None }] {
        for multi in [false, true] {
            let session = Session::connect(&target(security.clone(), multi), &tls, PATIENCE)
                .await
                .unwrap();
            let query = serde_json::json!({ "Datacenter": "dc1" });
            let reply: Value = session
                .call_with("Catalog.ListServices", &query, PATIENCE)
                .await
                .unwrap();
            assert!(
                reply.get("Services").unwrap().get("consul").is_some(),
                "{reply:?}"
            );
            let error = session
                .call("Nope.Nope", &[0x80], PATIENCE)
                .await
                .unwrap_err();
            assert!(
                matches!(&error, ClientError::Remote(text) if text == "rpc: can't find service Nope.Nope"),
                "{error}"
            );
        }
        // Larger than yamux's window, both ways.
        let session = Session::connect(&target(security, true), &tls, PATIENCE)
            .await
            .unwrap();
        let large = "x".repeat(450_000);
        let put = serde_json::json!({ "Datacenter": "dc1", "Op": "set", "DirEnt": { "Key": "large", "Value": large } });
        let _: bool = session
            .call_with("KVS.Apply", &put, PATIENCE)
            .await
            .unwrap(); // False for anything but a compare-and-set.
        let get = serde_json::json!({ "Datacenter": "dc1", "Key": "large" });
        let got: Value = session.call_with("KVS.Get", &get, PATIENCE).await.unwrap();
        let Some(Value::Array(entries)) = got.get("Entries") else {
            panic!("{got:?}");
        };
        assert_eq!(entries[0].get("Value").unwrap().as_str(), Some(&*large));
    }
    check_command(folder, port);
}

fn check_command(folder: &Path, port: u16) {
    let output = Command::new(env!("CARGO_BIN_EXE_crossway"))
        .args([
            "rpc",
            "-addr",
            &format!("127.0.0.1:{port}"),
            "-sni",
            "s1.server.dc1.consul",
        ])
        .args([
            "-ca-file",
            "consul-agent-ca.pem",
            "-client-cert",
            "dc1-client-consul-0.pem",
        ])
        .args(["-client-key", "dc1-client-consul-0-key.pem", "Status.Peers"])
        .current_dir(folder)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{err}");
    assert!(out.contains(&format!("127.0.0.1:{port}")), "{out}");
}
