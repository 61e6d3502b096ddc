//! Replies whose form on the wire is not that of the rows in the state.

use crate::api::node_info::NodeInfo;
use crate::api::service_node::ServiceNode;
use crate::consensus::RaftStats as Stats;
use crate::model::{GoDuration, Index, Node, NodeService, QueryMeta, ServiceId, ServiceName};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// `Status.RaftStats`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct RaftStats {
    last_contact: String,
    last_term: u64,
    last_index: Index,
}

impl RaftStats {
    pub(super) fn of(stats: &Stats) -> Self {
        let contact = stats.last_contact.map_or_else(
            || "never".to_owned(),
            |contact| match contact.is_zero() {
                true => "0".to_owned(), // The leader itself.
                false => GoDuration::from(contact).to_string(),
            },
        );
        Self {
            last_contact: contact,
            last_term: stats.last_log_term,
            last_index: stats.last_log_index,
        }
    }
}

/// `Catalog.ServiceNodes`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IndexedServiceNodes<'a> {
    service_nodes: Vec<ServiceNode<'a>>,
    index: Index,
    last_contact: GoDuration,
    known_leader: bool,
    consistency_level: String,
}

impl<'a> IndexedServiceNodes<'a> {
    pub(super) fn of(rows: &'a [(Arc<Node>, Arc<NodeService>)], meta: QueryMeta) -> Self {
        Self {
            service_nodes: rows.iter().map(|(n, s)| ServiceNode::of(n, s)).collect(),
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        }
    }
}

/// `Catalog.NodeServices`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IndexedNodeServices {
    node_services: Option<NodeServices>,
    index: Index,
    last_contact: GoDuration,
    known_leader: bool,
    consistency_level: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeServices {
    node: Arc<Node>,
    /// `{}` when there is none.
    services: Option<BTreeMap<ServiceId, Arc<NodeService>>>,
}

impl IndexedNodeServices {
    pub(super) fn of(row: Option<(Arc<Node>, Vec<Arc<NodeService>>)>, meta: QueryMeta) -> Self {
        let services = row.map(|(node, services)| NodeServices {
            node,
            services: Some(services.into_iter().map(|s| (s.id.clone(), s)).collect()),
        });
        Self {
            node_services: services,
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        }
    }
}

/// `Catalog.NodeServiceList`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IndexedNodeServiceList {
    node_services: NodeServiceList,
    index: Index,
    last_contact: GoDuration,
    known_leader: bool,
    consistency_level: String,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NodeServiceList {
    node: Option<Arc<Node>>,
    services: Vec<Arc<NodeService>>,
}

impl IndexedNodeServiceList {
    pub(super) fn of(row: Option<(Arc<Node>, Vec<Arc<NodeService>>)>, meta: QueryMeta) -> Self {
        let list = row.map(|(node, services)| NodeServiceList {
            node: Some(node),
            services,
        });
        Self {
            node_services: list.unwrap_or_default(),
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        }
    }
}

/// `Catalog.ServiceList`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IndexedServiceList {
    services: Vec<Named>,
    index: Index,
    last_contact: GoDuration,
    known_leader: bool,
    consistency_level: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    name: ServiceName,
}

impl IndexedServiceList {
    pub(super) fn of(names: impl IntoIterator<Item = ServiceName>, meta: QueryMeta) -> Self {
        Self {
            services: names.into_iter().map(|name| Named { name }).collect(),
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        }
    }
}

/// `Internal.NodeInfo` and `Internal.NodeDump`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct IndexedNodeDump {
    dump: Vec<NodeInfo>,
    index: Index,
    last_contact: GoDuration,
    known_leader: bool,
    consistency_level: String,
}

impl IndexedNodeDump {
    pub(super) fn of(dump: Vec<NodeInfo>, meta: QueryMeta) -> Self {
        Self {
            dump,
            index: meta.index,
            last_contact: meta.last_contact,
            known_leader: meta.known_leader,
            consistency_level: meta.consistency_level,
        }
    }
}
