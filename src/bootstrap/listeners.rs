//! Static listeners: Prometheus, plain statistics and readiness, with the clusters they forward to.

use crate::bootstrap::Error;
use crate::bootstrap::Options;
use crate::bootstrap::ProxyConfig;
use crate::bootstrap::ServerTls;
use crate::bootstrap::set;
use crate::bootstrap::socket_address;
use serde_json::Value;
use serde_json::json;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;

/// Cluster that leads to Envoy's own admin interface.
const SELF_ADMIN: &str = "self_admin";
/// Cluster of a program that answers Prometheus for Envoy and the application together.
const PROMETHEUS_BACKEND: &str = "prometheus_backend";

/// Static listeners and the clusters they need.
#[derive(Debug, Default)]
pub(super) struct Statics {
    pub(super) listeners: Vec<Value>,
    pub(super) clusters: Vec<Value>,
}

/// What one of these listeners does: requests with the path `from` go to `cluster` as the path `to`.
struct Forward<'a> {
    name: &'a str,
    bind: SocketAddr,
    from: Match<'a>,
    to: &'a str,
    cluster: &'a str,
    tls: Option<&'a ServerTls>,
}

enum Match<'a> {
    Path(&'a str),
    Prefix(&'a str),
}

/// The listeners that flags and the proxy's configuration ask for.
pub(super) fn statics(options: &Options, config: ProxyConfig<'_>) -> Result<Statics, Error> {
    let prometheus = bind(config, "envoy_prometheus_bind_addr")?;
    let stats = bind(config, "envoy_stats_bind_addr")?;
    let flags = &options.stats;
    let mut forwards = Vec::new();
    if let Some(bind) = prometheus {
        let backend = flags.prometheus_backend_port.is_some();
        forwards.push(Forward {
            name: "envoy_prometheus_metrics_listener",
            bind,
            from: Match::Path(&flags.prometheus_scrape_path),
            to: if backend {
                &flags.prometheus_scrape_path
            } else {
                "/stats/prometheus"
            },
            cluster: if backend {
                PROMETHEUS_BACKEND
            } else {
                SELF_ADMIN
            },
            tls: flags.prometheus_tls.as_ref(),
        });
    }
    if let Some(bind) = stats {
        forwards.push(Forward {
            name: "envoy_metrics_listener",
            bind,
            from: Match::Prefix("/stats"),
            to: "/stats",
            cluster: SELF_ADMIN,
            tls: None,
        });
    }
    if let Some(bind) = options.ready {
        forwards.push(Forward {
            name: "envoy_ready_listener",
            bind,
            from: Match::Path("/ready"),
            to: "/ready",
            cluster: SELF_ADMIN,
            tls: None,
        });
    }
    let mut statics = Statics::default();
    if forwards.iter().any(|f| f.cluster == SELF_ADMIN) {
        statics
            .clusters
            .push(static_cluster(SELF_ADMIN, options.admin));
    }
    if let Some(port) = flags.prometheus_backend_port
        && prometheus.is_some()
    {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
        statics
            .clusters
            .push(static_cluster(PROMETHEUS_BACKEND, address));
    }
    statics.listeners = forwards.iter().map(listener).collect();
    Ok(statics)
}

fn bind(config: ProxyConfig<'_>, key: &str) -> Result<Option<SocketAddr>, Error> {
    let parse = |text: &str| {
        text.parse()
            .map_err(|_| Error::key(key, &text.into(), "write ip:port, for example 0.0.0.0:9102"))
    };
    config.text(key)?.map(parse).transpose()
}

fn static_cluster(name: &str, address: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "ignore_health_on_host_removal": false,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket_address(&address) } }] }],
        },
    })
}

fn listener(forward: &Forward<'_>) -> Value {
    let matcher = match forward.from {
        Match::Path(path) => json!({ "path": path }),
        Match::Prefix(prefix) => json!({ "prefix": prefix }),
    };
    let mut chain = json!({ "filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": forward.name,
            "codec_type": "HTTP1",
            "route_config": {
                "name": forward.name,
                "virtual_hosts": [{
                    "name": SELF_ADMIN,
                    "domains": ["*"],
                    "routes": [
                        { "match": matcher, "route": { "cluster": forward.cluster, "prefix_rewrite": forward.to } },
                        { "match": { "prefix": "/" }, "direct_response": { "status": 404 } },
                    ],
                }],
            },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
            }],
        },
    }]});
    set(
        &mut chain,
        "transport_socket",
        forward.tls.map(transport_socket),
    );
    json!({
        "name": forward.name,
        "address": socket_address(&forward.bind),
        "filter_chains": [chain],
    })
}

fn transport_socket(tls: &ServerTls) -> Value {
    let mut common = json!({
        "tls_params": { "tls_minimum_protocol_version": "TLSv1_2" },
        "tls_certificates": [{
            "certificate_chain": { "filename": tls.cert_file },
            "private_key": { "filename": tls.key_file },
        }],
    });
    let ca = tls.ca_pem.as_ref();
    let ca = ca.map(|pem| json!({ "trusted_ca": { "inline_string": pem } }));
    let demands_certificate = ca.is_some();
    set(&mut common, "validation_context", ca);
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": common,
            "require_client_certificate": demands_certificate,
        },
    })
}
