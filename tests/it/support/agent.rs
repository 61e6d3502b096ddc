//! A server in this process with a local agent, a CA and the leader's prober, behind real HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use crate::support::http::{self, PATIENCE, Response};
use crossway::api::agent::{Agent, Facts, Pools, Ports, control};
use crossway::api::{Api, Settings as ApiSettings};
use crossway::ca;
use crossway::consensus::{Config as RaftConfig, Consensus};
use crossway::http::{Server, Settings};
use crossway::local::checks::Limits;
use crossway::local::{self, Config, Identity, Local};
use crossway::probe::{self, ProxyEvent};
use crossway::store::State;
use crossway::telemetry;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, broadcast};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) const NODE_ID: &str = "ddd6fddd-b174-f428-7633-0e0dabed6a2c";

pub(crate) struct AgentServer {
    pub(crate) api: Api,
    pub(crate) local: Local,
    pub(crate) consensus: Consensus,
    pub(crate) events: broadcast::Sender<ProxyEvent>,
    pub(crate) problems: Vec<String>,
    address: SocketAddr,
    tasks: JoinSet<()>,
}

/// Checks may run more often and services go sooner than in earnest.
pub(crate) fn hasty() -> Limits {
    Limits {
        min_interval: Duration::from_millis(20),
        min_deregister_after: Duration::from_millis(20),
    }
}

impl AgentServer {
    pub(crate) async fn start(node: &str, data_dir: Option<&Path>) -> Self {
        Self::start_in(node, data_dir, Pools::default()).await
    }

    /// A server that is in these pools.
    pub(crate) async fn start_in(node: &str, data_dir: Option<&Path>, pools: Pools) -> Self {
        let consensus = consensus(node).await;
        let (local, problems) = Local::open(config(node, data_dir)).unwrap();
        let (ca, orders) = ca::channel();
        let agent = Agent {
            local: local.clone(),
            ca,
            metrics: Some(telemetry::init_metrics(&Default::default())),
            facts: Arc::new(facts()),
            departure: Default::default(),
            pools,
            control: control::channel().0,
        };
        let settings = ApiSettings {
            datacenter: "dc1".into(),
            node: node.into(),
            ..ApiSettings::default()
        };
        let api = Api::with_agent(settings, consensus.clone(), agent);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (events, _) = broadcast::channel(16);
        let mut server = Self {
            api: api.clone(),
            local: local.clone(),
            consensus: consensus.clone(),
            problems: problems.iter().map(ToString::to_string).collect(),
            events,
            address,
            tasks: JoinSet::new(),
        };
        let http = Server::new(api, Settings::default());
        let never = CancellationToken::new();
        server
            .tasks
            .spawn(http.serve(listener, None, never.clone()));
        let store = consensus.store().clone();
        server.tasks.spawn(local::run(
            local,
            consensus.clone(),
            store.clone(),
            never.clone(),
        ));
        server.tasks.spawn(probe::run_leader(probe::Context {
            writer: consensus.clone(),
            store,
            events: server.events.subscribe(),
            settings: probe::Settings {
                limits: hasty(),
                ..probe::Settings::default()
            },
            cancel: never,
        }));
        server.tasks.spawn(ca::leader::run(ca::leader::Context {
            consensus,
            orders: Arc::new(Mutex::new(orders)),
            datacenter: "dc1".into(),
            cluster_id: None,
        }));
        server
    }

    /// Where its HTTP is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends everything without a good-bye.
    pub(crate) async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Response {
        let request = http::message(method, path, "", body.as_bytes());
        Response::parse(&http::exchange(self.address, &request).await)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, "").await
    }

    #[track_caller]
    pub(crate) fn put(&self, path: &str, body: &Value) -> impl Future<Output = ()> {
        let (path, body) = (path.to_owned(), body.to_string());
        async move {
            let response = self.send("PUT", &path, &body).await;
            assert_eq!(response.status, 200, "{path}: {}", response.text());
        }
    }

    /// Waits until the catalog shows something.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&State) -> bool) {
        use crossway::store::Topic;
        let store = self.consensus.store();
        let mut watch = store.watch([Topic::Nodes, Topic::Services, Topic::Checks]);
        let wait = async {
            while !holds(&store.latest()) {
                watch.changed().await;
            }
        };
        assert!(timeout(PATIENCE, wait).await.is_ok(), "{what}");
    }
}

async fn consensus(node: &str) -> Consensus {
    let mut raft = RaftConfig::new(NODE_ID.into(), node.into(), "10.71.0.11:8300");
    raft.bootstrap = true;
    Consensus::open(raft).await.unwrap()
}

fn config(node: &str, data_dir: Option<&Path>) -> Config {
    let identity = Identity {
        datacenter: "dc1".into(),
        node: node.into(),
        id: NODE_ID.into(),
        address: "10.71.0.11".into(),
        tagged_addresses: ["lan", "lan_ipv4", "wan", "wan_ipv4"]
            .map(|name| (name.to_owned(), "10.71.0.11".to_owned()))
            .into(),
        meta: [("consul-network-segment".to_owned(), String::new())].into(),
    };
    let mut config = Config::new(identity);
    config.data_dir = data_dir.map(Into::into);
    config.limits = hasty();
    config.check_update_interval = Duration::ZERO;
    config
}

fn facts() -> Facts {
    let tags = [
        ("acls", "0"),
        ("bootstrap", "1"),
        ("build", "1.8.7:"),
        ("dc", "dc1"),
        ("ft_fs", "1"),
        ("id", NODE_ID),
        ("port", "8300"),
        ("raft_vsn", "3"),
        ("role", "consul"),
        ("segment", ""),
        ("use_tls", "1"),
        ("vsn", "2"),
        ("vsn_max", "3"),
        ("vsn_min", "2"),
        ("wan_join_port", "8302"),
    ];
    Facts {
        api_level: "1.8.7".to_owned(),
        version: "0.1.0".to_owned(),
        ports: Ports {
            http: 8500,
            https: 0,
            grpc: 8502,
            grpc_tls: 0,
            server: 8300,
            serf_lan: 8301,
            serf_wan: 8302,
        },
        tags: tags
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..Facts::default()
    }
}
