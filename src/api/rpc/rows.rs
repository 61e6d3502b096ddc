//! Replies whose form on the wire is not that of the rows in the state.

use crate::consensus::RaftStats as Stats;
use crate::model::catalog::StringMap;
use crate::model::{
    ConnectProxyConfig, Datacenter, GoDuration, Index, Node, NodeId, NodeName, NodeService,
    QueryMeta, ServiceAddress, ServiceConnect, ServiceId, ServiceKind, ServiceName, Weights,
};
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

/// An instance with its node's facts beside it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceNode<'a> {
    #[serde(rename = "ID")]
    id: &'a NodeId,
    node: &'a NodeName,
    address: &'a str,
    datacenter: &'a Datacenter,
    tagged_addresses: &'a StringMap,
    node_meta: &'a StringMap,
    service_kind: &'a ServiceKind,
    #[serde(rename = "ServiceID")]
    service_id: &'a ServiceId,
    service_name: &'a ServiceName,
    service_tags: &'a [String],
    service_address: &'a str,
    service_tagged_addresses: &'a BTreeMap<String, ServiceAddress>,
    service_weights: Weights,
    service_meta: &'a StringMap,
    service_port: u16,
    service_enable_tag_override: bool,
    service_proxy: &'a ConnectProxyConfig,
    service_connect: &'a ServiceConnect,
    create_index: Index,
    modify_index: Index,
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

impl<'a> ServiceNode<'a> {
    fn of(node: &'a Node, service: &'a NodeService) -> Self {
        Self {
            id: &node.id,
            node: &node.node,
            address: &node.address,
            datacenter: &node.datacenter,
            tagged_addresses: &node.tagged_addresses,
            node_meta: &node.meta,
            service_kind: &service.kind,
            service_id: &service.id,
            service_name: &service.service,
            service_tags: &service.tags,
            service_address: &service.address,
            service_tagged_addresses: &service.tagged_addresses,
            service_weights: service.weights.unwrap_or_default(),
            service_meta: &service.meta,
            service_port: service.port,
            service_enable_tag_override: service.enable_tag_override,
            service_proxy: &service.proxy,
            service_connect: &service.connect,
            create_index: service.create_index,
            modify_index: service.modify_index,
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
    services: BTreeMap<ServiceId, Arc<NodeService>>,
}

impl IndexedNodeServices {
    pub(super) fn of(row: Option<(Arc<Node>, Vec<Arc<NodeService>>)>, meta: QueryMeta) -> Self {
        let services = row.map(|(node, services)| NodeServices {
            node,
            services: services.into_iter().map(|s| (s.id.clone(), s)).collect(),
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
