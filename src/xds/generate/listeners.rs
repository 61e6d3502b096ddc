//! Listeners (LDS): one per address, and in it one filter chain per name that may be asked for.
//!
//! There is no catch-all chain: an SNI that is not meant for this gateway is reset, and none can name a cluster of the
//! bootstrap (C046). Two versions of a listener differ in their filter chains only, so that Envoy changes it in place and
//! drains nothing but the chains that changed (C043).

use crate::proxycfg::{Bind, Topology, sni};
use crate::xds::generate::clusters::pack;
use crate::xds::generate::endpoints::address;
use crate::xds::resources::{Resource, ResourceSet, ResourceType};
use envoy_types::pb::envoy::config::listener::v3::filter::ConfigType;
use envoy_types::pb::envoy::config::listener::v3::listener_filter::ConfigType as ListenerConfigType;
use envoy_types::pb::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter,
};
use envoy_types::pb::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use envoy_types::pb::envoy::extensions::filters::network::sni_cluster::v3::SniCluster;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::ClusterSpecifier;
use std::collections::HashSet;

/// The listeners of a gateway; `federation` if the servers are reached through it.
///
/// Empty while there is nothing to route: Envoy refuses a listener without chains.
pub fn listeners(topology: &Topology, federation: bool, binds: &[Bind]) -> ResourceSet {
    let chains = chains(topology, federation);
    if chains.is_empty() {
        return ResourceSet::new();
    }
    binds.iter().map(|bind| listener(bind, &chains)).collect()
}

/// One filter chain, the same on every address but for its statistics' name.
struct Chain {
    server_names: Vec<String>,
    /// The statistics' name, as what stands before and after the name of the bind.
    stat: (&'static str, Option<String>),
    /// `None`: the cluster with the name that was asked for.
    cluster: Option<String>,
}

/// Other datacenters by name (services, then servers), local servers by name, any local server, local services.
fn chains(topology: &Topology, federation: bool) -> Vec<Chain> {
    let place = &topology.place;
    let (local, domain) = (&*place.datacenter, &*place.domain);
    let mut chains = Vec::new();
    for dc in &topology.remotes {
        if let Some(trust_domain) = &topology.trust_domain {
            let name = sni::datacenter(dc, trust_domain);
            chains.push(named(
                vec![format!("*.{name}")],
                name,
                "mesh_gateway_remote",
                dc,
            ));
        }
        if federation {
            let name = sni::any_server(dc, domain);
            let names = vec![format!("*.{name}")];
            chains.push(named(names, name, "mesh_gateway_remote_server", dc));
        }
    }
    if federation {
        let kind = "mesh_gateway_local_server";
        for server in &topology.servers {
            let name = sni::server(server, local, domain);
            chains.push(named(Vec::new(), name, kind, local));
        }
        if !topology.servers.is_empty() {
            let name = sni::any_server(local, domain);
            chains.push(named(Vec::new(), name, kind, local));
        }
    }
    if let Some(trust_domain) = &topology.trust_domain {
        chains.push(Chain {
            server_names: vec![format!("*.{}", sni::datacenter(local, trust_domain))],
            stat: ("mesh_gateway_local", None),
            cluster: None,
        });
    }
    without_twins(chains)
}

/// A chain to one cluster, for its own name after those given.
fn named(mut names: Vec<String>, cluster: String, kind: &'static str, dc: &str) -> Chain {
    names.push(cluster.clone());
    Chain {
        server_names: names,
        stat: (kind, Some(dc.to_owned())),
        cluster: Some(cluster),
    }
}

/// Keeps the first chain for each name: two equal ones make Envoy refuse the listener. They only arise when the domain
/// ends in the trust domain and a datacenter is called `internal`.
fn without_twins(mut chains: Vec<Chain>) -> Vec<Chain> {
    let mut seen = HashSet::new();
    for chain in &mut chains {
        chain.server_names.retain(|name| seen.insert(name.clone()));
    }
    chains.retain(|chain| !chain.server_names.is_empty());
    chains
}

fn listener(bind: &Bind, chains: &[Chain]) -> Resource {
    let name = format!("{}:{}:{}", bind.name, bind.address, bind.port);
    let inspector = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
    let message = Listener {
        name: name.clone(),
        address: Some(address(bind.address.to_string(), bind.port)),
        listener_filters: vec![ListenerFilter {
            name: "envoy.filters.listener.tls_inspector".to_owned(),
            config_type: Some(ListenerConfigType::TypedConfig(pack(
                inspector,
                &TlsInspector::default(),
            ))),
            ..Default::default()
        }],
        filter_chains: chains.iter().map(|c| filter_chain(c, &bind.name)).collect(),
        ..Default::default()
    };
    Resource::new(ResourceType::Listener, name, &message)
}

fn filter_chain(chain: &Chain, bind: &str) -> FilterChain {
    let (kind, dc) = &chain.stat;
    let stat = match dc {
        Some(dc) => format!("{kind}.{bind}.{dc}"),
        None => format!("{kind}.{bind}"),
    };
    let proxy = TcpProxy {
        stat_prefix: stat.replace(':', "_"),
        cluster_specifier: Some(ClusterSpecifier::Cluster(
            chain.cluster.clone().unwrap_or_default(),
        )),
        ..Default::default()
    };
    let by_sni = chain.cluster.is_none().then(|| {
        filter(
            "envoy.filters.network.sni_cluster",
            pack(
                "envoy.extensions.filters.network.sni_cluster.v3.SniCluster",
                &SniCluster {},
            ),
        )
    });
    let proxy = filter(
        "envoy.filters.network.tcp_proxy",
        pack(
            "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            &proxy,
        ),
    );
    FilterChain {
        filter_chain_match: Some(FilterChainMatch {
            server_names: chain.server_names.clone(),
            ..Default::default()
        }),
        filters: by_sni.into_iter().chain([proxy]).collect(),
        ..Default::default()
    }
}

fn filter(name: &str, config: envoy_types::pb::google::protobuf::Any) -> Filter {
    Filter {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(config)),
    }
}
