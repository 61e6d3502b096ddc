//! Several `Consensus` in one process, joined by their real RPC ports, with links that can be cut.

#![allow(clippy::expect_used)] // Test code: a failed step should stop the test.

use crate::support::certs::{Authority, Pair};
use crate::support::server::{PATIENCE, loopback};
use async_trait::async_trait;
use bytes::Bytes;
use crossway::consensus::{
    Config, Consensus, Lane, Peer, RaftTransport, Role, Transport, TransportError, serve_raft,
};
use crossway::hooks::Open;
use crossway::model::KvEntry;
use crossway::net::{Tls, TlsSettings, listen};
use crossway::rpc::{self, CallContext, Handler, Plugs, Protocol, RpcError, ServerConfig};
use crossway::store::{Command, KvOp};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Answers no RPC: the port is for raft here.
#[derive(Clone)]
pub(crate) struct NoRpc;

impl Handler for NoRpc {
    async fn call(&self, _: CallContext, method: &str, _: Bytes) -> Result<Bytes, RpcError> {
        Err(RpcError::UnknownMethod(method.to_owned()))
    }
}

/// What a link does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Carries them.
    All,
    /// Closes every connection.
    Nothing,
    /// Keeps connections open and lets no byte through.
    Swallow,
}

/// A TCP proxy for one direction of dialling.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    pass: watch::Sender<Pass>,
    task: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    pub(crate) async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((loopback(), 0)).await.unwrap();
        let (pass, passing) = watch::channel(Pass::All);
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut carried = tokio::task::JoinSet::new();
            while let Ok((from, _)) = listener.accept().await {
                carried.spawn(carry(from, target, passing.clone()));
                while carried.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            pass,
            task,
        }
    }

    pub(crate) fn set(&self, pass: Pass) {
        self.pass.send_replace(pass);
    }
}

async fn carry(mut from: TcpStream, target: SocketAddr, mut pass: watch::Receiver<Pass>) {
    let opened = pass.wait_for(|pass| *pass != Pass::Swallow).await;
    if opened.is_ok_and(|pass| *pass == Pass::Nothing) {
        return;
    }
    let Ok(mut to) = TcpStream::connect(target).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => return,
        _ = pass.wait_for(|pass| *pass != Pass::All) => {}
    }
    // Copying was abandoned midway, so this connection is of no use any more; it stays open while bytes are swallowed.
    let _ = pass.wait_for(|pass| *pass != Pass::Swallow).await; // An error says that the test is over.
}

/// Sends each peer's requests through its proxy.
struct Through {
    inner: RaftTransport,
    /// By the address in the membership.
    wires: HashMap<String, SocketAddr>,
}

#[async_trait]
impl Transport for Through {
    async fn call(&self, peer: &Peer, lane: Lane, bytes: Bytes) -> Result<Bytes, TransportError> {
        let mut peer = peer.clone();
        if let Some(wire) = self.wires.get(&peer.address) {
            peer.address = wire.to_string();
        }
        self.inner.call(&peer, lane, bytes).await
    }
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) consensus: Consensus,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

/// Up to seven servers of one datacenter.
pub(crate) struct Servers {
    pub(crate) dir: tempfile::TempDir,
    authority: Option<Authority>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) running: Vec<Option<Running>>,
    /// `wires[from][to]`.
    wires: Vec<Vec<Wire>>,
    pub(crate) multiplier: u32,
    pub(crate) snapshot_threshold: u64,
}

impl Servers {
    /// Prepares `count` servers; none runs yet.
    pub(crate) async fn prepare(count: usize, tls: bool) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("crossway-raft-")
            .tempdir()
            .unwrap();
        let authority = tls.then(|| Authority::new(dir.path(), "ca"));
        let peers: Vec<Peer> = (1..=count).map(peer).collect();
        let mut wires = Vec::new();
        for _ in 0..count {
            let mut row = Vec::new();
            for peer in &peers {
                row.push(Wire::to(peer.address.parse().unwrap()).await);
            }
            wires.push(row);
        }
        Self {
            dir,
            authority,
            running: peers.iter().map(|_| None).collect(),
            peers,
            wires,
            multiplier: 1,
            snapshot_threshold: 16_384,
        }
    }

    /// Starts `count` servers and forms a datacenter of them.
    pub(crate) async fn start(count: usize, tls: bool) -> Self {
        Self::start_slow(count, tls, 1).await
    }

    /// The same with longer waits, for tests that a busy machine must not disturb.
    pub(crate) async fn start_slow(count: usize, tls: bool, multiplier: u32) -> Self {
        let mut servers = Self::prepare(count, tls).await;
        servers.multiplier = multiplier;
        for at in 0..count {
            servers.run(at).await;
        }
        for at in 0..count {
            let formed = servers.at(at).initialize(servers.peers.clone()).await;
            formed.unwrap();
        }
        servers.leader().await;
        servers
    }

    pub(crate) fn at(&self, at: usize) -> &Consensus {
        &self.running[at]
            .as_ref()
            .expect("the server runs")
            .consensus
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Consensus> {
        self.running
            .iter()
            .flatten()
            .map(|running| &running.consensus)
    }

    /// Who signs the servers' certificates.
    pub(crate) fn authority(&self) -> &Authority {
        self.authority.as_ref().expect("there is TLS")
    }

    /// What a server presents and verifies.
    pub(crate) fn tls(&self, at: usize) -> Arc<Tls> {
        let Some(authority) = &self.authority else {
            return Arc::new(Tls::disabled());
        };
        let node = self.peers[at].node.to_string();
        Arc::new(tls(authority, authority.server(&node, "dc1"), "dc1"))
    }

    pub(crate) fn data_dir(&self, at: usize) -> PathBuf {
        self.dir.path().join(self.peers[at].node.as_str())
    }

    pub(crate) fn config(&self, at: usize) -> Config {
        let me = self.peers[at].clone();
        let wires = self.peers.iter().zip(&self.wires[at]);
        let through = Through {
            inner: RaftTransport::new(self.tls(at), me.id.clone(), me.node.clone()),
            wires: wires
                .map(|(peer, wire)| (peer.address.clone(), wire.address))
                .collect(),
        };
        Config {
            data_dir: Some(self.data_dir(at)),
            raft_multiplier: self.multiplier,
            snapshot_threshold: self.snapshot_threshold,
            trailing_logs: 16,
            propose_timeout: Duration::from_secs(5),
            transport: Some(Arc::new(through)),
            ..Config::new(me.id, me.node, me.address)
        }
    }

    /// Starts a server, or starts it again with what is on its disk.
    pub(crate) async fn run(&mut self, at: usize) {
        let consensus = Consensus::open(self.config(at)).await.unwrap();
        let address = self.peers[at].address.parse().unwrap();
        self.running[at] = Some(serve(consensus, address, self.tls(at)));
    }

    /// Ends a server as a kill does: no farewell to anybody.
    pub(crate) async fn kill(&mut self, at: usize) {
        let running = self.running[at].take().expect("the server runs");
        running.end().await;
    }

    /// Waits for the one server that leads and that all running servers follow.
    pub(crate) async fn leader(&self) -> usize {
        self.leader_among(&(0..self.peers.len()).collect::<Vec<_>>())
            .await
    }

    pub(crate) async fn leader_among(&self, among: &[usize]) -> usize {
        let mut found = None;
        let roles = || {
            let role = |at: &usize| {
                self.running[*at]
                    .as_ref()
                    .map(|_| self.at(*at).role().borrow().clone())
            };
            among.iter().map(role).collect::<Vec<_>>()
        };
        until_or("one leader that all follow", roles, || {
            let here: Vec<_> = among
                .iter()
                .copied()
                .filter(|at| self.running[*at].is_some())
                .collect();
            found = here
                .iter()
                .copied()
                .find(|at| self.at(*at).role().borrow().is_leader());
            let Some(leader) = found else { return false };
            here.iter().all(|at| match &*self.at(*at).role().borrow() {
                Role::Leader { .. } => *at == leader,
                Role::Follower {
                    leader: Some(named),
                } => named.id == self.peers[leader].id,
                _ => false,
            })
        })
        .await;
        found.unwrap()
    }

    /// Lets the bytes between two servers pass or not, in both directions.
    pub(crate) fn set_link(&self, a: usize, b: usize, pass: Pass) {
        self.wires[a][b].set(pass);
        self.wires[b][a].set(pass);
    }

    /// The same for all links of a server.
    pub(crate) fn set_links(&self, at: usize, pass: Pass) {
        for other in (0..self.peers.len()).filter(|other| *other != at) {
            self.set_link(at, other, pass);
        }
    }

    pub(crate) async fn end(mut self) {
        for running in self.running.iter_mut().filter_map(Option::take) {
            running.end().await;
        }
    }
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
        let _ = self.consensus.shutdown().await; // Raft may have ended before.
    }
}

/// Opens the RPC port of a server.
pub(crate) fn serve(consensus: Consensus, address: SocketAddr, tls: Arc<Tls>) -> Running {
    let mut plugs = Plugs::default();
    let incoming = plugs.plug(Protocol::Raft, 16);
    let listener = listen(address, "ports.server").unwrap();
    let config = ServerConfig {
        tls,
        limits: Arc::default(),
        plugs,
    };
    let stop = CancellationToken::new();
    let port = rpc::serve(listener, config, NoRpc, Arc::new(Open), stop.clone());
    let raft = serve_raft(consensus.clone(), incoming, stop.clone());
    Running {
        consensus,
        stop,
        tasks: vec![tokio::spawn(port), tokio::spawn(raft)],
    }
}

/// Server `n` at an address of its own.
pub(crate) fn peer(n: usize) -> Peer {
    Peer {
        id: format!("{n:08x}-0000-4000-8000-00000000000{n}").into(),
        node: format!("n{n}").into(),
        address: format!("{}:8300", loopback()),
    }
}

pub(crate) fn tls(authority: &Authority, own: Pair, datacenter: &str) -> Tls {
    let settings = TlsSettings {
        ca_files: vec![authority.file()],
        cert_file: Some(own.cert),
        key_file: Some(own.key),
        verify_incoming: true,
        verify_outgoing: true,
        domain: "consul".to_owned(),
        datacenter: datacenter.to_owned(),
        ..TlsSettings::default()
    };
    Tls::load(settings, SystemTime::now()).unwrap()
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl FnMut() -> bool) {
    until_or(what, || "", holds).await;
}

/// The same, and says how things are when it does not come to hold.
async fn until_or<T: std::fmt::Debug>(
    what: &str,
    state: impl Fn() -> T,
    mut holds: impl FnMut() -> bool,
) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < PATIENCE,
            "not in time: {what}; {:?}",
            state()
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn set(key: &str, value: &str) -> Command {
    Command::Kv(KvOp::Set(KvEntry {
        key: key.into(),
        value: value.as_bytes().to_vec(),
        ..KvEntry::default()
    }))
}

pub(crate) fn get(consensus: &Consensus, key: &str) -> Option<String> {
    let (_, entry) = consensus.store().latest().kv_get(key);
    Some(String::from_utf8(entry?.value.clone()).unwrap())
}
