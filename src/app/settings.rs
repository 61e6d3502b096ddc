//! The configuration, translated into the settings of each part.

use ::http::HeaderMap;
use ::http::HeaderName;
use anyhow::Context as _;

use crate::api;
use crate::api::agent::Facts;
use crate::api::agent::Ports;
use crate::api::config_entry::normalise;
use crate::config;
use crate::consensus;
use crate::gossip::Advertised;
use crate::gossip::server_tags::AclMode;
use crate::http;
use crate::local;
use crate::local::CheckDefinition;
use crate::local::ServiceDefinition;
use crate::local::checks::Limits;
use crate::model::ConfigEntry;
use crate::model::Datacenter;
use crate::model::NodeId;
use crate::model::NodeName;
use crate::model::catalog::StringMap;
use crate::net::ClientLimit;
use crate::net::TlsSettings;
use crate::net::TlsVersion;
use crate::probe;
use crate::proxycfg::Place;
use crate::reconcile::{Autopilot, OwnServer};
use crate::rpc;

/// The level of Consul's API that clients and peers can count on, as they see it in versions and tags.
pub(crate) const API_LEVEL: &str = "1.8.7";

/// The one key of the CA's configuration that acts.
const CLUSTER_ID: &str = "ClusterID";

pub(crate) fn tls(config: &config::Config) -> TlsSettings {
    let tls = &config.tls;
    TlsSettings {
        ca_files: tls.ca_file.iter().cloned().collect(),
        ca_path: tls.ca_path.clone(),
        cert_file: tls.cert_file.clone(),
        key_file: tls.key_file.clone(),
        verify_incoming: false, // The configuration has folded it into the two that follow.
        verify_incoming_rpc: tls.verify_incoming_rpc,
        verify_incoming_https: tls.verify_incoming_https,
        verify_outgoing: tls.verify_outgoing,
        verify_server_hostname: tls.verify_server_hostname,
        min_version: match tls.min_version {
            config::settings::TlsVersion::Tls12 => TlsVersion::Tls12,
            config::settings::TlsVersion::Tls13 => TlsVersion::Tls13,
        },
        domain: config.identity.domain.clone(),
        datacenter: config.identity.datacenter.clone(),
        node: config.identity.node_name.clone(),
        extra_alpn: Vec::new(),
    }
}

pub(crate) fn consensus(config: &config::Config, id: NodeId) -> consensus::Config {
    consensus::Config {
        data_dir: config.data_dir.clone(),
        bootstrap: config.bootstrap,
        raft_multiplier: config.raft.multiplier,
        snapshot_threshold: config.raft.snapshot_threshold,
        trailing_logs: config.raft.trailing_logs,
        ..consensus::Config::new(
            id,
            node_name(config),
            config.addresses.rpc_advertise.to_string(),
        )
    }
}

pub(crate) fn api(config: &config::Config) -> api::Settings {
    api::Settings {
        datacenter: datacenter(config),
        domain: config.identity.domain.clone(),
        node: node_name(config),
        hold: config.raft.rpc_hold_timeout,
        default_query_time: config.limits.default_query_time,
        max_query_time: config.limits.max_query_time,
        kv_max_value_size: usize::try_from(config.limits.kv_max_value_size).unwrap_or(usize::MAX),
        discovery_max_stale: config.limits.discovery_max_stale,
        ..api::Settings::default()
    }
}

pub(crate) fn http(config: &config::Config, connections: ClientLimit) -> http::Settings {
    let handshake = config.limits.https_handshake_timeout;
    let defaults = http::Settings::default();
    http::Settings {
        connections,
        allow_write_from: config.http.allow_write_from.clone(),
        block_endpoints: config.http.block_endpoints.clone(),
        response_headers: response_headers(config),
        handshake_timeout: if handshake.is_zero() {
            defaults.handshake_timeout
        } else {
            handshake
        },
        ..defaults
    }
}

/// The configuration was checked: there is no pair in it that cannot be a header.
fn response_headers(config: &config::Config) -> HeaderMap {
    let pairs = config.http.response_headers.iter();
    pairs
        .filter_map(|(name, value)| Some((name.parse::<HeaderName>().ok()?, value.parse().ok()?)))
        .collect()
}

pub(crate) fn rpc_limits(config: &config::Config) -> rpc::Limits {
    rpc::Limits {
        handshake_timeout: config.limits.rpc_handshake_timeout,
        max_conns_per_client: config.limits.rpc_max_conns_per_client as usize,
        ..rpc::Limits::default()
    }
}

pub(crate) fn local(config: &config::Config, id: NodeId) -> local::Config {
    let own = own_server(config, id.clone()).registration();
    local::Config {
        data_dir: config.data_dir.clone(),
        check_update_interval: config.checks.update_interval,
        output_max: config.checks.output_max_size,
        discard_output: config.checks.discard_output,
        limits: check_limits(config),
        ..local::Config::new(local::Identity {
            datacenter: datacenter(config),
            node: node_name(config),
            id,
            address: own.address,
            tagged_addresses: own.tagged_addresses,
            meta: own.node_meta,
        })
    }
}

pub(crate) fn own_server(config: &config::Config, id: NodeId) -> OwnServer {
    OwnServer {
        id,
        name: node_name(config),
        datacenter: datacenter(config),
        lan: config.addresses.advertise,
        tagged: config.addresses.tagged.clone(),
        meta: config.identity.node_meta.clone(),
        rpc_port: config.addresses.rpc_advertise.port(),
        version: API_LEVEL.to_owned(),
    }
}

/// What this server says about itself in its pools.
pub(crate) fn advertised(config: &config::Config, id: NodeId) -> Advertised {
    let tls = &config.tls;
    Advertised {
        datacenter: datacenter(config),
        id,
        protocol: config.identity.protocol,
        build: API_LEVEL.to_owned(),
        port: config.addresses.rpc_advertise.port(),
        bootstrap: config.bootstrap,
        expect: config.bootstrap_expect,
        non_voter: false,
        use_tls: tls.has_ca(),
        acls: AclMode::Disabled,
        wan_join_port: config.ports.serf_wan,
    }
}

pub(crate) fn autopilot(config: &config::Config) -> Autopilot {
    let autopilot = &config.autopilot;
    Autopilot {
        cleanup_dead_servers: autopilot.cleanup_dead_servers,
        min_quorum: autopilot.min_quorum,
        stabilization: autopilot.server_stabilization_time,
        max_trailing_logs: autopilot.max_trailing_logs,
    }
}

pub(crate) fn place(config: &config::Config) -> Place {
    Place::new(&datacenter(config), &config.identity.domain)
}

pub(crate) fn datacenter(config: &config::Config) -> Datacenter {
    Datacenter::from(config.identity.datacenter.as_str())
}

pub(crate) fn node_name(config: &config::Config) -> NodeName {
    NodeName::from(config.identity.node_name.as_str())
}

pub(crate) fn probe(config: &config::Config) -> probe::Settings {
    probe::Settings {
        check_update_interval: config.checks.update_interval,
        output_max: config.checks.output_max_size,
        limits: check_limits(config),
    }
}

fn check_limits(config: &config::Config) -> Limits {
    Limits {
        min_deregister_after: config.checks.deregister_interval_min,
        ..Limits::default()
    }
}

/// The entries of `config_entries.bootstrap`.
///
/// # Errors
/// Each wrong one with its file and line.
pub(crate) fn bootstrap_entries(
    config: &config::Config,
) -> Result<Vec<ConfigEntry>, Vec<anyhow::Error>> {
    all(config.bootstrap_entries.iter().map(|definition| {
        let entry = http::decode::config_entry(definition.json.to_string().as_bytes())
            .map_err(anyhow::Error::msg);
        entry
            .and_then(|entry| Ok(normalise(entry)?))
            .with_context(|| format!("{}: config_entries.bootstrap", definition.origin))
    }))
}

/// Everything, or everything that is wrong.
fn all<T>(results: impl Iterator<Item = anyhow::Result<T>>) -> Result<Vec<T>, Vec<anyhow::Error>> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(item) => good.push(item),
            Err(error) => bad.push(error),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

/// Values that are accepted but will act in a coming version only, each with its key.
pub(crate) fn gaps(config: &config::Config) -> Vec<String> {
    let (identity, connect) = (&config.identity, &config.connect);
    let mut gaps = Vec::new();
    if identity.primary_datacenter != identity.datacenter {
        gaps.push(format!(
            "primary_datacenter = {:?}",
            identity.primary_datacenter
        ));
    }
    if connect.ca_provider != "consul" {
        gaps.push(format!("connect.ca_provider = {:?}", connect.ca_provider));
    }
    let others = connect.ca_config.keys().filter(|key| *key != CLUSTER_ID);
    gaps.extend(others.map(|key| format!("connect.ca_config.{key}")));
    gaps
}

/// A cluster id that tests set; federations have a random one.
pub(crate) fn cluster_id(config: &config::Config) -> Option<String> {
    let id = config.connect.ca_config.get(CLUSTER_ID)?;
    id.as_str().map(str::to_owned)
}

pub(crate) fn facts(config: &config::Config) -> Facts {
    let ports = &config.ports;
    Facts {
        api_level: API_LEVEL.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: String::new(),
        ports: Ports {
            http: ports.http.unwrap_or(0),
            https: ports.https.unwrap_or(0),
            grpc: ports.grpc.unwrap_or(0),
            grpc_tls: ports.grpc_tls.unwrap_or(0),
            server: ports.server,
            serf_lan: ports.serf_lan,
            serf_wan: ports.serf_wan.unwrap_or(0),
        },
        tags: StringMap::new(),
        settings: debug_settings(config),
    }
}

/// Settings that tools read from `/v1/agent/self`; `connect envoy` finds the xDS listeners and the domain here.
fn debug_settings(config: &config::Config) -> serde_json::Map<String, serde_json::Value> {
    let addresses = &config.addresses;
    let listed = |list: &[config::settings::ListenAddr]| {
        let shown = list.iter().map(|address| match address {
            config::settings::ListenAddr::Tcp(tcp) => format!("tcp://{tcp}"),
            unix @ config::settings::ListenAddr::Unix(_) => unix.to_string(),
        });
        shown.collect::<Vec<_>>().into()
    };
    let domain = config.identity.domain.trim_end_matches('.');
    let settings = [
        ("DNSDomain", format!("{domain}.").into()),
        ("GRPCAddrs", listed(&addresses.grpc)),
        ("GRPCTLSAddrs", listed(&addresses.grpc_tls)),
        ("HTTPAddrs", listed(&addresses.http)),
        ("HTTPSAddrs", listed(&addresses.https)),
    ];
    settings
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect()
}

/// Services and checks of the configuration files.
///
/// # Errors
/// Each wrong one with its file and line.
pub(crate) fn definitions(
    config: &config::Config,
) -> Result<(Vec<ServiceDefinition>, Vec<CheckDefinition>), Vec<anyhow::Error>> {
    let at = |definition: &config::settings::Definition| definition.origin.to_string();
    let services = all(config.service_definitions.iter().map(|definition| {
        ServiceDefinition::parse(&definition.json).with_context(|| at(definition))
    }));
    let checks = all(config.check_definitions.iter().map(|definition| {
        CheckDefinition::parse(&definition.json).with_context(|| at(definition))
    }));
    match (services, checks) {
        (Ok(services), Ok(checks)) => Ok((services, checks)),
        (services, checks) => Err([services.err(), checks.err()]
            .into_iter()
            .flatten()
            .flatten()
            .collect()),
    }
}
