//! Federation states.

use crate::http::json::catalog::{InstanceView, Tags};
use crate::model::{CheckServiceNode, FederationState, Timestamp};
use serde::{Serialize, Serializer};

/// Gateways as federation states show them: empty lists are `null`, as on the wire.
pub(crate) struct Gateways<'a>(pub(crate) &'a [CheckServiceNode]);

impl Serialize for Gateways<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.is_empty() {
            true => serializer.serialize_unit(),
            false => {
                serializer.collect_seq(self.0.iter().map(|g| InstanceView::new(g, Tags::Null)))
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct FederationStateView<'a> {
    datacenter: &'a str,
    mesh_gateways: Gateways<'a>,
    updated_at: Timestamp,
    primary_modify_index: u64,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a FederationState> for FederationStateView<'a> {
    fn from(s: &'a FederationState) -> Self {
        Self {
            datacenter: s.datacenter.as_str(),
            mesh_gateways: Gateways(&s.mesh_gateways),
            updated_at: s.updated_at,
            primary_modify_index: s.primary_modify_index,
            create_index: s.create_index,
            modify_index: s.modify_index,
        }
    }
}
