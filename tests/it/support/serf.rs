//! A real `serf agent` process on a loopback address of its own, operated with its own command line.

use super::server::loopback;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Rest between two questions to the agent.
const PAUSE: Duration = Duration::from_millis(50);

/// What an agent says of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) status: String,
    pub(crate) address: String,
    pub(crate) tags: BTreeMap<String, String>,
}

/// A running agent; dropping it kills it.
pub(crate) struct Serf {
    program: PathBuf,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    args: Vec<String>,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Serf {
    /// Starts an agent with its fastest timing and more arguments, and waits until it answers.
    pub(crate) async fn start(program: PathBuf, name: &str, args: &[&str]) -> Self {
        let mut serf = Self {
            program,
            name: name.to_owned(),
            address: loopback(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            dir: tempfile::tempdir().unwrap(),
            child: None,
        };
        serf.spawn().await;
        serf
    }

    /// Starts the process, again after [`Self::kill`].
    pub(crate) async fn spawn(&mut self) {
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let child = Command::new(&self.program)
            .args(["agent", "-profile=local", "-log-level=debug"])
            .args(["-node", &self.name, "-bind", &self.gossip().to_string()])
            .args(["-rpc-addr", &self.rpc()])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let started = self.name.clone();
        self.until("it answers", |seen| seen.contains_key(&started))
            .await;
    }

    /// Where it gossips.
    pub(crate) fn gossip(&self) -> SocketAddr {
        (self.address, 7946).into()
    }

    fn rpc(&self) -> String {
        format!("{}:7373", self.address)
    }

    /// A file of its own.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// Runs a command against it: name, options, then the rest.
    pub(crate) async fn command(&self, command: &str, args: &[&str]) -> Output {
        let rpc = format!("-rpc-addr={}", self.rpc());
        let running = tokio::process::Command::new(&self.program)
            .args([command, &rpc])
            .args(args)
            .kill_on_drop(true)
            .output();
        let done = tokio::time::timeout(PATIENCE, running).await;
        done.unwrap_or_else(|_| panic!("serf {command} {args:?} does not end"))
            .unwrap()
    }

    /// Runs a command that must succeed, and gives what it prints.
    pub(crate) async fn run(&self, command: &str, args: &[&str]) -> String {
        let output = self.command(command, args).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "serf {command} {args:?}: {text}{problem}"
        );
        text
    }

    /// What it says of each member; nothing while it does not answer.
    pub(crate) async fn members(&self) -> BTreeMap<String, Seen> {
        let output = self.command("members", &["-format=json"]).await;
        let Ok(all) = serde_json::from_slice::<Value>(&output.stdout) else {
            return BTreeMap::new();
        };
        let seen = |member: &Value| {
            let text = |key: &str| member[key].as_str().unwrap().to_owned();
            let seen = Seen {
                status: text("status"),
                address: text("addr"),
                tags: serde_json::from_value(member["tags"].clone()).unwrap(),
            };
            (text("name"), seen)
        };
        all["members"]
            .as_array()
            .into_iter()
            .flatten()
            .map(seen)
            .collect()
    }

    /// Waits until its members are as they should be.
    #[track_caller]
    pub(crate) fn until(
        &self,
        what: impl Into<String>,
        holds: impl Fn(&BTreeMap<String, Seen>) -> bool,
    ) -> impl Future<Output = ()> {
        let (caller, what) = (std::panic::Location::caller(), what.into());
        async move {
            let end = Instant::now() + PATIENCE;
            loop {
                let seen = self.members().await;
                if holds(&seen) {
                    return;
                }
                assert!(
                    Instant::now() < end,
                    "{caller}: {}: not seen: {what}: {seen:?}\n{}",
                    self.name,
                    self.log()
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Waits until it sees `name` with a status.
    #[track_caller]
    pub(crate) fn until_status(&self, name: &str, status: &str) -> impl Future<Output = ()> {
        let what = format!("{name} {status}");
        let (name, status) = (name.to_owned(), status.to_owned());
        self.until(what, move |seen| {
            seen.get(&name).is_some_and(|seen| seen.status == status)
        })
    }

    /// Waits until the process ends by itself.
    pub(crate) async fn until_ended(&mut self) {
        let end = Instant::now() + PATIENCE;
        while self.child.as_mut().unwrap().try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < end,
                "{} does not end:\n{}",
                self.name,
                self.log()
            );
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Ends the process without a good-bye.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Serf {
    fn drop(&mut self) {
        self.kill();
    }
}
