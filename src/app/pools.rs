//! The gossip pools of this server: set up, joined, and brought into the router.

use crate::app::settings;
use crate::config::Config;
use crate::discovery::{Environment, Exhausted, Joined, RetryJoin, Schedule, Source, retry_join};
use crate::gossip::wire::{Key, Keyring};
use crate::gossip::{self, Advertised, Gossip, Inbox, Scope, Target, UdpTcp};
use crate::hooks::Edition;
use crate::model::NodeName;
use crate::router::{Area, LanAdmission, Servers};
use anyhow::Context as _;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

/// The event with which Consul's agents hear of a new leader.
const NEW_LEADER: &str = "consul:new-leader";

/// The pools. What this server says about itself changes in all of them through [`Pools::advertise`].
#[derive(Clone)]
pub(super) struct Pools {
    lan: Gossip,
    edition: Arc<dyn Edition>,
}

impl Pools {
    /// Starts the pool of the datacenter.
    pub(super) async fn start(
        config: &Config,
        own: &Advertised,
        (transport, inbox): (UdpTcp, Inbox),
        edition: Arc<dyn Edition>,
    ) -> anyhow::Result<Self> {
        let admission = LanAdmission {
            datacenter: own.datacenter.clone(),
            id: own.id.clone(),
            node: settings::node_name(config),
            allowed: config.addresses.serf_lan_allowed.clone(),
        };
        let settings = lan(config, own, &*edition)?;
        let lan = Gossip::start(settings, Arc::new(transport), inbox, Arc::new(admission));
        let lan = lan
            .await
            .context("gossip of the datacenter does not start")?;
        Ok(Self { lan, edition })
    }

    /// The pool of the datacenter.
    pub(super) fn lan(&self) -> &Gossip {
        &self.lan
    }

    /// Says what there is to say about this server in every pool where that is news.
    pub(super) async fn advertise(&self, own: &Advertised) {
        let tags = own.tags(Scope::Lan, &*self.edition);
        let members = self.lan.members();
        let said = members
            .iter()
            .find(|member| member.name == *self.lan.name());
        if said.is_none_or(|said| said.tags != tags)
            && let Err(error) = self.lan.set_tags(tags).await
        {
            warn!(%error, "the new tags are not advertised");
        }
        let wide = own.tags(Scope::Wide, &*self.edition);
        let wide = wide.iter().map(|(k, v)| (k.to_owned(), v.to_owned()));
        let wide = wide.collect();
        for pool in self.edition.extra_pools() {
            self.edition.advertise(&pool, &wide);
        }
    }

    /// Tells all agents of the datacenter that this server leads.
    pub(super) async fn announce_leader(&self, node: &NodeName) {
        let payload = node.to_string().into();
        if let Err(error) = self.lan.user_event(NEW_LEADER, payload, false).await {
            warn!(%error, "the agents are not told of the new leader");
        }
    }
}

/// How the pool of the datacenter is set up.
fn lan(config: &Config, own: &Advertised, edition: &dyn Edition) -> anyhow::Result<gossip::Config> {
    let (name, at) = (
        settings::node_name(config),
        config.addresses.serf_lan_advertise,
    );
    let keys = &config.gossip;
    let mut lan = gossip::Config::new(name, at, own.tags(Scope::Lan, edition));
    lan.verify_incoming = keys.encrypt_verify_incoming;
    lan.verify_outgoing = keys.encrypt_verify_outgoing;
    lan.serf.rejoin_after_leave = config.rejoin_after_leave;
    lan.serf.timing.reconnect_timeout = config.join.reconnect_timeout;
    lan.serf.keyring = match &keys.encrypt {
        Some(key) => Some(Keyring::new(Key::new(key).context("encrypt")?)),
        None => None,
    };
    let timing = &mut lan.serf.swim.timing;
    timing.gossip_nodes = keys.lan.gossip_nodes as usize;
    timing.gossip_interval = keys.lan.gossip_interval;
    timing.probe_interval = keys.lan.probe_interval;
    timing.probe_timeout = keys.lan.probe_timeout;
    timing.suspicion_mult = keys.lan.suspicion_mult;
    timing.retransmit_mult = keys.lan.retransmit_mult;
    if let Some(dir) = config.data_dir.as_ref().filter(|_| !config.dev) {
        let folder = dir.join("serf");
        lan.snapshot_file = Some(folder.join("local.snapshot"));
        lan.keyring_file = (!keys.disable_keyring_file).then(|| folder.join("local.keyring"));
    }
    Ok(lan)
}

/// Joins once, for `start_join`.
///
/// # Errors
/// When nobody answered.
pub(super) async fn join_once(config: &Config, lan: &Gossip) -> anyhow::Result<()> {
    let never = CancellationToken::new();
    let sources = config.join.start.clone();
    join(config, lan, sources, Schedule::once(), &never)
        .await
        .context("start_join")?;
    Ok(())
}

/// Joins until somebody answers, for `retry_join`. Ends before `stop` when `retry_max` is used up, which ends the server.
pub(super) async fn join_at_last(config: Config, lan: Gossip, stop: CancellationToken) {
    let sources = config.join.retry.clone();
    let schedule = Schedule::retries(config.join.retry_interval, config.join.retry_max);
    match join(&config, &lan, sources, schedule, &stop).await {
        Ok(_) => stop.cancelled().await,
        Err(exhausted) => error!("{exhausted}"),
    }
}

async fn join(
    config: &Config,
    lan: &Gossip,
    sources: Vec<Source>,
    schedule: Schedule,
    stop: &CancellationToken,
) -> Result<Joined, Exhausted> {
    let what = RetryJoin {
        pool: "LAN",
        sources,
        default_port: config.addresses.serf_lan_advertise.port(),
        schedule,
    };
    let environment = Environment::system();
    let contact = async |found: Vec<crate::discovery::Found>| {
        let targets: Vec<_> = found
            .into_iter()
            .map(|found| Target {
                name: found.node.unwrap_or_default(),
                address: found.address,
            })
            .collect();
        let joined = lan.join(&targets).await;
        joined.map_err(|error| error.to_string())
    };
    retry_join(&what, &environment, contact, stop).await
}

/// Keeps the router true to the members.
pub(super) async fn follow_members(lan: Gossip, servers: Servers, stop: CancellationToken) {
    let mut members = lan.watch();
    loop {
        let now = members.borrow_and_update().clone();
        servers.update(&Area::Lan, &now);
        tokio::select! {
            changed = members.changed() => if changed.is_err() {
                // The pool has ended: the server is stopping.
                return stop.cancelled().await;
            },
            () = stop.cancelled() => return,
        }
    }
}
