//! Config entries of the kinds that gateways need. Field names are those of Consul's RPC messages.
#![allow(missing_docs)] // The fields are the wire schema; each type says what it is.

use crate::model::catalog::{ExposeConfig, MeshGatewayConfig};
use crate::model::duration::GoDuration;
use crate::model::ids::Index;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Kind of a config entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConfigKind {
    ProxyDefaults,
    ServiceDefaults,
    ServiceResolver,
}

impl ConfigKind {
    /// Every kind, in name order.
    pub const ALL: [Self; 3] = [
        Self::ProxyDefaults,
        Self::ServiceDefaults,
        Self::ServiceResolver,
    ];

    /// The text on the wire and in URLs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ProxyDefaults => "proxy-defaults",
            Self::ServiceDefaults => "service-defaults",
            Self::ServiceResolver => "service-resolver",
        }
    }
}

impl fmt::Display for ConfigKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A kind that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid config entry kind: {0}")]
pub struct KindError(pub String);

impl FromStr for ConfigKind {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| KindError(text.to_owned()))
    }
}

/// Defaults of all proxies; its only name is `global`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ProxyDefaults {
    pub kind: String,
    pub name: String,
    pub meta: BTreeMap<String, String>,
    pub config: BTreeMap<String, Value>,
    pub mesh_gateway: MeshGatewayConfig,
    pub expose: ExposeConfig,
    pub create_index: Index,
    pub modify_index: Index,
}

/// Defaults of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceDefaults {
    pub kind: String,
    pub name: String,
    pub meta: BTreeMap<String, String>,
    pub protocol: String,
    pub mesh_gateway: MeshGatewayConfig,
    pub expose: ExposeConfig,
    #[serde(rename = "ExternalSNI")]
    pub external_sni: String,
    pub create_index: Index,
    pub modify_index: Index,
}

/// A named part of a service's instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResolverSubset {
    /// A filter expression over the instance; empty for all.
    pub filter: String,
    pub only_passing: bool,
}

/// Sends requests for a service elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResolverRedirect {
    pub service: String,
    pub service_subset: String,
    pub namespace: String,
    pub datacenter: String,
}

/// Where requests go when a subset has no healthy instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ResolverFailover {
    pub service: String,
    pub service_subset: String,
    pub namespace: String,
    pub datacenters: Vec<String>,
}

/// How the instances of a service are found and grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ServiceResolver {
    pub kind: String,
    pub name: String,
    pub meta: BTreeMap<String, String>,
    pub default_subset: String,
    pub subsets: BTreeMap<String, ResolverSubset>,
    pub redirect: Option<ResolverRedirect>,
    pub failover: BTreeMap<String, ResolverFailover>,
    pub connect_timeout: GoDuration,
    pub create_index: Index,
    pub modify_index: Index,
}

/// A config entry of any kind. Its serde form is for our own log and snapshots; the RPC form is a blob that begins with
/// the kind and is made by `api`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigEntry {
    ProxyDefaults(ProxyDefaults),
    ServiceDefaults(ServiceDefaults),
    ServiceResolver(ServiceResolver),
}

impl ConfigEntry {
    pub fn kind(&self) -> ConfigKind {
        match self {
            Self::ProxyDefaults(_) => ConfigKind::ProxyDefaults,
            Self::ServiceDefaults(_) => ConfigKind::ServiceDefaults,
            Self::ServiceResolver(_) => ConfigKind::ServiceResolver,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::ProxyDefaults(e) => &e.name,
            Self::ServiceDefaults(e) => &e.name,
            Self::ServiceResolver(e) => &e.name,
        }
    }

    pub fn create_index(&self) -> Index {
        match self {
            Self::ProxyDefaults(e) => e.create_index,
            Self::ServiceDefaults(e) => e.create_index,
            Self::ServiceResolver(e) => e.create_index,
        }
    }

    pub fn modify_index(&self) -> Index {
        match self {
            Self::ProxyDefaults(e) => e.modify_index,
            Self::ServiceDefaults(e) => e.modify_index,
            Self::ServiceResolver(e) => e.modify_index,
        }
    }

    /// The same entry with these Raft indexes.
    pub fn with_indexes(mut self, create: Index, modify: Index) -> Self {
        let (c, m) = match &mut self {
            Self::ProxyDefaults(e) => (&mut e.create_index, &mut e.modify_index),
            Self::ServiceDefaults(e) => (&mut e.create_index, &mut e.modify_index),
            Self::ServiceResolver(e) => (&mut e.create_index, &mut e.modify_index),
        };
        (*c, *m) = (create, modify);
        self
    }
}
