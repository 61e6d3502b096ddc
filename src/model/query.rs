//! Requests and replies of the RPC methods, with the read options and reply facts that all of them share.
//!
//! The shared fields stand in each struct itself, as Go flattens them on the wire; serde's own flattening would lose the
//! binary form of times.
#![allow(missing_docs)] // The fields are the wire schema; each type says what it is.

use crate::model::catalog::{CheckServiceNode, NodeService, StringMap};
use crate::model::check::HealthCheck;
use crate::model::coordinate::Coordinate;
use crate::model::duration::GoDuration;
use crate::model::federation_state::FederationState;
use crate::model::ids::{CheckId, Datacenter, Index, NodeId, NodeName, ServiceId, ServiceName};
use crate::model::kv::KvEntry;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How a read wants to be answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryOptions {
    pub token: String,
    /// Wait until the answer's index is larger; 0 answers at once.
    pub min_query_index: Index,
    /// How long to wait; 0 means the server's default.
    pub max_query_time: GoDuration,
    pub allow_stale: bool,
    pub require_consistent: bool,
    pub max_stale_duration: GoDuration,
    pub filter: String,
}

/// Facts about an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QueryMeta {
    pub index: Index,
    /// How long ago the answering server heard from the leader; 0 on the leader.
    pub last_contact: GoDuration,
    pub known_leader: bool,
    pub consistency_level: String,
}

/// A request that reads: which datacenter, and how.
pub trait ReadRequest {
    /// The datacenter that should answer; empty for the local one.
    fn datacenter(&self) -> &Datacenter;
    fn options(&self) -> QueryOptions;
    fn set_options(&mut self, options: QueryOptions);
}

macro_rules! read_request {
    ($(#[$doc:meta])* $name:ident, $routing:ident, { $($(#[$fmeta:meta])* $field:ident : $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            pub token: String,
            pub min_query_index: Index,
            pub max_query_time: GoDuration,
            pub allow_stale: bool,
            pub require_consistent: bool,
            pub use_cache: bool,
            pub max_stale_duration: GoDuration,
            pub max_age: GoDuration,
            pub must_revalidate: bool,
            pub stale_if_error: GoDuration,
            pub filter: String,
        }

        impl ReadRequest for $name {
            #[allow(clippy::misnamed_getters)] // One request routes by another field than the one it calls Datacenter.
            fn datacenter(&self) -> &Datacenter {
                &self.$routing
            }

            fn options(&self) -> QueryOptions {
                QueryOptions {
                    token: self.token.clone(),
                    min_query_index: self.min_query_index,
                    max_query_time: self.max_query_time,
                    allow_stale: self.allow_stale,
                    require_consistent: self.require_consistent,
                    max_stale_duration: self.max_stale_duration,
                    filter: self.filter.clone(),
                }
            }

            fn set_options(&mut self, options: QueryOptions) {
                self.token = options.token;
                self.min_query_index = options.min_query_index;
                self.max_query_time = options.max_query_time;
                self.allow_stale = options.allow_stale;
                self.require_consistent = options.require_consistent;
                self.max_stale_duration = options.max_stale_duration;
                self.filter = options.filter;
            }
        }
    };
}

macro_rules! reply {
    ($(#[$doc:meta])* $name:ident, { $($(#[$fmeta:meta])* $field:ident : $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        pub struct $name {
            $($(#[$fmeta])* pub $field: $ty,)*
            pub index: Index,
            pub last_contact: GoDuration,
            pub known_leader: bool,
            pub consistency_level: String,
        }

        impl $name {
            /// Fills in the facts about the answer.
            pub fn set_meta(&mut self, meta: QueryMeta) {
                self.index = meta.index;
                self.last_contact = meta.last_contact;
                self.known_leader = meta.known_leader;
                self.consistency_level = meta.consistency_level;
            }
        }
    };
}

/// Whom results are sorted near to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QuerySource {
    pub datacenter: String,
    pub segment: String,
    pub node: String,
    pub ip: String,
}

read_request!(
    /// Reads a whole table of a datacenter.
    DcSpecificRequest, datacenter, {
        datacenter: Datacenter,
        node_meta_filters: StringMap,
        source: QuerySource,
    }
);
read_request!(
    /// `Internal.ServiceDump`.
    ServiceDumpRequest, datacenter, {
        datacenter: Datacenter,
        service_kind: String,
        use_service_kind: bool,
        source: QuerySource,
    }
);
read_request!(
    /// Reads the instances or checks of one service.
    ServiceSpecificRequest, datacenter, {
        datacenter: Datacenter,
        node_meta_filters: StringMap,
        service_name: ServiceName,
        service_tag: String,
        service_tags: Vec<String>,
        service_address: String,
        tag_filter: bool,
        connect: bool,
        ingress: bool,
        source: QuerySource,
    }
);
read_request!(
    /// Reads what one node has.
    NodeSpecificRequest, datacenter, {
        datacenter: Datacenter,
        node: NodeName,
    }
);
read_request!(
    /// Reads checks by state; `any` for all.
    ChecksInStateRequest, datacenter, {
        datacenter: Datacenter,
        node_meta_filters: StringMap,
        state: String,
        source: QuerySource,
    }
);
read_request!(
    /// `FederationState.Get`: on the wire `Datacenter` is the key and `TargetDatacenter` the one that answers.
    FederationStateQuery, target_datacenter, {
        datacenter: Datacenter,
        target_datacenter: Datacenter,
    }
);
read_request!(
    /// `KVS.Get` and `KVS.List`.
    KeyRequest, datacenter, {
        datacenter: Datacenter,
        key: String,
    }
);
read_request!(
    /// `KVS.ListKeys`.
    KeyListRequest, datacenter, {
        datacenter: Datacenter,
        prefix: String,
        #[serde(rename = "Seperator")]
        separator: String,
    }
);
read_request!(
    /// `ConfigEntry.Get`, `ConfigEntry.List` and `ConfigEntry.ListAll`.
    ConfigEntryQuery, datacenter, {
        datacenter: Datacenter,
        kind: String,
        name: String,
    }
);

read_request!(
    /// `ConfigEntry.ResolveServiceConfig`: what the entries say about one service and its upstreams.
    ServiceConfigRequest, datacenter, {
        datacenter: Datacenter,
        name: String,
        /// Names of upstreams, from older agents.
        upstreams: Vec<String>,
        #[serde(rename = "UpstreamIDs")]
        upstream_ids: Vec<UpstreamId>,
    }
);

/// A service that another one calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UpstreamId {
    #[serde(rename = "ID")]
    pub id: String,
}

/// `Catalog.Register`: a node, and perhaps a service and checks on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RegisterRequest {
    pub datacenter: Datacenter,
    #[serde(rename = "ID")]
    pub id: NodeId,
    pub node: NodeName,
    pub address: String,
    pub tagged_addresses: StringMap,
    pub node_meta: StringMap,
    pub service: Option<NodeService>,
    pub check: Option<HealthCheck>,
    pub checks: Vec<HealthCheck>,
    pub skip_node_update: bool,
    pub token: String,
}

/// `Catalog.Deregister`: a service, a check, or (both empty) the whole node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DeregisterRequest {
    pub datacenter: Datacenter,
    pub node: NodeName,
    #[serde(rename = "ServiceID")]
    pub service_id: ServiceId,
    #[serde(rename = "CheckID")]
    pub check_id: CheckId,
    pub token: String,
}

/// `FederationState.Apply`: `op` is `upsert` or `delete`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FederationStateRequest {
    pub datacenter: Datacenter,
    pub op: String,
    pub state: Option<FederationState>,
    pub token: String,
}

/// `KVS.Apply`: `op` is `set`, `delete`, `delete-cas`, `delete-tree` or `cas`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KvsRequest {
    pub datacenter: Datacenter,
    pub op: String,
    pub dir_ent: KvEntry,
    pub token: String,
}

/// `Operator.RaftRemovePeerByAddress` and `Operator.RaftRemovePeerByID`; each reads one of the two names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RaftRemovePeerRequest {
    pub datacenter: Datacenter,
    pub address: String,
    #[serde(rename = "ID")]
    pub id: NodeId,
    pub token: String,
}

/// A server in the Raft configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RaftServer {
    #[serde(rename = "ID")]
    pub id: NodeId,
    pub node: NodeName,
    pub address: String,
    pub leader: bool,
    pub protocol_version: String,
    pub voter: bool,
}

/// `Operator.RaftGetConfiguration`; the same in JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct RaftConfiguration {
    pub servers: Vec<RaftServer>,
    pub index: Index,
}

/// `Internal.KeyringOperation`: `operation` is `list`, `install`, `use` or `remove`.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KeyringRequest {
    pub operation: String,
    /// In base64. A secret.
    pub key: String,
    pub datacenter: Datacenter,
    /// Whether a server passed it on to this one.
    pub forwarded: bool,
    pub relay_factor: u8,
    /// Whether only this datacenter's own pool is asked.
    pub local_only: bool,
    pub token: String,
}

/// What came of an operation on the keys of one pool; the same in JSON.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KeyringResponse {
    #[serde(rename = "WAN")]
    pub wan: bool,
    pub datacenter: Datacenter,
    pub segment: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub messages: BTreeMap<NodeName, String>,
    /// Keys in base64, which are secrets, and how many members have them.
    pub keys: BTreeMap<String, usize>,
    /// Those that encrypt.
    pub primary_keys: BTreeMap<String, usize>,
    pub num_nodes: usize,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl fmt::Debug for KeyringResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyringResponse")
            .field("wan", &self.wan)
            .field("datacenter", &self.datacenter)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

reply!(
    /// `Internal.KeyringOperation`.
    KeyringResponses, {
        responses: Vec<KeyringResponse>,
    }
);

/// Where a node is in the network, seen from one network segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct NodeCoordinate {
    pub node: NodeName,
    pub segment: String,
    pub coord: Coordinate,
}

/// `Coordinate.Update`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CoordinateUpdateRequest {
    pub datacenter: Datacenter,
    pub node: NodeName,
    pub segment: String,
    pub coord: Option<Coordinate>,
    pub token: String,
}

reply!(
    /// `Coordinate.ListNodes` and `Coordinate.Node`.
    IndexedCoordinates, {
        coordinates: Vec<std::sync::Arc<NodeCoordinate>>,
    }
);
/// `ConnectCA.Sign`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CaSignRequest {
    pub datacenter: Datacenter,
    /// The certificate signing request, as PEM.
    #[serde(rename = "CSR")]
    pub csr: String,
    /// Whether a server passed it on to this one, as the leader. Consul has no such field and skips it.
    pub forwarded: bool,
    pub token: String,
}

/// What begins a snapshot connection: `op` is 0 to save and 1 to restore.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SnapshotRequest {
    pub datacenter: Datacenter,
    pub token: String,
    pub allow_stale: bool,
    pub op: i64,
}

reply!(
    /// The first answer on a snapshot connection.
    SnapshotResponse, {
        error: String,
    }
);
reply!(
    /// `FederationState.List`.
    IndexedFederationStates, {
        states: Vec<std::sync::Arc<FederationState>>,
    }
);
reply!(
    /// `FederationState.Get`.
    FederationStateResponse, {
        state: Option<std::sync::Arc<FederationState>>,
    }
);
reply!(
    /// `FederationState.ListMeshGateways`.
    DatacenterIndexedCheckServiceNodes, {
        datacenter_nodes: BTreeMap<Datacenter, Vec<CheckServiceNode>>,
    }
);
reply!(
    /// `Health.ServiceNodes` and `Internal.ServiceDump`.
    IndexedCheckServiceNodes, {
        nodes: Vec<CheckServiceNode>,
    }
);
reply!(
    /// `Health.NodeChecks`, `Health.ServiceChecks` and `Health.ChecksInState`.
    IndexedHealthChecks, {
        health_checks: Vec<std::sync::Arc<HealthCheck>>,
    }
);
reply!(
    /// `Catalog.ListNodes`.
    IndexedNodes, {
        nodes: Vec<std::sync::Arc<crate::model::catalog::Node>>,
    }
);
reply!(
    /// `Catalog.ListServices`: names with the tags of their instances.
    IndexedServices, {
        services: BTreeMap<ServiceName, Vec<String>>,
    }
);
reply!(
    /// `KVS.Get` and `KVS.List`.
    IndexedDirEntries, {
        entries: Vec<std::sync::Arc<KvEntry>>,
    }
);
reply!(
    /// `KVS.ListKeys`.
    IndexedKeyList, {
        keys: Vec<String>,
    }
);
reply!(
    /// `ConnectCA.Roots`.
    IndexedCaRoots, {
        #[serde(rename = "ActiveRootID")]
        active_root_id: String,
        trust_domain: String,
        roots: Vec<std::sync::Arc<crate::model::ca::CaRoot>>,
    }
);
