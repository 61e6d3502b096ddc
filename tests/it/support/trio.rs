//! Servers of one datacenter in this process: real RPC and HTTP ports, and Raft over memory, which can be cut.

use async_trait::async_trait;
use bytes::Bytes;
use crossway::api::agent::{Agent, Departure, Pools};
use crossway::api::forward::Leader;
use crossway::api::{Api, Settings};
use crossway::ca;
use crossway::consensus::{Config, Consensus, Lane, Peer, Role, Transport, TransportError};
use crossway::http;
use crossway::local::{self, Local};
use crossway::model::KvEntry;
use crossway::net::Tls;
use crossway::rpc::{self, Lan, Pool};
use crossway::store::{Command, KvOp};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::support::server::PATIENCE;

/// Joins the servers' Rafts by address. One that is cut off neither sends nor receives.
#[derive(Default)]
struct Wire {
    servers: Mutex<HashMap<String, Consensus>>,
    cut: Mutex<HashSet<String>>,
}

struct End {
    me: String,
    wire: Arc<Wire>,
}

#[async_trait]
impl Transport for End {
    async fn call(&self, peer: &Peer, _: Lane, request: Bytes) -> Result<Bytes, TransportError> {
        let server = self.wire.servers.lock().get(&peer.address).cloned();
        let cut = |address: &String| self.wire.cut.lock().contains(address);
        match server {
            Some(server) if !cut(&self.me) && !cut(&peer.address) => server.receive(request).await,
            _ => Err(TransportError(format!("{peer} is not reachable"))),
        }
    }
}

/// One server.
pub(crate) struct Node {
    pub(crate) api: Api,
    pub(crate) consensus: Consensus,
    pub(crate) http: SocketAddr,
    pub(crate) pool: Pool,
    pub(crate) peer: Peer,
    stop: Option<DropGuard>,
}

impl Node {
    /// Ends its ports, as a kill does.
    pub(crate) fn kill_ports(&mut self) {
        self.stop = None;
    }
}

/// The servers of `dc1`: `n1` began it.
pub(crate) struct Trio {
    pub(crate) nodes: Vec<Node>,
    wire: Arc<Wire>,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn index(&self) -> u64 {
        self.header("x-consul-index").parse().unwrap()
    }
}

impl Trio {
    pub(crate) async fn start() -> Self {
        Self::with(&Settings::default()).await
    }

    pub(crate) async fn with(settings: &Settings) -> Self {
        let wire = Arc::new(Wire::default());
        let mut nodes = Vec::new();
        for n in 1..=3 {
            let node = start(&wire, n, settings).await;
            nodes.push(node);
            if n == 1 {
                eventually("n1 leads", || {
                    nodes[0].consensus.role().borrow().is_leader()
                })
                .await;
            } else {
                let peer = nodes[n - 1].peer.clone();
                nodes[0].consensus.add_server(peer).await.unwrap();
            }
        }
        let trio = Self {
            nodes,
            wire,
            client: Client::builder(hyper_util::rt::TokioExecutor::new()).build_http(),
        };
        for follower in 1..3 {
            let node = &trio.nodes[follower];
            eventually("the leader is known", || node.consensus.leader().is_some()).await;
        }
        trio
    }

    /// Cuts a server's Raft off from the others; its ports stay.
    pub(crate) fn cut(&self, at: usize) {
        self.wire
            .cut
            .lock()
            .insert(self.nodes[at].peer.address.clone());
    }

    pub(crate) fn heal(&self) {
        self.wire.cut.lock().clear();
    }

    /// Waits until one of these servers leads.
    pub(crate) async fn leader(&self, among: &[usize]) -> usize {
        let mut found = None;
        eventually("a leader among them", || {
            let leads = |at: &&usize| self.nodes[**at].consensus.role().borrow().is_leader();
            found = among.iter().find(leads).copied();
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    pub(crate) async fn send(&self, at: usize, method: &str, path: &str, body: &str) -> Answer {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let (status, headers, body) = self.send_bytes(at, method, path, body).await;
        Answer {
            status,
            headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn send_bytes(
        &self,
        at: usize,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> (u16, HashMap<String, String>, Bytes) {
        let request = ::http::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.nodes[at].http))
            .body(Full::new(body))
            .unwrap();
        let response = timeout(PATIENCE, self.client.request(request)).await;
        let response = response.unwrap().unwrap();
        let headers = response.headers().iter();
        let headers = headers.map(|(k, v)| (k.to_string(), v.to_str().unwrap().to_owned()));
        let (status, headers) = (response.status().as_u16(), headers.collect());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, headers, body)
    }

    pub(crate) async fn get(&self, at: usize, path: &str) -> Answer {
        self.send(at, "GET", path, "").await
    }

    pub(crate) async fn put(&self, at: usize, path: &str, body: &str) -> Answer {
        self.send(at, "PUT", path, body).await
    }
}

async fn start(wire: &Arc<Wire>, n: usize, settings: &Settings) -> Node {
    let rpc_port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http_port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rpc = rpc_port.local_addr().unwrap();
    let peer = Peer {
        id: format!("{n:08x}-0000-4000-8000-00000000000{n}").into(),
        node: format!("n{n}").into(),
        address: rpc.to_string(),
    };
    let tls = Arc::new(Tls::disabled());
    let pool = Pool::new(tls.clone(), Arc::new(Lan(tls.clone())));
    let end = End {
        me: peer.address.clone(),
        wire: wire.clone(),
    };
    let forward = Leader::new(pool.clone(), "dc1".into());
    let consensus = Consensus::open(Config {
        bootstrap: n == 1,
        raft_multiplier: 2,
        transport: Some(Arc::new(end)),
        forward: Some(Arc::new(forward.clone())),
        ..Config::new(peer.id.clone(), peer.node.clone(), peer.address.clone())
    })
    .await
    .unwrap();
    let servers = &mut *wire.servers.lock();
    servers.insert(peer.address.clone(), consensus.clone());
    let settings = Settings {
        node: peer.node.clone(),
        ..settings.clone()
    };
    let stop = CancellationToken::new();
    let agent = agent(&peer, &consensus, &stop);
    let api = Api::with_agent(settings, consensus.clone(), agent).with_leader(forward);
    let mut plugs = rpc::Plugs::default();
    let snapshots = plugs.plug(rpc::Protocol::Snapshot, 4);
    let config = rpc::ServerConfig {
        tls,
        limits: Arc::default(),
        plugs,
    };
    tokio::spawn(crossway::api::snapshot::serve(
        api.clone(),
        snapshots,
        stop.clone(),
    ));
    let edition = Arc::new(crossway::hooks::Open);
    tokio::spawn(rpc::serve(
        rpc_port,
        config,
        api.clone(),
        edition,
        stop.clone(),
    ));
    let server = http::Server::new(api.clone(), http::Settings::default());
    let http = http_port.local_addr().unwrap();
    tokio::spawn(server.serve(http_port, None, stop.clone()));
    Node {
        api,
        consensus,
        http,
        pool,
        peer,
        stop: Some(stop.drop_guard()),
    }
}

/// A server's own services, kept in the catalog, and the CA, which works while it leads.
fn agent(peer: &Peer, consensus: &Consensus, stop: &CancellationToken) -> Agent {
    let identity = local::Identity {
        datacenter: "dc1".into(),
        node: peer.node.clone(),
        id: peer.id.clone(),
        address: "127.0.0.1".to_owned(),
        ..local::Identity::default()
    };
    let (local, _) = Local::open(local::Config::new(identity)).unwrap();
    let store = consensus.store().clone();
    let sync = local::run(local.clone(), consensus.clone(), store, stop.clone());
    tokio::spawn(sync);
    let (ca, orders) = ca::channel();
    let duty = ca::leader::Context {
        consensus: consensus.clone(),
        orders: Arc::new(tokio::sync::Mutex::new(orders)),
        datacenter: "dc1".into(),
        cluster_id: None,
    };
    let (mut role, stop) = (consensus.role(), stop.clone());
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        while role.wait_for(Role::is_leader).await.is_ok() {
            tokio::select! {
                () = ca::leader::run(duty.clone()) => {}
                _ = role.wait_for(|role| !role.is_leader()) => {}
            }
        }
    }));
    Agent {
        local,
        ca,
        metrics: None,
        facts: Arc::default(),
        control: crossway::api::agent::control::channel().0,
        departure: Departure::default(),
        pools: Pools::default(),
    }
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let wait = timeout(PATIENCE, async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    wait.await.unwrap_or_else(|_| panic!("{what}"));
}

/// A write to the key/value store.
pub(crate) fn set(key: &str, value: &str) -> Command {
    Command::Kv(KvOp::Set(KvEntry {
        key: key.into(),
        value: value.as_bytes().to_vec(),
        ..KvEntry::default()
    }))
}
