//! Federation states: the replicated records, and those that their owners handed over directly.
//!
//! The record in force for a datacenter is the newer of the two by `updated_at`, which its owner alone sets. An offer
//! goes as soon as the replicated record is as new, so normally there is none.

use crate::model::ids::Index;
use crate::model::{Datacenter, FederationState};
use crate::store::command::{ApplyError, FederationCommand, Outcome, Topic};
use crate::store::state::{IndexRow, State, Tx};
use std::sync::Arc;

impl State {
    /// The record in force for a datacenter.
    pub fn federation_state(&self, datacenter: &str) -> Option<&Arc<FederationState>> {
        let lower = datacenter.to_lowercase();
        let replicated = self.federation_states.get(lower.as_str());
        let offered = self.federation_offers.get(lower.as_str());
        match (replicated, offered) {
            (Some(r), Some(o)) => Some(if o.updated_at > r.updated_at { o } else { r }),
            (r, o) => r.or(o),
        }
    }

    /// The records in force, in order of datacenter.
    pub fn federation_states(&self) -> Vec<Arc<FederationState>> {
        let mut names: Vec<&Datacenter> = self
            .federation_states
            .keys()
            .chain(self.federation_offers.keys())
            .collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .filter_map(|dc| self.federation_state(dc.as_str()).cloned())
            .collect()
    }

    /// The replicated record alone, as the primary has it.
    pub fn replicated_federation_state(&self, datacenter: &str) -> Option<&Arc<FederationState>> {
        self.federation_states
            .get(datacenter.to_lowercase().as_str())
    }

    /// Index of all federation states.
    pub fn federation_index(&self) -> Index {
        self.row(&IndexRow::FederationStates)
    }
}

impl Tx<'_> {
    pub(crate) fn federation(&mut self, op: &FederationCommand) -> Result<Outcome, ApplyError> {
        match op {
            FederationCommand::Upsert(state) => self.federation_upsert(state),
            FederationCommand::Delete(dc) => {
                let dc = lower(dc);
                if self.state.federation_states.remove(&dc).is_some() {
                    self.touch_federation(&dc);
                }
                Ok(Outcome::Done)
            }
            FederationCommand::Offer(state) => self.federation_offer(state),
        }
    }

    fn federation_upsert(&mut self, given: &FederationState) -> Result<Outcome, ApplyError> {
        let mut state = named(given)?;
        let dc = state.datacenter.clone();
        let old = self.state.federation_states.get(&dc);
        state.create_index = old.map_or(self.index, |old| old.create_index);
        state.modify_index = self.index;
        if state.primary_modify_index == 0 {
            state.primary_modify_index = self.index;
        }
        let outdated = |offer: &Arc<FederationState>| offer.updated_at <= state.updated_at;
        if self.state.federation_offers.get(&dc).is_some_and(outdated) {
            self.state.federation_offers.remove(&dc);
        }
        self.state
            .federation_states
            .insert(dc.clone(), Arc::new(state));
        self.touch_federation(&dc);
        Ok(Outcome::Bool(true))
    }

    fn federation_offer(&mut self, given: &FederationState) -> Result<Outcome, ApplyError> {
        let mut state = named(given)?;
        let dc = state.datacenter.clone();
        let known = self.state.federation_state(dc.as_str());
        if known.is_some_and(|known| known.updated_at >= state.updated_at) {
            return Ok(Outcome::Bool(false));
        }
        state.create_index = self.index;
        state.modify_index = self.index;
        self.state
            .federation_offers
            .insert(dc.clone(), Arc::new(state));
        self.touch_federation(&dc);
        Ok(Outcome::Bool(true))
    }

    fn touch_federation(&mut self, dc: &Datacenter) {
        self.bump(IndexRow::FederationStates);
        self.touch(Topic::FederationStates);
        self.touch(Topic::FederationState(dc.clone()));
    }
}

fn lower(dc: &Datacenter) -> Datacenter {
    Datacenter::from(dc.as_str().to_lowercase())
}

fn named(given: &FederationState) -> Result<FederationState, ApplyError> {
    if given.datacenter.is_empty() {
        return Err(ApplyError::refused(
            "federation state has no Datacenter: name the datacenter it describes",
        ));
    }
    Ok(FederationState {
        datacenter: lower(&given.datacenter),
        ..given.clone()
    })
}
