//! Which proxy an Envoy is.

use crate::model::{NodeName, NodeService, ServiceId, ServiceKind};
use crate::store::State;

/// What the catalog knows about an Envoy's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Nothing.
    Unknown,
    /// Several nodes have a gateway with this id.
    Ambiguous(Vec<NodeName>),
    /// Another service, with its kind as registered; empty for an ordinary one.
    NotServed(String),
    /// This mesh gateway.
    Gateway {
        /// Its node, as spelled in the catalog.
        node: NodeName,
        /// Its service id, as spelled in the catalog.
        service: ServiceId,
    },
}

/// Finds the mesh gateway with this service id, on this node if the Envoy named it.
///
/// Ids are unique on their node only. Without a node the one mesh gateway with that id is meant, whatever other services
/// have the same id elsewhere.
pub fn identify(state: &State, node: Option<&str>, id: &str) -> Identity {
    let found: Vec<_> = match node {
        Some(node) => {
            return state
                .service(node, id)
                .map_or(Identity::Unknown, |service| {
                    of_service(state, node, service)
                });
        }
        None => state.kind_with_id(&ServiceKind::MeshGateway, id),
    };
    match found.as_slice() {
        [(node, service)] => of_service(state, node.as_str(), service),
        [] => state
            .services_with_id(id)
            .first()
            .map_or(Identity::Unknown, |(node, service)| {
                of_service(state, node.as_str(), service)
            }),
        several => {
            let names = several
                .iter()
                .map(|(node, _)| spelled(state, node.as_str()));
            Identity::Ambiguous(names.collect())
        }
    }
}

fn of_service(state: &State, node: &str, service: &NodeService) -> Identity {
    match service.kind {
        ServiceKind::MeshGateway => Identity::Gateway {
            node: spelled(state, node),
            service: service.id.clone(),
        },
        ref other => Identity::NotServed(other.as_str().to_owned()),
    }
}

fn spelled(state: &State, node: &str) -> NodeName {
    let found = state.node(node);
    found.map_or_else(|| NodeName::from(node), |node| node.node.clone())
}
