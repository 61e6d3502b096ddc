//! Clusters (CDS).

use crate::proxycfg::{DnsFamily, GatewayOptions, Keepalive, OutlierDetection};
use crate::xds::generate::endpoints;
use crate::xds::generate::plan::{Plan, Role};
use crate::xds::resources::Resource;
use envoy_types::pb::envoy::config::cluster::v3::circuit_breakers::Thresholds;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, CommonLbConfig, CustomClusterType, DiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::{
    CircuitBreakers, Cluster, OutlierDetection as EnvoyOutlierDetection, UpstreamConnectionOptions,
};
use envoy_types::pb::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use envoy_types::pb::envoy::config::core::v3::{
    AggregatedConfigSource, ApiVersion, ConfigSource, TcpKeepalive,
};
use envoy_types::pb::envoy::extensions::clusters::common::dns::v3::DnsLookupFamily;
use envoy_types::pb::envoy::extensions::clusters::dns::v3::DnsCluster;
use envoy_types::pb::envoy::r#type::v3::Percent;
use envoy_types::pb::google::protobuf::{Any, Duration, UInt32Value};
use prost::Message;

/// Connections, and requests that wait for one, that a cluster of gateways or servers may have: no limit in practice.
const MANY: u32 = 1_000_000;

/// The CDS resource of a cluster.
pub(super) fn cluster(plan: &Plan<'_>, options: &GatewayOptions) -> Resource {
    let resolved = plan.is_resolved();
    let keepalive = options.keepalive.filter(|_| plan.role == Role::Remote);
    let cluster = Cluster {
        name: plan.name.clone(),
        cluster_discovery_type: Some(match resolved {
            true => ClusterDiscoveryType::ClusterType(dns(options)),
            false => ClusterDiscoveryType::Type(DiscoveryType::Eds as i32),
        }),
        eds_cluster_config: (!resolved).then(eds),
        load_assignment: resolved.then(|| endpoints::message(plan)),
        connect_timeout: Some(duration(plan.connect_timeout_ms)),
        outlier_detection: options.outlier.as_ref().map(outlier),
        circuit_breakers: (plan.role != Role::Service).then(raised_limits),
        common_lb_config: (plan.role == Role::Service).then(never_panic),
        upstream_connection_options: keepalive.map(connection_options),
        ..Default::default()
    };
    Resource::cluster(&cluster)
}

fn eds() -> EdsClusterConfig {
    EdsClusterConfig {
        eds_config: Some(ConfigSource {
            resource_api_version: ApiVersion::V3 as i32,
            config_source_specifier: Some(ConfigSourceSpecifier::Ads(
                AggregatedConfigSource::default(),
            )),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Every address of every name is an endpoint ("strict"): none of several gateways is dropped (C037), and addresses may
/// stand beside names (C038).
fn dns(options: &GatewayOptions) -> CustomClusterType {
    let family = match options.dns_family {
        DnsFamily::V4Preferred => DnsLookupFamily::V4Preferred,
        DnsFamily::V4Only => DnsLookupFamily::V4Only,
        DnsFamily::V6Only => DnsLookupFamily::V6Only,
        DnsFamily::Auto => DnsLookupFamily::Auto,
        DnsFamily::All => DnsLookupFamily::All,
    };
    let dns = DnsCluster {
        dns_refresh_rate: Some(duration(options.dns_refresh_ms)),
        dns_lookup_family: family as i32,
        ..Default::default()
    };
    CustomClusterType {
        name: "envoy.cluster.dns".to_owned(),
        typed_config: Some(pack("envoy.extensions.clusters.dns.v3.DnsCluster", &dns)),
    }
}

fn raised_limits() -> CircuitBreakers {
    let many = Some(UInt32Value { value: MANY });
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: many,
            max_pending_requests: many,
            max_requests: many,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn never_panic() -> CommonLbConfig {
    CommonLbConfig {
        healthy_panic_threshold: Some(Percent { value: 0.0 }),
        ..Default::default()
    }
}

fn connection_options(keepalive: Keepalive) -> UpstreamConnectionOptions {
    let stated = |value: u32| (value > 0).then_some(UInt32Value { value });
    UpstreamConnectionOptions {
        tcp_keepalive: Some(TcpKeepalive {
            keepalive_time: stated(keepalive.time_s),
            keepalive_interval: stated(keepalive.interval_s),
            keepalive_probes: stated(keepalive.probes),
        }),
        ..Default::default()
    }
}

/// What is not configured is left to Envoy.
fn outlier(detection: &OutlierDetection) -> EnvoyOutlierDetection {
    let number = |value: Option<u32>| value.map(|value| UInt32Value { value });
    EnvoyOutlierDetection {
        interval: detection.interval_ms.map(duration),
        consecutive_5xx: number(detection.max_failures),
        enforcing_consecutive_5xx: number(detection.enforcing_percent),
        max_ejection_percent: number(detection.max_ejection_percent),
        base_ejection_time: detection.base_ejection_ms.map(duration),
        ..Default::default()
    }
}

pub(super) fn duration(ms: u64) -> Duration {
    let nanos = (ms % 1_000) * 1_000_000;
    Duration {
        seconds: i64::try_from(ms / 1_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or(0),
    }
}

/// A message in an `Any`, by its full name.
pub(super) fn pack(name: &str, message: &impl Message) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{name}"),
        value: message.encode_to_vec(),
    }
}
