//! Health checks. Field names are those of Consul's RPC messages.
#![allow(missing_docs)] // The fields are the wire schema; each type says what it is.

use crate::model::duration::GoDuration;
use crate::model::ids::{CheckId, Index, NodeName, ServiceId, ServiceName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Id of the check that says whether a node's agent is alive.
pub const SERF_HEALTH: &str = "serfHealth";

/// Result of a check. A check that never ran is critical.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CheckStatus {
    Passing,
    Warning,
    #[default]
    Critical,
    Maintenance,
}

impl CheckStatus {
    /// The text on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Maintenance => "maintenance",
        }
    }
}

impl fmt::Display for CheckStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A status that is none of passing, warning, critical and maintenance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a check status: use passing, warning or critical")]
pub struct StatusError(pub String);

impl FromStr for CheckStatus {
    type Err = StatusError;

    fn from_str(text: &str) -> Result<Self, StatusError> {
        match text {
            "passing" => Ok(Self::Passing),
            "warning" => Ok(Self::Warning),
            "critical" => Ok(Self::Critical),
            "maintenance" => Ok(Self::Maintenance),
            other => Err(StatusError(other.to_owned())),
        }
    }
}

impl Serialize for CheckStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CheckStatus {
    /// A status of a newer peer that is unknown here counts as critical.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(deserializer)?
            .parse()
            .unwrap_or_default())
    }
}

/// How a check is run, as far as it travels with the check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HealthCheckDefinition {
    #[serde(rename = "HTTP")]
    pub http: String,
    #[serde(rename = "TLSSkipVerify")]
    pub tls_skip_verify: bool,
    pub header: BTreeMap<String, Vec<String>>,
    pub method: String,
    pub body: String,
    #[serde(rename = "TCP")]
    pub tcp: String,
    pub interval: GoDuration,
    pub output_max_size: u64,
    pub timeout: GoDuration,
    pub deregister_critical_service_after: GoDuration,
    pub script_args: Vec<String>,
    #[serde(rename = "DockerContainerID")]
    pub docker_container_id: String,
    pub shell: String,
    #[serde(rename = "GRPC")]
    pub grpc: String,
    #[serde(rename = "GRPCUseTLS")]
    pub grpc_use_tls: bool,
    pub alias_node: String,
    pub alias_service: String,
    #[serde(rename = "TTL")]
    pub ttl: GoDuration,
}

/// A check of a node (`service_id` empty) or of a service instance, with its newest result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct HealthCheck {
    pub node: NodeName,
    #[serde(rename = "CheckID")]
    pub check_id: CheckId,
    pub name: String,
    pub status: CheckStatus,
    pub notes: String,
    pub output: String,
    #[serde(rename = "ServiceID")]
    pub service_id: ServiceId,
    pub service_name: ServiceName,
    pub service_tags: Vec<String>,
    #[serde(rename = "Type")]
    pub kind: String,
    pub definition: HealthCheckDefinition,
    pub create_index: Index,
    pub modify_index: Index,
}

impl HealthCheck {
    /// Equal in everything but the Raft indexes.
    pub fn same(&self, other: &Self) -> bool {
        self.same_apart_from_output(other)
            && self.output == other.output
            && self.notes == other.notes
    }

    /// Equal in everything but the Raft indexes, the output and the notes.
    pub fn same_apart_from_output(&self, other: &Self) -> bool {
        self.node == other.node
            && self.check_id == other.check_id
            && self.name == other.name
            && self.status == other.status
            && self.service_id == other.service_id
            && self.service_name == other.service_name
            && self.service_tags == other.service_tags
            && self.kind == other.kind
            && self.definition == other.definition
    }
}
