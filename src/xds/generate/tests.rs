use super::*;
use crate::proxycfg::tests::{command, place};
use crate::store::State;
use crate::xds::resources::Resource;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use proptest::prelude::*;
use prost::Message;
use std::collections::HashSet;
use std::net::IpAddr;

fn gateway(federation: bool) -> Gateway {
    let mut service = crate::model::NodeService {
        address: "10.0.0.5".to_owned(),
        port: 8443,
        kind: crate::model::ServiceKind::MeshGateway,
        ..Default::default()
    };
    if federation {
        let key = crate::model::catalog::META_WAN_FEDERATION;
        service.meta.insert(key.to_owned(), "1".to_owned());
    }
    Gateway::of(&service, None)
}

fn decode<T: Message + Default>(resource: &Resource) -> T {
    T::decode(resource.body()).unwrap()
}

/// What Envoy would refuse, or would wait for in vain.
fn check(resources: &ProxyResources) -> Result<(), TestCaseError> {
    for resource in resources.clusters.iter() {
        let cluster: Cluster = decode(resource);
        prop_assert_eq!(&cluster.name, &cluster.name.to_lowercase());
        let by_eds = cluster.eds_cluster_config.is_some();
        prop_assert_eq!(by_eds, resources.endpoints.contains(&cluster.name));
        prop_assert_ne!(by_eds, cluster.load_assignment.is_some());
        prop_assert_eq!(resource.children().len(), usize::from(by_eds));
    }
    for resource in resources.endpoints.iter() {
        let assignment: ClusterLoadAssignment = decode(resource);
        prop_assert!(resources.clusters.contains(&assignment.cluster_name));
        let endpoints = assignment
            .endpoints
            .iter()
            .flat_map(|group| &group.lb_endpoints);
        for endpoint in endpoints {
            let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
                panic!("no endpoint");
            };
            let address = endpoint.address.as_ref().unwrap().address.as_ref().unwrap();
            let Address::SocketAddress(address) = address else {
                panic!("no socket address");
            };
            prop_assert!(address.address.parse::<IpAddr>().is_ok());
        }
    }
    for resource in resources.listeners.iter() {
        let listener: Listener = decode(resource);
        let matches = listener
            .filter_chains
            .iter()
            .map(|c| c.filter_chain_match.as_ref().unwrap());
        let names: Vec<_> = matches.flat_map(|m| &m.server_names).collect();
        prop_assert!(!names.is_empty());
        let unique: HashSet<_> = names.iter().collect();
        prop_assert_eq!(unique.len(), names.len());
        for name in names {
            let rest = name.strip_prefix("*.").unwrap_or(name);
            prop_assert!(!rest.contains('*') && !rest.is_empty(), "{}", name);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is registered, Envoy gets nothing that it would refuse; and following the changes gives the bytes that
    /// starting anew gives.
    #[test]
    fn any_state_gives_acceptable_resources(commands in prop::collection::vec(command(), 1..40)) {
        let mut state = State::default();
        let mut view = View::build(&place(), &state, None);
        let gateways = [gateway(false), gateway(true)];
        let mut sets = gateways.each_ref().map(|g| SharedSets::build(&view, &g.options));
        for command in &commands {
            let before = state.clone();
            let _ = state.apply(state.last_index() + 1, command);
            let next = view.update(&before, &state);
            for (gateway, sets) in gateways.iter().zip(&mut sets) {
                *sets = sets.evolve(&view, &next, &gateway.options);
                let whole = everything(&next, gateway);
                prop_assert!(sets.clusters.same(&whole.clusters));
                prop_assert!(sets.endpoints.same(&whole.endpoints));
                prop_assert_eq!(
                    sets.work.encoded + sets.work.reused,
                    whole.clusters.len() + whole.endpoints.len()
                );
                check(&whole)?;
            }
            view = next;
        }
    }
}
