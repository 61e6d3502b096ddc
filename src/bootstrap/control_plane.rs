//! The cluster `local_agent` with the servers' gRPC addresses, and the ADS stream over it.

use crate::bootstrap::ClientTls;
use crate::bootstrap::ControlPlane;
use crate::bootstrap::Endpoint;
use crate::bootstrap::Error;
use crate::bootstrap::set;
use crate::bootstrap::socket_address;
use serde_json::Value;
use serde_json::json;

/// Name of the cluster; Consul's name, because tools look for it.
const CLUSTER: &str = "local_agent";

/// HTTP/2 pings on the xDS connection: they find a dead server without traffic. Servers refuse more than one in 15 s.
const KEEPALIVE_INTERVAL: &str = "30s";
const KEEPALIVE_TIMEOUT: &str = "5s";

/// The static cluster.
pub(super) fn cluster(plane: &ControlPlane) -> Result<Value, Error> {
    let by_name = looks_up_names(&plane.endpoints)?;
    let endpoints: Vec<_> = plane
        .endpoints
        .iter()
        .map(|endpoint| json!({ "endpoint": { "address": address(endpoint) } }))
        .collect();
    let mut cluster = json!({
        "name": CLUSTER,
        "connect_timeout": "1s",
        "ignore_health_on_host_removal": false,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": { "connection_keepalive": {
                    "interval": KEEPALIVE_INTERVAL,
                    "timeout": KEEPALIVE_TIMEOUT,
                }}},
            },
        },
        "load_assignment": { "cluster_name": CLUSTER, "endpoints": [{ "lb_endpoints": endpoints }] },
    });
    if by_name {
        set(&mut cluster, "cluster_type", Some(dns_cluster()));
    } else {
        set(&mut cluster, "type", Some("STATIC".into()));
    }
    set(
        &mut cluster,
        "transport_socket",
        plane.tls.as_ref().map(transport_socket),
    );
    Ok(cluster)
}

/// Whether Envoy has to look up names.
fn looks_up_names(endpoints: &[Endpoint]) -> Result<bool, Error> {
    let sockets = endpoints.iter().filter(|e| matches!(e, Endpoint::Unix(_)));
    match (endpoints.len(), sockets.count()) {
        (0, _) => Err(Error::NoEndpoint),
        (2.., 1..) => Err(Error::MixedEndpoints),
        _ => Ok(endpoints.iter().any(|e| matches!(e, Endpoint::Dns(..)))),
    }
}

/// Every address behind the names is an endpoint of its own, looked up again when its record expires.
fn dns_cluster() -> Value {
    json!({
        "name": "envoy.cluster.dns",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
            "dns_lookup_family": "V4_PREFERRED",
            "respect_dns_ttl": true,
            "all_addresses_in_single_endpoint": false,
        },
    })
}

fn address(endpoint: &Endpoint) -> Value {
    match endpoint {
        Endpoint::Ip(address) => socket_address(address),
        Endpoint::Dns(name, port) => {
            json!({ "socket_address": { "address": name, "port_value": port } })
        }
        Endpoint::Unix(path) => json!({ "pipe": { "path": path } }),
    }
}

fn transport_socket(tls: &ClientTls) -> Value {
    let mut validation = json!({ "trusted_ca": { "inline_string": tls.ca_pem } });
    if !tls.accepted_names.is_empty() {
        let names = tls.accepted_names.iter();
        let matchers: Vec<_> = names
            .map(|name| json!({ "san_type": "DNS", "matcher": { "exact": name } }))
            .collect();
        set(
            &mut validation,
            "match_typed_subject_alt_names",
            Some(matchers.into()),
        );
    }
    let mut common = json!({
        // Envoy's client stops at TLS 1.2 by default, and servers may demand 1.3.
        "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
        "validation_context": validation,
    });
    let certificate = tls.certificate.as_ref().map(|(chain, key)| {
        json!([{
            "certificate_chain": { "inline_string": chain },
            "private_key": { "inline_string": key },
        }])
    });
    set(&mut common, "tls_certificates", certificate);
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": tls.server_name,
            "common_tls_context": common,
        },
    })
}

/// Listeners and clusters over one delta ADS stream; Envoy waits for the first answer as long as it takes.
pub(super) fn dynamic_resources(plane: &ControlPlane) -> Value {
    let source = json!({ "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" });
    let mut service = json!({ "envoy_grpc": { "cluster_name": CLUSTER } });
    if !plane.token.is_empty() {
        let metadata = json!([{ "key": "x-consul-token", "value": plane.token }]);
        set(&mut service, "initial_metadata", Some(metadata));
    }
    json!({
        "lds_config": source,
        "cds_config": source,
        "ads_config": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [service],
        },
    })
}
