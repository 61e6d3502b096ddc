//! The records that tell each datacenter the mesh gateways of the others.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::query::{DcSpecificRequest, FederationStateQuery, FederationStateRequest};
use crate::model::{CheckServiceNode, Datacenter, FederationState, Timestamp};
use crate::router::FEDERATION_STATES;
use crate::store::{Command, FederationCommand, Outcome, State, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Api {
    /// All records in order of datacenter.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn federation_states(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<Vec<Arc<FederationState>>>, Error> {
        self.read(
            request,
            vec![Topic::FederationStates],
            State::federation_index,
            State::federation_states,
        )
        .await
    }

    /// The record of one datacenter, if there is one.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn federation_state(
        &self,
        request: &FederationStateQuery,
    ) -> Result<Answer<Option<Arc<FederationState>>>, Error> {
        let datacenter = Datacenter::from(request.datacenter.as_str().to_lowercase());
        self.read(
            request,
            vec![Topic::FederationState(datacenter.clone())],
            State::federation_index,
            move |state| state.federation_state(datacenter.as_str()).cloned(),
        )
        .await
    }

    /// Mesh gateways by datacenter; datacenters without one are left out.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn federation_mesh_gateways(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<BTreeMap<Datacenter, Vec<CheckServiceNode>>>, Error> {
        self.read(
            request,
            vec![Topic::FederationStates],
            State::federation_index,
            |state| {
                let with_gateways = state.federation_states().into_iter();
                with_gateways
                    .filter(|record| !record.mesh_gateways.is_empty())
                    .map(|record| (record.datacenter.clone(), record.mesh_gateways.clone()))
                    .collect()
            },
        )
        .await
    }

    /// Writes or removes a record. `now` is its time when the writer gave none. Answers whether something was stored.
    ///
    /// # Errors
    /// No record or datacenter given, an unknown operation, or no leader.
    pub async fn apply_federation_state(
        &self,
        request: FederationStateRequest,
        now: Timestamp,
    ) -> Result<bool, Error> {
        if !self.knows_federation_states() {
            return Err(Error::refused(
                "Federation states are currently disabled until all servers in the datacenter support the feature",
            ));
        }
        let mut record = match request.state {
            Some(record) if !record.datacenter.is_empty() => record,
            _ => {
                return Err(Error::refused(
                    "invalid request: missing federation state datacenter",
                ));
            }
        };
        if record.updated_at.is_zero() {
            record.updated_at = now;
        }
        let command = match request.op.as_str() {
            "upsert" => FederationCommand::Upsert(record),
            "delete" => FederationCommand::Delete(record.datacenter),
            other => {
                let text = format!("Invalid federation state operation: {other}");
                return Err(Error::refused(text));
            }
        };
        // The primary's records are the ones that count, so its leader takes the write whatever the request names.
        let here = Datacenter::default();
        let outcome = self.write(&here, Command::Federation(command)).await?;
        Ok(outcome == Outcome::Bool(true))
    }

    /// Whether every server of this datacenter can apply federation states (case C009); stored ones are proof.
    fn knows_federation_states(&self) -> bool {
        let agent = self.agent_part();
        let Some(servers) = agent.and_then(|agent| agent.pools.servers.as_ref()) else {
            return true; // Nobody else is known.
        };
        let stored = self.store().latest().federation_index() > 0;
        let here = &self.settings().datacenter;
        let all = || servers.read(|router| router.all_support(FEDERATION_STATES, &[here]));
        servers.federation_states().is_open(stored, all)
    }
}
