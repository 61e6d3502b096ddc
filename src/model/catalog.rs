//! Nodes and services of the catalog. Field names are those of Consul's RPC messages.
#![allow(missing_docs)] // The fields are the wire schema; each type says what it is.

use crate::model::check::HealthCheck;
use crate::model::ids::{Datacenter, Index, NodeId, NodeName, ServiceId, ServiceName};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Text to text, in key order.
pub type StringMap = BTreeMap<String, String>;

/// Name and id of the service whose instances are the servers of a datacenter.
pub const CONSUL_SERVICE: &str = "consul";

/// The meta key that marks a mesh gateway as a way to the servers of its datacenter; only the value `1` counts.
pub const META_WAN_FEDERATION: &str = "consul-wan-federation";

/// A machine (or a gateway registered as its own node) in the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Node {
    #[serde(rename = "ID")]
    pub id: NodeId,
    pub node: NodeName,
    pub address: String,
    pub datacenter: Datacenter,
    pub tagged_addresses: StringMap,
    pub meta: StringMap,
    pub create_index: Index,
    pub modify_index: Index,
}

impl Node {
    /// Equal in everything but the Raft indexes.
    pub fn same(&self, other: &Self) -> bool {
        self.id == other.id
            && self.node == other.node
            && self.address == other.address
            && self.datacenter == other.datacenter
            && self.tagged_addresses == other.tagged_addresses
            && self.meta == other.meta
    }
}

/// What a service instance is for. Unknown kinds of newer peers are kept as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceKind {
    /// An ordinary service: the empty kind.
    #[default]
    Typical,
    ConnectProxy,
    MeshGateway,
    TerminatingGateway,
    IngressGateway,
    Other(Arc<str>),
}

impl ServiceKind {
    /// The text on the wire; empty for [`ServiceKind::Typical`].
    pub fn as_str(&self) -> &str {
        match self {
            Self::Typical => "",
            Self::ConnectProxy => "connect-proxy",
            Self::MeshGateway => "mesh-gateway",
            Self::TerminatingGateway => "terminating-gateway",
            Self::IngressGateway => "ingress-gateway",
            Self::Other(text) => text,
        }
    }

    /// Whether an Envoy runs for instances of this kind.
    pub fn is_proxy(&self) -> bool {
        matches!(
            self,
            Self::ConnectProxy
                | Self::MeshGateway
                | Self::TerminatingGateway
                | Self::IngressGateway
        )
    }
}

impl From<&str> for ServiceKind {
    fn from(text: &str) -> Self {
        match text {
            "" | "typical" => Self::Typical,
            "connect-proxy" => Self::ConnectProxy,
            "mesh-gateway" => Self::MeshGateway,
            "terminating-gateway" => Self::TerminatingGateway,
            "ingress-gateway" => Self::IngressGateway,
            other => Self::Other(Arc::from(other)),
        }
    }
}

impl Serialize for ServiceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ServiceKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(deserializer)?.as_str()))
    }
}

/// An address with a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceAddress {
    pub address: String,
    pub port: u16,
}

/// Load-balancing weights by health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Weights {
    pub passing: i64,
    pub warning: i64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            passing: 1,
            warning: 1,
        }
    }
}

/// Whether a service speaks Connect itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceConnect {
    pub native: bool,
}

impl Serialize for ServiceConnect {
    /// Consul's struct also has a sidecar's registration, which the agent takes out before anything goes to the catalog.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("ServiceConnect", 2)?;
        fields.serialize_field("Native", &self.native)?;
        fields.serialize_field("SidecarService", &())?;
        fields.end()
    }
}

/// Which gateways a proxy uses for other datacenters: `""`, `none`, `local` or `remote`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MeshGatewayConfig {
    pub mode: String,
}

/// A path of the local application that a proxy serves without mutual TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExposePath {
    pub listener_port: u16,
    pub path: String,
    pub local_path_port: u16,
    pub protocol: String,
    pub parsed_from_check: bool,
}

/// Paths that a proxy serves without mutual TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExposeConfig {
    pub checks: bool,
    pub paths: Vec<ExposePath>,
}

/// A service that a sidecar dials on its application's behalf.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Upstream {
    pub destination_type: String,
    pub destination_namespace: String,
    pub destination_name: String,
    pub datacenter: String,
    pub local_bind_address: String,
    pub local_bind_port: u16,
    pub config: BTreeMap<String, Value>,
    pub mesh_gateway: MeshGatewayConfig,
    pub ingress_hosts: Vec<String>,
}

/// What a proxy or gateway was registered with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ConnectProxyConfig {
    pub destination_service_name: ServiceName,
    #[serde(rename = "DestinationServiceID")]
    pub destination_service_id: ServiceId,
    pub local_service_address: String,
    pub local_service_port: u16,
    pub config: BTreeMap<String, Value>,
    pub upstreams: Vec<Upstream>,
    pub mesh_gateway: MeshGatewayConfig,
    pub expose: ExposeConfig,
}

/// A service instance on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeService {
    pub kind: ServiceKind,
    #[serde(rename = "ID")]
    pub id: ServiceId,
    pub service: ServiceName,
    pub tags: Vec<String>,
    pub address: String,
    pub tagged_addresses: BTreeMap<String, ServiceAddress>,
    pub meta: StringMap,
    pub port: u16,
    pub weights: Option<Weights>,
    pub enable_tag_override: bool,
    pub proxy: ConnectProxyConfig,
    pub connect: ServiceConnect,
    pub locally_registered_as_sidecar: bool,
    pub create_index: Index,
    pub modify_index: Index,
}

impl NodeService {
    /// Equal in everything but the Raft indexes.
    pub fn same(&self, other: &Self) -> bool {
        let Self {
            kind,
            id,
            service,
            tags,
            address,
            tagged_addresses,
            meta,
            port,
            weights,
            enable_tag_override,
            proxy,
            connect,
            locally_registered_as_sidecar,
            create_index: _,
            modify_index: _,
        } = self; // A new field has to be named here.
        *kind == other.kind
            && *id == other.id
            && *service == other.service
            && *tags == other.tags
            && *address == other.address
            && *tagged_addresses == other.tagged_addresses
            && *meta == other.meta
            && *port == other.port
            && *weights == other.weights
            && *enable_tag_override == other.enable_tag_override
            && *proxy == other.proxy
            && *connect == other.connect
            && *locally_registered_as_sidecar == other.locally_registered_as_sidecar
    }

    /// The service that Connect clients reach through this instance: a sidecar's destination, or a native service
    /// itself.
    pub fn connect_name(&self) -> Option<&ServiceName> {
        match (&self.kind, self.connect.native) {
            (ServiceKind::ConnectProxy, _) => Some(&self.proxy.destination_service_name),
            (_, true) => Some(&self.service),
            _ => None,
        }
    }

    /// Whether this gateway lets other datacenters reach the servers of its own.
    pub fn exposes_servers(&self) -> bool {
        self.kind == ServiceKind::MeshGateway
            && self.meta.get(META_WAN_FEDERATION).is_some_and(|v| v == "1")
    }
}

/// One instance with its node and the checks that decide its health. Peers may send any part as nil.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckServiceNode {
    pub node: Option<Arc<Node>>,
    pub service: Option<Arc<NodeService>>,
    pub checks: Vec<Arc<HealthCheck>>,
}

impl CheckServiceNode {
    /// Equal in what matters to other datacenters: Raft indexes and the checks' output and notes are ignored, so that a
    /// check that only words its result differently starts no replication (C032).
    pub fn same(&self, other: &Self) -> bool {
        let nodes = match (&self.node, &other.node) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        };
        let services = match (&self.service, &other.service) {
            (Some(a), Some(b)) => a.same(b),
            (None, None) => true,
            _ => false,
        };
        nodes
            && services
            && self.checks.len() == other.checks.len()
            && self
                .checks
                .iter()
                .zip(&other.checks)
                .all(|(a, b)| a.same_apart_from_output(b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_alone_are_no_difference() {
        let service = NodeService {
            id: "web".into(),
            ..NodeService::default()
        };
        let moved = NodeService {
            create_index: 1,
            modify_index: 2,
            ..service.clone()
        };
        assert!(service.same(&moved) && service != moved);
        let tagged = NodeService {
            tags: vec!["a".to_owned()],
            ..service.clone()
        };
        assert!(!service.same(&tagged));
    }
}
