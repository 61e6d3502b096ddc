//! The record that describes the mesh gateways of one datacenter to all others.

use crate::model::catalog::CheckServiceNode;
use crate::model::ids::{Datacenter, Index};
use crate::model::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// All mesh gateways of a datacenter, whatever their meta or health. It is written even when there is none: its
/// existence says that the datacenter is alive and supports the feature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FederationState {
    /// The datacenter that is described; the key, compared in lower case.
    pub datacenter: Datacenter,
    /// Its mesh gateways in order of node, then service id.
    pub mesh_gateways: Vec<CheckServiceNode>,
    /// Set by the owner's clock alone; decides which of two records is newer.
    pub updated_at: Timestamp,
    /// The record's `ModifyIndex` in the primary datacenter.
    pub primary_modify_index: Index,
    /// Raft index of its first write here.
    pub create_index: Index,
    /// Raft index of its newest write here.
    pub modify_index: Index,
}

impl FederationState {
    /// Describes the same gateways: times, indexes and check output are ignored.
    pub fn same(&self, other: &Self) -> bool {
        self.datacenter == other.datacenter
            && self.mesh_gateways.len() == other.mesh_gateways.len()
            && self
                .mesh_gateways
                .iter()
                .zip(&other.mesh_gateways)
                .all(|(a, b)| a.same(b))
    }
}
