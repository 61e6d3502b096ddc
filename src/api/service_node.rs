//! The row of `Catalog.ServiceNodes`.

use crate::model::catalog::StringMap;
use crate::model::{
    ConnectProxyConfig, Datacenter, Index, Node, NodeId, NodeName, NodeService, ServiceAddress,
    ServiceConnect, ServiceId, ServiceKind, ServiceName, Weights,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// An instance with its node's facts beside it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ServiceNode<'a> {
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
    /// `[]` when there is none, unlike the lists of other rows.
    service_tags: Option<&'a [String]>,
    service_address: &'a str,
    service_tagged_addresses: &'a BTreeMap<String, ServiceAddress>,
    service_weights: Weights,
    /// `{}` when there is none.
    service_meta: Option<&'a StringMap>,
    service_port: u16,
    service_enable_tag_override: bool,
    service_proxy: &'a ConnectProxyConfig,
    service_connect: &'a ServiceConnect,
    create_index: Index,
    modify_index: Index,
}

impl<'a> ServiceNode<'a> {
    pub(crate) fn of(node: &'a Node, service: &'a NodeService) -> Self {
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
            service_tags: Some(&service.tags),
            service_address: &service.address,
            service_tagged_addresses: &service.tagged_addresses,
            service_weights: service.weights.unwrap_or_default(),
            service_meta: Some(&service.meta),
            service_port: service.port,
            service_enable_tag_override: service.enable_tag_override,
            service_proxy: &service.proxy,
            service_connect: &service.connect,
            create_index: service.create_index,
            modify_index: service.modify_index,
        }
    }
}
