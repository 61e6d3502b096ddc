//! Leader loop that keeps the servers' own rows of the catalog true.
//!
//! The one server of this step registers itself: its node, the check `serfHealth`, and the service `consul` that gateways
//! expose to other datacenters. Should somebody remove or change the rows, they are put right at once. Gossip members will
//! be reconciled here as well.

use crate::consensus::Consensus;
use crate::model::catalog::CONSUL_SERVICE;
use crate::model::catalog::StringMap;
use crate::model::check::SERF_HEALTH;
use crate::model::query::RegisterRequest;
use crate::model::{CheckStatus, Datacenter, HealthCheck, NodeId, NodeName, NodeService};
use crate::store::{Command, Key, State, Topic};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// How long to wait after a failed write.
const RETRY: Duration = Duration::from_secs(1);

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
            check: Some(HealthCheck {
                node: self.name.clone(),
                check_id: SERF_HEALTH.into(),
                name: "Serf Health Status".to_owned(),
                status: CheckStatus::Passing,
                output: "Agent alive and reachable".to_owned(),
                ..HealthCheck::default()
            }),
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

    /// Whether the catalog lacks something of the registration. Pure: applies it to a copy and looks for a difference.
    pub fn is_due(&self, state: &State) -> bool {
        let mut trial = state.clone();
        let command = Command::Register(Box::new(self.registration()));
        let applied = trial.apply(state.last_index() + 1, &command);
        applied.result.is_err() || !applied.topics.is_empty()
    }
}

/// Runs while this server leads; follows changes of `own`, such as its metadata.
pub async fn run_leader(consensus: Consensus, mut changes: watch::Receiver<OwnServer>) {
    let node = Topic::Node(Key::of(changes.borrow().name.shared()));
    let mut watch = consensus.store().watch([node]);
    loop {
        let own = changes.borrow_and_update().clone();
        if !own.is_due(&consensus.store().latest()) {
            tokio::select! {
                () = watch.changed() => {}
                Ok(()) = changes.changed() => {}
            }
            continue;
        }
        let command = Command::Register(Box::new(own.registration()));
        match consensus.propose(command).await {
            Ok(_) => info!(node = %own.name, "this server's catalog rows are written"),
            Err(error) => {
                warn!(%error, retry_in = ?RETRY, "this server's catalog rows are not written");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> OwnServer {
        OwnServer {
            id: "ddd6fddd-b174-f428-7633-0e0dabed6a2c".into(),
            name: "dc1-s1".into(),
            datacenter: "dc1".into(),
            lan: [10, 71, 0, 11].into(),
            tagged: [("wan_ipv4".to_owned(), "10.71.0.11".to_owned())].into(),
            meta: BTreeMap::new(),
            rpc_port: 8300,
            version: "1.8.7".to_owned(),
        }
    }

    #[test]
    fn rows_are_written_once_and_again_when_somebody_removes_them() {
        let own = own();
        let mut state = State::default();
        assert!(own.is_due(&state));
        let command = Command::Register(Box::new(own.registration()));
        state.apply(1, &command).result.unwrap();
        assert!(!own.is_due(&state));
        let node = state.node("dc1-s1").unwrap();
        assert_eq!(node.tagged_addresses["wan_ipv4"], "10.71.0.11");
        assert_eq!(state.check_service_nodes("consul")[0].checks.len(), 1);
        let gone = Command::Deregister {
            node: own.name.clone(),
            service_id: CONSUL_SERVICE.into(),
            check_id: "".into(),
        };
        state.apply(2, &gone).result.unwrap();
        assert!(own.is_due(&state));
    }
}
