//! A real `crossway agent` process with the ports of production on a loopback address of its own.

use serde_json::Value;
use serde_json::json;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An address in 127.0.0.0/8 that no other test of this machine uses: with it every port is free.
pub(crate) fn loopback() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let byte = |v: u32| u8::try_from(v % 250).unwrap() + 2;
    Ipv4Addr::new(127, byte(pid / 250), byte(pid), byte(n))
}

/// The binary under test.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_crossway")
}

/// A server process; dropping it ends it and removes its data.
pub(crate) struct Server {
    child: Option<Child>,
    dir: tempfile::TempDir,
    config: Value,
    wrapper: Vec<String>,
    pub(crate) address: Ipv4Addr,
}

impl Server {
    /// Starts node `n1` of `dc1` with TLS certificates made by the command line, and waits until it leads and has
    /// registered itself. `extra` is merged into the configuration, key by key.
    pub(crate) fn start(extra: &Value) -> Self {
        let mut agent = Self::prepare(extra);
        agent.spawn();
        agent.wait_until_ready();
        agent
    }

    /// As [`Server::start`], but not yet running.
    pub(crate) fn prepare(extra: &Value) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("crossway-test-")
            .tempdir()
            .unwrap();
        let address = loopback();
        make_certificates(dir.path());
        let at = |name: &str| dir.path().join(name);
        let mut config = json!({
            "node_name": "n1", "datacenter": "dc1", "server": true, "bootstrap": true,
            "bind_addr": address.to_string(), "client_addr": address.to_string(),
            "data_dir": at("data"), "log_level": "DEBUG",
            "ca_file": at("consul-agent-ca.pem"), "cert_file": at("dc1-server-consul-0.pem"),
            "key_file": at("dc1-server-consul-0-key.pem"),
            "connect": {"enabled": true, "enable_mesh_gateway_wan_federation": true},
            "performance": {"raft_multiplier": 1},
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        Self {
            child: None,
            dir,
            config,
            wrapper: Vec::new(),
            address,
        }
    }

    /// Starts the process without waiting for anything.
    pub(crate) fn spawn(&mut self) {
        let file = self.path("agent.json");
        std::fs::write(&file, self.config.to_string()).unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.path("log"))
            .unwrap();
        let mut parts = self.wrapper.iter().map(String::as_str).chain([binary()]);
        let child = Command::new(parts.next().unwrap())
            .args(parts)
            .args(["agent", "-config-file"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Starts the process through `wrapper`, a command that runs the one behind it.
    pub(crate) fn spawn_through(&mut self, wrapper: &[&str]) {
        self.wrapper = wrapper.iter().map(|part| (*part).to_owned()).collect();
        self.spawn();
    }

    /// Changes a key of the configuration for the next start or reload.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        self.config[key] = value;
        std::fs::write(self.path("agent.json"), self.config.to_string()).unwrap();
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the process ends by itself: its exit code, and how long that took.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self) -> (Option<i32>, Duration) {
        let start = Instant::now();
        let mut child = self.child.take().unwrap();
        while start.elapsed() < PATIENCE {
            if let Some(status) = child.try_wait().unwrap() {
                return (status.code(), start.elapsed());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child = Some(child);
        panic!("the process did not end");
    }

    /// Lines of the log with this level.
    pub(crate) fn lines(&self, level: &str) -> Vec<String> {
        let log = self.log();
        let lines = log.lines().filter(|line| line.contains(level));
        lines.map(str::to_owned).collect()
    }

    /// Waits until the server leads and its own service is registered.
    pub(crate) fn wait_until_ready(&mut self) {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().and_then(|c| c.try_wait().unwrap()) {
                panic!("the agent ended with {status}:\n{}", self.log());
            }
            let ready = self.get("/v1/health/service/consul");
            if ready.is_ok_and(|(status, body)| status == 200 && body != json!([])) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no leader:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A file in the server's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Everything the process printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Ends the process with SIGKILL, starts it again on the same data and waits for it.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.spawn();
        self.wait_until_ready();
    }

    /// `host:port` of one of the server's ports.
    pub(crate) fn port(&self, port: u16) -> String {
        format!("{}:{port}", self.address)
    }

    /// GET over HTTP: status and body (JSON where it is, else text).
    pub(crate) fn get(&self, path: &str) -> std::io::Result<(u16, Value)> {
        self.send("GET", path, "")
    }

    /// Sends a request with a JSON body: status and body (JSON where it is, else text).
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<(u16, Value)> {
        let (status, text) = super::http::request(&self.port(8500), method, path, body)?;
        Ok((
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        ))
    }

    /// PUT that must succeed.
    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send("PUT", path, &body.to_string()).unwrap();
        assert_eq!(status, 200, "PUT {path}: {answer}");
        answer
    }

    /// The command line under test, pointed at this server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .env("CONSUL_HTTP_ADDR", self.port(8500))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs a command that must succeed; its standard output.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> String {
        let out = self.command(args).output().unwrap();
        assert!(
            out.status.success(),
            "{args:?}: {}\n{}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8(out.stdout).unwrap()
    }

    /// One RPC with the server's own certificate; the answer as JSON. `address` and `sni` choose the way.
    #[track_caller]
    pub(crate) fn rpc(&self, address: &str, sni: &str, method: &str, body: &Value) -> Value {
        let body = body.to_string();
        let out = self.run(&[
            "rpc",
            "-addr",
            address,
            "-sni",
            sni,
            "-ca-file",
            "consul-agent-ca.pem",
            "-client-cert",
            "dc1-server-consul-0.pem",
            "-client-key",
            "dc1-server-consul-0-key.pem",
            method,
            &body,
        ]);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// Stores a federation state through the server's own RPC port.
    pub(crate) fn store_federation_state(&self, state: &Value) {
        let body = json!({"Datacenter": "dc1", "Op": "upsert", "State": state});
        let done = self.rpc(
            &self.port(8300),
            "server.dc1.consul",
            "FederationState.Apply",
            &body,
        );
        assert_eq!(done, json!(true));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("--- log of the agent ---\n{}", self.log());
        }
    }
}

/// Certificates for node `n1` of `dc1` in `dir`, as operators make them.
pub(crate) fn make_certificates(dir: &Path) {
    for args in [
        &["tls", "ca", "create"][..],
        &[
            "tls", "cert", "create", "-server", "-dc", "dc1", "-node", "n1",
        ],
    ] {
        let out = Command::new(binary())
            .args(args)
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

/// Asks again until the answer is there; `what` names it in the failure.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}
