//! Composition root: builds, starts and stops every part.
//!
//! ```text
//!   config -> ports (bound first: a port in use ends the start) -> data directory
//!          -> TLS, consensus (opens the log), local services -> gossip -> router
//!          -> api -> tasks: rpc, raft, http, https, grpc, grpc-listener, local, leader, gateway-limits, proxy-events,
//!                    members, raft-addresses, join, bootstrap
//!   leave: leadership is handed over -> farewell to gossip -> out of Raft -> drain
//!   stop:  shutdown token -> edges drain, leader's loops are joined -> gossip -> consensus
//! ```
//!
//! While this server leads, the task `leader` also runs `reconcile`, `ca`, `federation` and `probe`. Nothing else is
//! spawned for longer than a connection or a request.

mod addresses;
mod data_dir;
mod expect;
mod leader;
mod leave;
mod operator;
mod pools;
mod ports;
mod reload;
mod settings;
mod tasks;

pub use data_dir::DataDirError;

use crate::api::Api;
use crate::api::agent::{Agent, Control, Departure, Pools as AgentPools, Reload, control};
use crate::api::coordinate;
use crate::api::forward;
use crate::api::snapshot;
use crate::app::expect::Expect;
use crate::app::pools::Pools;
use crate::app::reload::Knobs;
use crate::ca;
use crate::config::Config;
use crate::consensus;
use crate::consensus::Consensus;
use crate::consensus::RaftTransport;
use crate::consensus::Role;
use crate::consensus::serve_raft;
use crate::federation;
use crate::hooks;
use crate::http;
use crate::local;
use crate::local::Local;
use crate::model::NodeId;
use crate::net;
use crate::operator as operator_api;
use crate::probe;
use crate::reconcile;
use crate::router::Router;
use crate::router::Servers;
use crate::rpc;
use crate::xds;
use crate::xds::store_source::StoreSource;
use std::sync::Arc;
use std::time::Duration;
use std::time::SystemTime;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;
use tracing::warn;
use uuid::Uuid;

/// How long the edges may take to end what is under way.
const DRAIN: Duration = Duration::from_secs(5);

/// Raft connections that may wait to be served.
const RAFT_WAITING: usize = 64;

/// How many events of proxies may wait for the leader's prober; when it missed some, it looks at everything.
const PROXY_EVENTS: usize = 1024;

/// Snapshot connections that may wait to be taken.
const SNAPSHOTS_WAITING: usize = 4;

/// A running server.
pub struct App {
    consensus: Consensus,
    leader: forward::Leader,
    tasks: JoinSet<&'static str>,
    shutdown: CancellationToken,
    departure: Departure,
    pools: Pools,
    pool: rpc::Pool,
    servers: Servers,
    own: NodeId,
    drain: Duration,
    knobs: Knobs,
    reloads: mpsc::Receiver<Reload>,
}

/// What a running server needs from the process around it.
#[derive(Debug)]
pub enum Event {
    /// The server cannot go on, for this reason.
    Failed(String),
    /// A client wants the configuration to be read again.
    Reload(Reload),
    /// A client wants the server to leave its datacenter and to stop.
    Leave,
}

impl App {
    /// Starts a server.
    ///
    /// # Errors
    /// What cannot be opened, with its configuration key and what to change. Nothing keeps running then.
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        net::install_crypto_provider();
        anyhow::ensure!(
            config.server,
            "server: Crossway has servers only and no client agents; set server = true"
        );
        for gap in settings::gaps(config) {
            warn!("accepted, but without effect in this version: {gap}");
        }
        let entries = settings::bootstrap_entries(config).map_err(reload::several)?;
        let ports = ports::bind(&config.addresses)?;
        let id = node_id(config)?;
        let tls = reload::load_tls(config)?;
        tls.warnings().iter().for_each(|text| warn!("{text}"));
        ports.edges.check_certificates(&tls)?;
        let local = open_local(config, id.clone()).await?;
        let tls = Arc::new(tls);
        let pool = rpc::Pool::new(tls.clone(), Arc::new(rpc::Lan(tls.clone())));
        let (node, datacenter) = (settings::node_name(config), settings::datacenter(config));
        let raft = Arc::new(RaftTransport::new(tls.clone(), id.clone(), node));
        let leader = forward::Leader::new(pool.clone(), datacenter.clone());
        let consensus = Consensus::open(consensus::Config {
            transport: Some(raft.clone()),
            forward: Some(Arc::new(leader.clone())),
            ..settings::consensus(config, id.clone())
        })
        .await?;
        if let Some(dir) = &config.data_dir {
            data_dir::keep(dir, &id)?;
        }
        let (control, reloads) = control::channel();
        let advertised = settings::advertised(config, id.clone());
        let edition = Arc::new(hooks::Open);
        let pools = Pools::start(config, &advertised, ports.serf_lan, edition).await?;
        let mut app = Self {
            consensus,
            leader,
            tasks: JoinSet::new(),
            shutdown: CancellationToken::new(),
            departure: Departure::default(),
            reloads,
            pools,
            pool,
            servers: Servers::new(Router::new(datacenter)),
            own: id.clone(),
            drain: config.raft.leave_drain_time,
            knobs: Knobs::new(
                config,
                tls,
                settings::own_server(config, id),
                entries,
                local,
            ),
        };
        app.spawn_all(config, ports.edges, control).await;
        app.pools.advertise(&advertised).await;
        let stop = app.shutdown.clone();
        let addresses = addresses::run(app.servers.clone(), raft, stop);
        app.spawn("raft-addresses", addresses);
        app.spawn_pool(config).await?;
        Ok(app)
    }

    /// The replicated log and its state.
    pub fn consensus(&self) -> &Consensus {
        &self.consensus
    }

    /// Puts in force what can change while the server runs; the rest of `config` has to be as at the start, as
    /// [`crate::config::reload`] makes it.
    ///
    /// # Errors
    /// Everything that is wrong with the new settings; the old ones stay in force.
    pub async fn reload(&self, config: &Config) -> anyhow::Result<()> {
        self.knobs.turn(config).await
    }

    /// Waits until the process around the server has to do something.
    pub async fn event(&mut self) -> Event {
        let mut role = self.consensus.role();
        let stopped = async {
            match role.wait_for(|r| matches!(r, Role::Stopped { .. })).await {
                Ok(role) => format!("Raft has stopped: {:?}", *role),
                Err(_) => "Raft has stopped".to_owned(),
            }
        };
        tokio::select! {
            reason = stopped => Event::Failed(reason),
            Some(reply) = self.reloads.recv() => Event::Reload(reply),
            () = self.departure.wanted() => Event::Leave,
            Some(ended) = self.tasks.join_next() => Event::Failed(match ended {
                Ok(name) => format!("the task {name} ended"),
                Err(error) => format!("a task ended: {error}"),
            }),
        }
    }
    /// Stops the server: edges first, then the leader's loops, Raft last. Acknowledged writes are on disk in any case.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            warn!(
                left = self.tasks.len(),
                "some tasks did not end in time and are cut off"
            );
            self.tasks.shutdown().await;
        }
        self.pools.lan().shutdown().await;
        if let Err(error) = self.consensus.shutdown().await {
            warn!(%error, "Raft did not stop cleanly");
        }
        info!("stopped");
    }
}

impl App {
    async fn spawn_all(&mut self, config: &Config, ports: ports::Edges, control: Control) {
        let local = self.knobs.local.clone();
        let (consensus, stop) = (self.consensus.clone(), self.shutdown.clone());
        let store = consensus.store().clone();
        let (ca, orders) = ca::channel();
        let agent = Agent {
            local: local.clone(),
            ca,
            metrics: Some(self.knobs.metrics.clone()),
            facts: Arc::new(settings::facts(config)),
            departure: self.departure.clone(),
            pools: AgentPools {
                lan: Some(self.pools.lan().clone()),
                servers: Some(self.servers.clone()),
                through_gateways: config.federation.through_gateways,
                ..AgentPools::default()
            },
            control,
        };
        let api = Api::with_agent(settings::api(config), consensus.clone(), agent)
            .with_leader(self.leader.clone());
        let (place, size) = (self.pools.lan().clone(), self.pools.lan().clone());
        let coordinates = coordinate::publish(
            api.clone(),
            move || place.coordinate(),
            move || size.members().len(),
            stop.clone(),
        );
        self.spawn("coordinates", coordinates);
        let grpc = ports::Grpc::new(ports.grpc, ports.grpc_tls);
        self.spawn_rpc(ports.rpc, &api);
        self.spawn_http(config, ports.http, ports.https, &api);
        let events = self.spawn_grpc(config, grpc).await;
        self.spawn(
            "local",
            local::run(local, consensus.clone(), store.clone(), stop.clone()),
        );
        let duties = leader::Duties {
            pools: self.pools.clone(),
            reconcile: reconcile::Context {
                consensus: consensus.clone(),
                own: self.knobs.own.subscribe(),
                lan: self.pools.lan().clone(),
                autopilot: settings::autopilot(config),
            },
            entries: self.knobs.entries.subscribe(),
            ca: config.connect.enabled.then(|| ca::leader::Context {
                consensus: consensus.clone(),
                orders: Arc::new(tokio::sync::Mutex::new(orders)),
                datacenter: settings::datacenter(config),
                cluster_id: settings::cluster_id(config),
            }),
            federation: federation::Context {
                consensus: consensus.clone(),
                datacenter: settings::datacenter(config),
                servers: self.servers.clone(),
            },
            probe: settings::probe(config),
            consensus,
            events,
        };
        self.spawn("leader", leader::run(duties, stop.clone()));
        let limits = self.knobs.rpc_limits.clone();
        self.spawn(
            "gateway-limits",
            tasks::follow_gateways(store, limits, stop),
        );
    }

    /// Joins the datacenter, follows its members, and forms it if it has to be.
    async fn spawn_pool(&mut self, config: &Config) -> anyhow::Result<()> {
        let (lan, stop) = (self.pools.lan().clone(), self.shutdown.clone());
        let members = pools::follow_members(lan.clone(), self.servers.clone(), stop.clone());
        self.spawn("members", members);
        let own = reconcile::keep_own_node(self.consensus.clone(), self.knobs.own.subscribe());
        self.spawn("own-node", tasks::until(stop.clone(), own));
        if config.bootstrap_expect > 1 {
            let expect = Expect {
                consensus: self.consensus.clone(),
                pool: self.pool.clone(),
                members: lan.watch(),
                datacenter: settings::datacenter(config),
                own: self.own.clone(),
                servers: config.bootstrap_expect,
            };
            self.spawn("bootstrap", expect::run(expect, stop.clone()));
        }
        pools::join_once(config, &lan).await?;
        let join = pools::join_at_last(config.clone(), lan, stop);
        self.spawn("join", join);
        Ok(())
    }

    fn spawn_rpc(&mut self, listener: tokio::net::TcpListener, api: &Api) {
        let mut plugs = rpc::Plugs::default();
        let raft = plugs.plug(rpc::Protocol::Raft, RAFT_WAITING);
        let served = serve_raft(self.consensus.clone(), raft, self.shutdown.clone());
        self.spawn("raft", served);
        let snapshots = plugs.plug(rpc::Protocol::Snapshot, SNAPSHOTS_WAITING);
        let config = rpc::ServerConfig {
            tls: self.knobs.tls.clone(),
            limits: self.knobs.rpc_limits.clone(),
            plugs,
        };
        let (api, stop) = (api.clone(), self.shutdown.clone());
        self.spawn(
            "snapshots",
            snapshot::serve(api.clone(), snapshots, stop.clone()),
        );
        self.spawn(
            "rpc",
            rpc::serve(listener, config, api, Arc::new(hooks::Open), stop),
        );
    }

    fn spawn_http(
        &mut self,
        config: &Config,
        plain: Vec<tokio::net::TcpListener>,
        tls: Vec<tokio::net::TcpListener>,
        api: &Api,
    ) {
        let connections = self.knobs.http_connections.clone();
        let server = http::Server::new(api.clone(), settings::http(config, connections));
        for listener in plain {
            let stop = self.shutdown.clone();
            self.spawn("http", server.clone().serve(listener, None, stop));
        }
        for listener in tls {
            let (newest, stop) = (self.knobs.https.as_ref(), self.shutdown.clone());
            let newest = newest.map(watch::Sender::subscribe);
            self.spawn("https", server.clone().serve(listener, newest, stop));
        }
    }

    /// Serves xDS and its companions; answers where events of proxies can be subscribed to.
    async fn spawn_grpc(
        &mut self,
        config: &Config,
        grpc: ports::Grpc,
    ) -> broadcast::Sender<probe::ProxyEvent> {
        let store = self.consensus.store().clone();
        let source = StoreSource::new(store.clone(), settings::place(config));
        let server = xds::Server::new(
            source,
            xds::server::Settings::default(),
            self.shutdown.clone(),
        )
        .with_service_name(operator_api::SERVICE_NAME);
        let stop = self.shutdown.clone();
        let backend = operator::StateBackend::new(store, server.registry().clone(), stop);
        let service = operator_api::Service::server(backend);
        let routes = server.routes().await.add_service(service);
        let (sender, _) = broadcast::channel(PROXY_EVENTS);
        let events = tasks::forward_proxy_events(server.registry().events(), sender.clone());
        self.spawn("proxy-events", tasks::until(self.shutdown.clone(), events));
        let (tls, stop) = (self.knobs.tls.clone(), self.shutdown.clone());
        let limit = self.knobs.grpc_connections.clone();
        let connections = grpc.accept(&tls, &limit, &stop, &mut |task| {
            self.spawn("grpc-listener", task);
        });
        self.spawn("grpc", async move {
            if let Err(error) = xds::server::serve(routes, connections, stop).await {
                warn!(%error, "the gRPC server ended");
            }
        });
        sender
    }

    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            task.await;
            name
        });
    }
}

fn node_id(config: &Config) -> anyhow::Result<NodeId> {
    let configured = config.identity.node_id.as_deref();
    match &config.data_dir {
        Some(dir) => Ok(data_dir::prepare(dir, configured)?),
        None => Ok(configured.map_or_else(|| Uuid::new_v4().to_string().into(), NodeId::from)),
    }
}

/// Loads the services and checks that the data directory and the configuration hold. One that cannot be read is left out
/// and named; a wrong one of the configuration ends the start.
async fn open_local(config: &Config, id: NodeId) -> anyhow::Result<Local> {
    let (local, damaged) = Local::open(settings::local(config, id))?;
    damaged.iter().for_each(|error| warn!(%error, "not loaded"));
    let configured = reload::judge(&local, config).map_err(reload::several)?;
    local.configure(configured).await?;
    Ok(local)
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> SystemTime {
    SystemTime::now()
}
