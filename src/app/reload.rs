//! What a reload puts in force in a running server: all of it, or nothing.

use crate::app::{now, settings};
use crate::config::Config;
use crate::local::Local;
use crate::local::state::Configured;
use crate::model::ConfigEntry;
use crate::net::{ClientLimit, Tls};
use crate::reconcile::OwnServer;
use crate::rpc;
use crate::telemetry::{self, Metrics};
use anyhow::Context as _;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use std::sync::Arc;
use tokio::sync::watch;

/// The places where parts of the server look for what may change.
pub(super) struct Knobs {
    pub(super) tls: Arc<Tls>,
    /// `None` when the server started without a certificate.
    pub(super) https: Option<watch::Sender<Arc<ServerConfig>>>,
    pub(super) rpc_limits: Arc<ArcSwap<rpc::Limits>>,
    pub(super) http_connections: ClientLimit,
    pub(super) grpc_connections: ClientLimit,
    pub(super) own: watch::Sender<OwnServer>,
    pub(super) entries: watch::Sender<Arc<Vec<ConfigEntry>>>,
    pub(super) local: Local,
    pub(super) metrics: Metrics,
}

impl Knobs {
    /// All knobs as the configuration of the start has them.
    pub(super) fn new(
        config: &Config,
        tls: Arc<Tls>,
        own: OwnServer,
        entries: Vec<ConfigEntry>,
        local: Local,
    ) -> Self {
        let connections = |limit: u32| ClientLimit::new(limit as usize);
        Self {
            https: tls.https_server().map(watch::Sender::new),
            tls,
            rpc_limits: Arc::new(ArcSwap::from_pointee(settings::rpc_limits(config))),
            http_connections: connections(config.limits.http_max_conns_per_client),
            grpc_connections: connections(config.limits.grpc_max_conns_per_client),
            own: watch::Sender::new(own),
            entries: watch::Sender::new(Arc::new(entries)),
            local,
            metrics: telemetry::init_metrics(&(&config.telemetry).into()),
        }
    }

    /// # Errors
    /// Everything that is wrong with the new configuration; nothing has changed then.
    pub(super) async fn turn(&self, config: &Config) -> anyhow::Result<()> {
        let judged = (
            load_tls(config),
            judge(&self.local, config),
            settings::bootstrap_entries(config),
        );
        let (tls, configured, entries) = match judged {
            (Ok(tls), Ok(configured), Ok(entries)) => (tls, configured, entries),
            (tls, configured, entries) => {
                let problems = [tls.err().map(|e| vec![e]), configured.err(), entries.err()];
                return Err(several(problems.into_iter().flatten().flatten().collect()));
            }
        };
        self.local.configure(configured).await?; // The last that can fail.
        self.tls.adopt(tls);
        if let (Some(sender), Some(newest)) = (&self.https, self.tls.https_server()) {
            sender.send_replace(newest);
        }
        self.rpc_limits.rcu(|old| rpc::Limits {
            gateways: old.gateways.clone(),
            ..settings::rpc_limits(config)
        });
        self.http_connections
            .set(config.limits.http_max_conns_per_client as usize);
        self.grpc_connections
            .set(config.limits.grpc_max_conns_per_client as usize);
        self.metrics.set_filter(&(&config.telemetry).into());
        self.own
            .send_modify(|own| own.meta.clone_from(&config.identity.node_meta));
        let meta = self.own.borrow().registration().node_meta;
        self.local.tune(config.checks.discard_output, meta);
        self.entries.send_replace(Arc::new(entries));
        Ok(())
    }
}

/// The certificates and keys that a configuration names, judged.
pub(super) fn load_tls(config: &Config) -> anyhow::Result<Tls> {
    let tls = Tls::load(settings::tls(config), now()).context("the TLS settings do not work")?;
    if config.federation.through_gateways {
        tls.check_server_names()?;
    }
    Ok(tls)
}

/// The services and checks that a configuration defines, judged.
pub(super) fn judge(local: &Local, config: &Config) -> Result<Configured, Vec<anyhow::Error>> {
    let (services, checks) = settings::definitions(config)?;
    let refused = |problem| anyhow::Error::new(problem).context("a definition is refused");
    local
        .judge(services, checks)
        .map_err(|problems| problems.into_iter().map(refused).collect())
}

/// One error that says all of them.
pub(super) fn several(problems: Vec<anyhow::Error>) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|error| format!("{error:#}")).collect();
    anyhow::Error::msg(lines.join("; "))
}
