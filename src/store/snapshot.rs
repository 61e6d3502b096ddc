//! The state as bytes: what Raft snapshots and backups hold.
//!
//! Layout: 8 bytes of magic with the format's version, 32 bytes SHA-256 of the rest, then the tables in msgpack with
//! named fields. A byte changed anywhere is noticed; a damaged snapshot is refused as a whole.

use crate::model::ids::Index;
use crate::model::query::NodeCoordinate;
use crate::model::{
    CaConfiguration, CaProviderState, CaRoot, ConfigEntry, FederationState, HealthCheck, KvEntry,
    Node, NodeService,
};
use crate::store::state::{IndexRow, Key, State};
use crate::store::tables::restore::Restoring;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"CWSTATE1";

/// Why bytes are not a state.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not our format, or one of a newer version.
    #[error("this is not a Crossway state snapshot (or one of a newer version)")]
    Format,
    /// The checksum does not fit the content.
    #[error("the snapshot is damaged: its checksum does not match its content")]
    Checksum,
    /// The tables could not be written or read.
    #[error("the snapshot's tables do not decode: {0}")]
    Tables(String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Tables {
    last_index: Index,
    indexes: Vec<(IndexRow, Index)>,
    nodes: Vec<Arc<Node>>,
    services: Vec<(Key, Arc<NodeService>)>,
    checks: Vec<Arc<HealthCheck>>,
    kv: Vec<Arc<KvEntry>>,
    tombstones: Vec<(Arc<str>, Index)>,
    config_entries: Vec<Arc<ConfigEntry>>,
    federation_states: Vec<Arc<FederationState>>,
    federation_offers: Vec<Arc<FederationState>>,
    ca_roots: Vec<Arc<CaRoot>>,
    ca_config: Option<Arc<CaConfiguration>>,
    ca_providers: Vec<Arc<CaProviderState>>,
    coordinates: Vec<Arc<NodeCoordinate>>,
    restoring: Option<Restoring>,
}

impl State {
    /// Writes the whole state. Takes time in proportion to its size; run it off the reactor.
    pub fn to_snapshot(&self) -> Result<Vec<u8>, SnapshotError> {
        let tables = Tables {
            last_index: self.last_index,
            indexes: pairs(&self.indexes),
            nodes: self.nodes.values().cloned().collect(),
            services: self
                .services
                .iter()
                .map(|(key, service)| (key.0.clone(), service.clone()))
                .collect(),
            checks: self.checks.values().cloned().collect(),
            kv: self.kv.values().cloned().collect(),
            tombstones: pairs(&self.tombstones),
            config_entries: self.config_entries.values().cloned().collect(),
            federation_states: self.federation_states.values().cloned().collect(),
            federation_offers: self.federation_offers.values().cloned().collect(),
            ca_roots: self.ca_roots.to_vec(),
            ca_config: self.ca_config.clone(),
            ca_providers: self.ca_providers.values().cloned().collect(),
            coordinates: self.coordinates.values().cloned().collect(),
            restoring: self.restoring.clone(),
        };
        let mut out = MAGIC.to_vec();
        out.resize(MAGIC.len() + 32, 0);
        rmp_serde::encode::write_named(&mut out, &tables)
            .map_err(|e| SnapshotError::Tables(e.to_string()))?;
        let sum = Sha256::digest(out.get(MAGIC.len() + 32..).unwrap_or_default());
        if let Some(at) = out.get_mut(MAGIC.len()..MAGIC.len() + 32) {
            at.copy_from_slice(&sum);
        }
        Ok(out)
    }

    /// As [`State::to_snapshot`], without what is under way: for safe keeping.
    pub fn to_backup(&self) -> Result<Vec<u8>, SnapshotError> {
        let state = Self {
            restoring: None,
            ..self.clone()
        };
        state.to_snapshot()
    }

    /// Reads what [`State::to_snapshot`] wrote.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(SnapshotError::Format)?;
        let (sum, body) = rest.split_at_checked(32).ok_or(SnapshotError::Format)?;
        if Sha256::digest(body).as_slice() != sum {
            return Err(SnapshotError::Checksum);
        }
        let tables: Tables =
            rmp_serde::from_slice(body).map_err(|e| SnapshotError::Tables(e.to_string()))?;
        Ok(tables.into_state())
    }
}

fn pairs<K: Ord + Clone, V: Clone>(map: &imbl::OrdMap<K, V>) -> Vec<(K, V)> {
    map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

impl Tables {
    fn into_state(self) -> State {
        let mut state = State {
            last_index: self.last_index,
            indexes: self.indexes.into_iter().collect(),
            ca_roots: Arc::new(self.ca_roots),
            ca_config: self.ca_config,
            tombstones: self.tombstones.into_iter().collect(),
            restoring: self.restoring,
            ..State::default()
        };
        for node in self.nodes {
            let key = Key::of(node.node.shared());
            if !node.id.is_empty() {
                let id = Key::of(node.id.shared());
                state.node_ids.insert(id, key.clone());
            }
            state.nodes.insert(key, node);
        }
        for (node, service) in self.services {
            state.restore_service(node, service);
        }
        for check in self.checks {
            let (node, id) = (
                Key::of(check.node.shared()),
                Key::of(check.check_id.shared()),
            );
            let service = Key::of(check.service_id.shared());
            state
                .checks_by_service
                .insert((node.clone(), service, id.clone()), check.clone());
            state.checks.insert((node, id), check);
        }
        state.kv = self.kv.into_iter().map(|e| (e.key.clone(), e)).collect();
        state.config_entries = self
            .config_entries
            .into_iter()
            .map(|e| ((e.kind(), e.name().to_owned()), e))
            .collect();
        state.coordinates = self
            .coordinates
            .into_iter()
            .map(|row| {
                let segment = Key::from(row.segment.as_str());
                ((Key::of(row.node.shared()), segment), row)
            })
            .collect();
        let by_dc = |states: Vec<Arc<FederationState>>| {
            states
                .into_iter()
                .map(|s| (s.datacenter.clone(), s))
                .collect()
        };
        state.federation_states = by_dc(self.federation_states);
        state.federation_offers = by_dc(self.federation_offers);
        state.ca_providers = self
            .ca_providers
            .into_iter()
            .map(|p| (p.id.clone(), p))
            .collect();
        state
    }
}

impl State {
    fn restore_service(&mut self, node: Key, service: Arc<NodeService>) {
        let id = Key::of(service.id.shared());
        let name = Key::of(service.service.shared());
        self.services_by_name
            .insert((name, node.clone(), id.clone()), service.clone());
        self.services_by_kind.insert(
            (service.kind.clone(), node.clone(), id.clone()),
            service.clone(),
        );
        if let Some(name) = service.connect_name() {
            let name = Key::of(name.shared());
            self.connect
                .insert((name, node.clone(), id.clone()), service.clone());
        }
        self.services.insert((node, id), service);
    }
}
