//! A real Envoy started by `connect envoy`, and TLS clients and servers around it.

use crossway::net::AnyCertificate;

use super::server::Server;
use super::server::eventually;
use super::server::loopback;
use serde_json::Value;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::ServerName;

/// The port on which gateways of the tests accept connections.
pub(crate) const GATEWAY_PORT: u16 = 8443;

/// A mesh gateway: an Envoy process.
pub(crate) struct Gateway {
    child: Child,
    log: PathBuf,
    pub(crate) address: Ipv4Addr,
}

/// What is special about a gateway.
#[derive(Clone, Copy, Default)]
pub(crate) struct Special<'a> {
    /// More flags of `connect envoy`.
    pub(crate) flags: &'a [&'a str],
    /// Changes the bootstrap before Envoy gets it.
    pub(crate) edit: Option<&'a dyn Fn(&mut Value)>,
    /// Registers the gateway at this address, in place of `connect envoy -register`.
    pub(crate) register: Option<&'a dyn Fn(Ipv4Addr)>,
}

impl Gateway {
    /// Registers the gateway `name` with `agent`, exposing its servers, and starts Envoy for it; waits until Envoy
    /// listens.
    pub(crate) fn start(agent: &Server, envoy: &Path, name: &str) -> Self {
        let special = Special {
            flags: &["-expose-servers"],
            ..Special::default()
        };
        Self::start_special(agent, envoy, name, special)
    }

    /// As [`Gateway::start`], but servers are exposed only if `special` says so.
    pub(crate) fn start_special(
        agent: &Server,
        envoy: &Path,
        name: &str,
        special: Special<'_>,
    ) -> Self {
        let mut gateway = Self::spawn(agent, envoy, name, special);
        eventually("the gateway's listener", || {
            if let Some(status) = gateway.child.try_wait().unwrap() {
                panic!("the gateway ended with {status}:\n{}", gateway.log());
            }
            (gateway.stat("listener_manager.total_listeners_active")? > 0).then_some(())
        });
        gateway
    }

    /// As [`Gateway::start_special`], without waiting for anything.
    pub(crate) fn spawn(agent: &Server, envoy: &Path, name: &str, special: Special<'_>) -> Self {
        let address = loopback();
        let path = agent.path(&format!("{name}.log"));
        let log = File::create(&path).unwrap();
        let at = format!("{address}:{GATEWAY_PORT}");
        let mut command = agent.command(&["connect", "envoy", "-gateway=mesh"]);
        match special.register {
            Some(register) => register(address),
            None => {
                command.args(["-register", "-node-name", name]);
                command.args(["-address", &at, "-wan-address", &at]);
            }
        }
        command
            .args(["-admin-bind", &format!("{address}:19000")])
            .args(special.flags);
        let options = ["--concurrency", "1", "-l", "info"];
        let mut command = match special.edit {
            None => {
                command.arg("-envoy-binary").arg(envoy).arg("--");
                command
            }
            Some(edit) => {
                let out = command.arg("-bootstrap").output().unwrap();
                let complaint = String::from_utf8_lossy(&out.stderr);
                assert!(out.status.success(), "{complaint}");
                let mut bootstrap = serde_json::from_slice(&out.stdout).unwrap();
                edit(&mut bootstrap);
                let file = agent.path(&format!("{name}.json"));
                std::fs::write(&file, bootstrap.to_string()).unwrap();
                let mut command = Command::new(envoy);
                command.arg("--disable-hot-restart");
                command.arg("--config-path").arg(file);
                command
            }
        };
        let child = command
            .args(options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            log: path,
            address,
        }
    }

    /// Everything that Envoy printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Several of Envoy's counters or gauges.
    pub(crate) fn stats<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let any = names.join("%7C").replace('.', "\\.");
        let text = self.admin(&format!("/stats?filter=^({any})$")).unwrap();
        let value = |name| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.and_then(|value| value.parse().ok()).unwrap_or(0)
        };
        names.map(value)
    }

    /// An active cluster that came over xDS, as Envoy shows it.
    pub(crate) fn cluster(&self, name: &str) -> Option<Value> {
        let text = self.admin("/config_dump?resource=dynamic_active_clusters")?;
        let dump: Value = serde_json::from_str(&text).ok()?;
        let mut clusters = dump["configs"].as_array()?.iter();
        let found = clusters.find(|c| c["cluster"]["name"] == name)?;
        Some(found["cluster"].clone())
    }

    /// `host:port` that the gateway listens on.
    pub(crate) fn at(&self) -> String {
        format!("{}:{GATEWAY_PORT}", self.address)
    }

    /// A page of Envoy's admin port; `None` while it does not answer.
    pub(crate) fn admin(&self, path: &str) -> Option<String> {
        let at = format!("{}:19000", self.address);
        let (status, body) = super::http::request(&at, "GET", path, "").ok()?;
        (status == 200).then_some(body)
    }

    /// One of Envoy's counters or gauges.
    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let text = self.admin(&format!("/stats?filter=^{}$", name.replace('.', "\\.")))?;
        text.trim().split(": ").nth(1)?.parse().ok()
    }

    /// Names of Envoy's clusters that came over xDS, in order.
    pub(crate) fn clusters(&self) -> Option<Vec<String>> {
        let dump: Value =
            serde_json::from_str(&self.admin("/config_dump?resource=dynamic_active_clusters")?)
                .ok()?;
        let mut names: Vec<String> = dump["configs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|c| Some(c["cluster"]["name"].as_str()?.to_owned()))
            .collect();
        names.sort();
        Some(names)
    }

    /// Addresses of a cluster's endpoints with their health, in order.
    pub(crate) fn endpoints(&self, cluster: &str) -> Vec<String> {
        let text = self.admin("/clusters").unwrap_or_default();
        let mut found: Vec<String> = text
            .lines()
            .filter_map(|line| {
                let rest = line.strip_prefix(cluster)?.strip_prefix("::")?;
                let (address, health) = rest.split_once("::health_flags::")?;
                Some(format!("{address} {health}"))
            })
            .collect();
        found.sort();
        found
    }

    /// Server names of the listener's filter chains with the stat prefix of each, in Envoy's order.
    pub(crate) fn chains(&self) -> Vec<(Vec<String>, String)> {
        let text = self
            .admin("/config_dump?resource=dynamic_listeners")
            .unwrap_or_default();
        let dump: Value = serde_json::from_str(&text).unwrap_or_default();
        let listener = &dump["configs"][0]["active_state"]["listener"];
        let chain = |c: &Value| {
            let names = c["filter_chain_match"]["server_names"].as_array()?;
            let names = names.iter().filter_map(|n| Some(n.as_str()?.to_owned()));
            let proxy = c["filters"].as_array()?.last()?;
            let prefix = proxy["typed_config"]["stat_prefix"].as_str()?.to_owned();
            Some((names.collect(), prefix))
        };
        listener["filter_chains"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(chain)
            .collect()
    }

    /// Connects with TLS and this SNI (`None`: none at all), without looking at the certificate.
    pub(crate) fn dial(&self, sni: Option<&str>) -> io::Result<TlsStream> {
        dial(&self.at(), sni)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log
                .lines()
                .filter(|l| !l.contains("server.cc:46"))
                .collect();
            println!("--- log of the gateway ---\n{}", lines.join("\n"));
        }
    }
}

pub(crate) type TlsStream = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// A TLS connection whose handshake is done.
pub(crate) fn dial(at: &str, sni: Option<&str>) -> io::Result<TlsStream> {
    crossway::net::install_crypto_provider();
    let builder = rustls::ClientConfig::builder();
    // These tests ask where a connection ends, not who is there.
    let provider = Arc::clone(builder.crypto_provider());
    let mut config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
        .with_no_client_auth();
    config.enable_sni = sni.is_some();
    let name = ServerName::try_from(sni.unwrap_or("nobody").to_owned()).unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let tcp = TcpStream::connect(at)?;
    tcp.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = rustls::StreamOwned::new(connection, tcp);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

/// Says `hello` and gives the [`Backend`]'s answer: its name and the SNI that it saw.
pub(crate) fn ask(stream: &mut TlsStream) -> io::Result<String> {
    stream.write_all(b"hello\n")?;
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(io::Error::other)
}

/// A TLS server that answers each line with its name and the SNI of the connection.
pub(crate) struct Backend {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
}

impl Backend {
    /// Listens on an address of its own. The threads end with the test process.
    pub(crate) fn start(name: &'static str) -> Self {
        Self::start_at(name, loopback().into())
    }

    /// As [`Backend::start`], on this address.
    pub(crate) fn start_at(name: &'static str, address: IpAddr) -> Self {
        crossway::net::install_crypto_provider();
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let key = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let der = PrivatePkcs8KeyDer::from(key.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], der.into())
            .unwrap();
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                std::thread::spawn(move || serve(name, connection, tcp));
            }
        });
        Self { address, port }
    }
}

fn serve(name: &str, connection: rustls::ServerConnection, tcp: TcpStream) -> io::Result<()> {
    let mut stream = rustls::StreamOwned::new(connection, tcp);
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 {
        if byte[0] == b'\n' {
            let sni = stream.conn.server_name().unwrap_or("-").to_owned();
            stream.write_all(format!("{name} {sni}\n").as_bytes())?;
        }
    }
    Ok(())
}
