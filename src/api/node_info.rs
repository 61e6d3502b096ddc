//! Nodes with everything on them.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::filter::{self, RowFilter};
use crate::api::read::Answer;
use crate::model::catalog::StringMap;
use crate::model::query::{DcSpecificRequest, NodeSpecificRequest};
use crate::model::{HealthCheck, Node, NodeId, NodeName, NodeService};
use crate::store::{Key, State, Topic};
use serde::Serialize;
use std::sync::Arc;

/// A node with its services and checks, in the form of the wire.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct NodeInfo {
    /// The node's UUID.
    #[serde(rename = "ID")]
    pub id: NodeId,
    /// Its name.
    pub node: NodeName,
    /// Its address.
    pub address: String,
    /// Its addresses by tag.
    pub tagged_addresses: StringMap,
    /// Its metadata.
    pub meta: StringMap,
    /// The services on it.
    pub services: Vec<Arc<NodeService>>,
    /// The checks on it.
    pub checks: Vec<Arc<HealthCheck>>,
}

impl NodeInfo {
    fn of(state: &State, node: &Node) -> Self {
        let name = node.node.as_str();
        Self {
            id: node.id.clone(),
            node: node.node.clone(),
            address: node.address.clone(),
            tagged_addresses: node.tagged_addresses.clone(),
            meta: node.meta.clone(),
            services: state.services_on(name),
            checks: state.checks_on(name),
        }
    }
}

impl Api {
    /// One node; empty if it is not registered.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn node_info(
        &self,
        request: &NodeSpecificRequest,
    ) -> Result<Answer<Vec<NodeInfo>>, Error> {
        let name = request.node.clone();
        self.read(
            request,
            vec![Topic::Node(Key::from(name.as_str()))],
            catalog_index,
            move |state| {
                let node = state.node(name.as_str());
                node.map(|node| NodeInfo::of(state, node))
                    .into_iter()
                    .collect()
            },
        )
        .await
    }

    /// All nodes, in name order.
    ///
    /// # Errors
    /// A broken filter, no path to the datacenter, or no leader.
    pub async fn node_dump(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<Vec<NodeInfo>>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::NODE_INFO)?;
        self.read(
            request,
            vec![Topic::Nodes, Topic::Services, Topic::Checks],
            catalog_index,
            move |state| {
                let mut rows: Vec<_> = state
                    .nodes()
                    .map(|node| NodeInfo::of(state, node))
                    .collect();
                rows.retain(|row| filter.keeps(row));
                rows
            },
        )
        .await
    }
}

/// The index of everything in the catalog.
pub(crate) fn catalog_index(state: &State) -> u64 {
    let nodes = state.nodes_index().max(state.services_index());
    nodes.max(state.checks_index())
}
