//! What the catalog shows of this server itself.

use crate::model::catalog::CONSUL_SERVICE;
use crate::model::catalog::StringMap;
use crate::model::query::RegisterRequest;
use crate::model::{CheckStatus, Datacenter, NodeId, NodeName, NodeService};
use crate::reconcile::catalog::serf_health;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Facts about this server that the catalog shows.
#[derive(Clone, Debug)]
pub struct OwnServer {
    /// The node's UUID.
    pub id: NodeId,
    /// The node's name.
    pub name: NodeName,
    /// The own datacenter.
    pub datacenter: Datacenter,
    /// Where other machines of the datacenter reach it.
    pub lan: IpAddr,
    /// Its addresses by tag: `lan`, `wan`, their kinds by family, and what is configured besides.
    pub tagged: StringMap,
    /// The node's configured metadata.
    pub meta: BTreeMap<String, String>,
    /// The RPC port, 8300 by default.
    pub rpc_port: u16,
    /// The API level that clients see as the version, such as `1.8.7`.
    pub version: String,
}

impl OwnServer {
    /// The node alone, without its service and check.
    pub(crate) fn node(&self) -> RegisterRequest {
        RegisterRequest {
            service: None,
            check: None,
            ..self.registration()
        }
    }

    /// What the catalog is to hold about this server.
    pub fn registration(&self) -> RegisterRequest {
        let mut node_meta = self.meta.clone();
        node_meta.insert("consul-network-segment".to_owned(), String::new());
        RegisterRequest {
            datacenter: self.datacenter.clone(),
            id: self.id.clone(),
            node: self.name.clone(),
            address: self.lan.to_string(),
            tagged_addresses: self.tagged.clone(),
            node_meta,
            service: Some(self.service()),
            check: Some(serf_health(&self.name, CheckStatus::Passing)),
            ..RegisterRequest::default()
        }
    }

    fn service(&self) -> NodeService {
        let meta = [
            ("non_voter", "false"),
            ("raft_version", "3"),
            ("serf_protocol_current", "2"),
            ("serf_protocol_max", "5"),
            ("serf_protocol_min", "1"),
            ("version", &self.version),
        ];
        NodeService {
            id: CONSUL_SERVICE.into(),
            service: CONSUL_SERVICE.into(),
            port: self.rpc_port,
            meta: meta
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect::<StringMap>(),
            weights: Some(crate::model::Weights::default()),
            ..NodeService::default()
        }
    }
}
