//! Nodes and services.

use crate::http::json::check::CheckView;
use crate::http::json::{NilList, NilMap, is_empty, is_zero, no_pairs};
use crate::model::catalog::{
    ConnectProxyConfig, ExposeConfig, ExposePath, MeshGatewayConfig, ServiceConnect, StringMap,
    Upstream,
};
use crate::model::{CheckServiceNode, Node, NodeService, ServiceAddress, Weights};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How an empty list of tags looks: endpoints of the catalog and of health say `[]`, federation states `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// `[]`
    Empty,
    /// `null`
    Null,
}

impl Tags {
    pub(crate) fn of(self, tags: &[String]) -> TagList<'_> {
        TagList { tags, empty: self }
    }
}

pub(crate) struct TagList<'a> {
    tags: &'a [String],
    empty: Tags,
}

impl Serialize for TagList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.empty {
            Tags::Empty => self.tags.serialize(serializer),
            Tags::Null => NilList(self.tags).serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NodeView<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    node: &'a str,
    address: &'a str,
    datacenter: &'a str,
    tagged_addresses: NilMap<'a, String, String>,
    meta: NilMap<'a, String, String>,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a Node> for NodeView<'a> {
    fn from(n: &'a Node) -> Self {
        Self {
            id: n.id.as_str(),
            node: n.node.as_str(),
            address: &n.address,
            datacenter: n.datacenter.as_str(),
            tagged_addresses: NilMap(&n.tagged_addresses),
            meta: NilMap(&n.meta),
            create_index: n.create_index,
            modify_index: n.modify_index,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ExposePathView<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    listener_port: u16,
    #[serde(skip_serializing_if = "is_empty")]
    path: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    local_path_port: u16,
    #[serde(skip_serializing_if = "is_empty")]
    protocol: &'a str,
    parsed_from_check: bool,
}

impl<'a> From<&'a ExposePath> for ExposePathView<'a> {
    fn from(p: &'a ExposePath) -> Self {
        Self {
            listener_port: p.listener_port,
            path: &p.path,
            local_path_port: p.local_path_port,
            protocol: &p.protocol,
            parsed_from_check: p.parsed_from_check,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ExposeView<'a> {
    #[serde(skip_serializing_if = "is_zero")]
    checks: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<ExposePathView<'a>>,
}

impl<'a> From<&'a ExposeConfig> for ExposeView<'a> {
    fn from(e: &'a ExposeConfig) -> Self {
        Self {
            checks: e.checks,
            paths: e.paths.iter().map(ExposePathView::from).collect(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MeshGatewayView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    mode: &'a str,
}

impl<'a> From<&'a MeshGatewayConfig> for MeshGatewayView<'a> {
    fn from(m: &'a MeshGatewayConfig) -> Self {
        Self { mode: &m.mode }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct UpstreamView<'a> {
    destination_type: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    destination_namespace: &'a str,
    destination_name: &'a str,
    datacenter: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    local_bind_address: &'a str,
    local_bind_port: u16,
    config: NilMap<'a, String, Value>,
    mesh_gateway: MeshGatewayView<'a>,
}

impl<'a> From<&'a Upstream> for UpstreamView<'a> {
    fn from(u: &'a Upstream) -> Self {
        Self {
            destination_type: &u.destination_type,
            destination_namespace: &u.destination_namespace,
            destination_name: &u.destination_name,
            datacenter: &u.datacenter,
            local_bind_address: &u.local_bind_address,
            local_bind_port: u.local_bind_port,
            config: NilMap(&u.config),
            mesh_gateway: (&u.mesh_gateway).into(),
        }
    }
}

/// What a proxy was registered with.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProxyView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    destination_service_name: &'a str,
    #[serde(rename = "DestinationServiceID", skip_serializing_if = "is_empty")]
    destination_service_id: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    local_service_address: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    local_service_port: u16,
    #[serde(skip_serializing_if = "no_pairs")]
    config: &'a BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    upstreams: Vec<UpstreamView<'a>>,
    mesh_gateway: MeshGatewayView<'a>,
    expose: ExposeView<'a>,
}

impl<'a> From<&'a ConnectProxyConfig> for ProxyView<'a> {
    fn from(p: &'a ConnectProxyConfig) -> Self {
        Self {
            destination_service_name: p.destination_service_name.as_str(),
            destination_service_id: p.destination_service_id.as_str(),
            local_service_address: &p.local_service_address,
            local_service_port: p.local_service_port,
            config: &p.config,
            upstreams: p.upstreams.iter().map(UpstreamView::from).collect(),
            mesh_gateway: (&p.mesh_gateway).into(),
            expose: (&p.expose).into(),
        }
    }
}

/// Whether a service speaks Connect itself.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ConnectView {
    #[serde(skip_serializing_if = "is_zero")]
    native: bool,
}

impl From<&ServiceConnect> for ConnectView {
    fn from(c: &ServiceConnect) -> Self {
        Self { native: c.native }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ServiceView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    kind: &'a str,
    #[serde(rename = "ID")]
    id: &'a str,
    service: &'a str,
    tags: TagList<'a>,
    address: &'a str,
    #[serde(skip_serializing_if = "no_pairs")]
    tagged_addresses: &'a BTreeMap<String, ServiceAddress>,
    meta: NilMap<'a, String, String>,
    port: u16,
    weights: Option<Weights>,
    enable_tag_override: bool,
    proxy: ProxyView<'a>,
    connect: ConnectView,
    create_index: u64,
    modify_index: u64,
}

impl<'a> ServiceView<'a> {
    pub(crate) fn new(s: &'a NodeService, tags: Tags) -> Self {
        Self {
            kind: s.kind.as_str(),
            id: s.id.as_str(),
            service: s.service.as_str(),
            tags: tags.of(&s.tags),
            address: &s.address,
            tagged_addresses: &s.tagged_addresses,
            meta: NilMap(&s.meta),
            port: s.port,
            weights: s.weights,
            enable_tag_override: s.enable_tag_override,
            proxy: (&s.proxy).into(),
            connect: (&s.connect).into(),
            create_index: s.create_index,
            modify_index: s.modify_index,
        }
    }
}

/// A node's services by id, or as a list.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct NodeServicesView<'a, S> {
    node: NodeView<'a>,
    services: S,
}

pub(crate) fn services_by_id<'a>(
    node: &'a Node,
    services: &'a [Arc<NodeService>],
) -> NodeServicesView<'a, BTreeMap<&'a str, ServiceView<'a>>> {
    NodeServicesView {
        node: node.into(),
        services: services
            .iter()
            .map(|s| (s.id.as_str(), ServiceView::new(s, Tags::Empty)))
            .collect(),
    }
}

pub(crate) fn services_listed<'a>(
    node: &'a Node,
    services: &'a [Arc<NodeService>],
) -> NodeServicesView<'a, Vec<ServiceView<'a>>> {
    NodeServicesView {
        node: node.into(),
        services: services
            .iter()
            .map(|s| ServiceView::new(s, Tags::Empty))
            .collect(),
    }
}

/// An instance as the catalog shows it: node and service in one.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ServiceNodeView<'a> {
    #[serde(rename = "ID")]
    id: &'a str,
    node: &'a str,
    address: &'a str,
    datacenter: &'a str,
    tagged_addresses: NilMap<'a, String, String>,
    node_meta: &'a StringMap,
    service_kind: &'a str,
    #[serde(rename = "ServiceID")]
    service_id: &'a str,
    service_name: &'a str,
    service_tags: &'a [String],
    service_address: &'a str,
    #[serde(skip_serializing_if = "no_pairs")]
    service_tagged_addresses: &'a BTreeMap<String, ServiceAddress>,
    service_weights: Weights,
    service_meta: &'a StringMap,
    service_port: u16,
    service_enable_tag_override: bool,
    service_proxy: ProxyView<'a>,
    service_connect: ConnectView,
    create_index: u64,
    modify_index: u64,
}

impl<'a> ServiceNodeView<'a> {
    pub(crate) fn new(n: &'a Node, s: &'a NodeService) -> Self {
        Self {
            id: n.id.as_str(),
            node: n.node.as_str(),
            address: &n.address,
            datacenter: n.datacenter.as_str(),
            tagged_addresses: NilMap(&n.tagged_addresses),
            node_meta: &n.meta,
            service_kind: s.kind.as_str(),
            service_id: s.id.as_str(),
            service_name: s.service.as_str(),
            service_tags: &s.tags,
            service_address: &s.address,
            service_tagged_addresses: &s.tagged_addresses,
            service_weights: s.weights.unwrap_or_default(),
            service_meta: &s.meta,
            service_port: s.port,
            service_enable_tag_override: s.enable_tag_override,
            service_proxy: (&s.proxy).into(),
            service_connect: (&s.connect).into(),
            create_index: s.create_index,
            modify_index: s.modify_index,
        }
    }
}

/// An instance as the health endpoints and federation states show it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InstanceView<'a> {
    node: Option<NodeView<'a>>,
    service: Option<ServiceView<'a>>,
    checks: ChecksView<'a>,
}

struct ChecksView<'a>(&'a CheckServiceNode, Tags);

impl Serialize for ChecksView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let checks = &self.0.checks;
        if checks.is_empty() && self.1 == Tags::Null {
            return serializer.serialize_unit();
        }
        let mut seq = serializer.serialize_seq(Some(checks.len()))?;
        for check in checks {
            seq.serialize_element(&CheckView::new(check, self.1))?;
        }
        seq.end()
    }
}

impl<'a> InstanceView<'a> {
    pub(crate) fn new(row: &'a CheckServiceNode, tags: Tags) -> Self {
        Self {
            node: row.node.as_deref().map(NodeView::from),
            service: row.service.as_deref().map(|s| ServiceView::new(s, tags)),
            checks: ChecksView(row, tags),
        }
    }
}
