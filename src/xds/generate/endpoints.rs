//! Load assignments (EDS, and those inside clusters that resolve names).

use crate::proxycfg::{Endpoint, Health};
use crate::xds::generate::plan::Plan;
use crate::xds::resources::Resource;
use envoy_types::pb::envoy::config::core::v3::address::Address as AddressKind;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, HealthStatus, SocketAddress};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint as EnvoyEndpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::google::protobuf::UInt32Value;

/// The EDS resource of a cluster. Without endpoints it is sent too: Envoy would wait for it (C067).
pub(super) fn assignment(plan: &Plan<'_>) -> Resource {
    Resource::endpoints(&message(plan))
}

/// One group of endpoints of priority 0, in the order given; no group without endpoints.
pub(super) fn message(plan: &Plan<'_>) -> ClusterLoadAssignment {
    let group = LocalityLbEndpoints {
        lb_endpoints: plan.endpoints.iter().map(lb_endpoint).collect(),
        ..Default::default()
    };
    ClusterLoadAssignment {
        cluster_name: plan.name.clone(),
        endpoints: if plan.endpoints.is_empty() {
            Vec::new()
        } else {
            vec![group]
        },
        ..Default::default()
    }
}

/// A TCP address; `host` is an IP address, or a name where Envoy resolves names.
pub(super) fn address(host: String, port: u16) -> Address {
    Address {
        address: Some(AddressKind::SocketAddress(SocketAddress {
            address: host,
            port_specifier: Some(PortSpecifier::PortValue(u32::from(port))),
            ..Default::default()
        })),
    }
}

fn lb_endpoint(endpoint: &Endpoint) -> LbEndpoint {
    let health = match endpoint.health {
        Health::Unknown => HealthStatus::Unknown,
        Health::Healthy => HealthStatus::Healthy,
        Health::Unhealthy => HealthStatus::Unhealthy,
    };
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(EnvoyEndpoint {
            address: Some(address(endpoint.host.to_string(), endpoint.port)),
            ..Default::default()
        })),
        health_status: health as i32,
        load_balancing_weight: (endpoint.weight > 0).then_some(UInt32Value {
            value: endpoint.weight,
        }),
        ..Default::default()
    }
}
