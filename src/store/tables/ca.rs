//! What the Connect CA keeps: roots, configuration and the providers' own state.

use crate::model::ids::Index;
use crate::model::{CaConfiguration, CaProviderState, CaRoot};
use crate::store::command::{ApplyError, CaCommand, Outcome, Topic};
use crate::store::state::{IndexRow, State, Tx};
use std::sync::Arc;

impl State {
    /// All roots, active and old, and their index.
    pub fn ca_roots(&self) -> (Index, &Arc<Vec<Arc<CaRoot>>>) {
        (self.row(&IndexRow::CaRoots), &self.ca_roots)
    }

    /// The root that signs now.
    pub fn active_ca_root(&self) -> Option<&Arc<CaRoot>> {
        self.ca_roots.iter().find(|root| root.active)
    }

    /// The configuration and its index.
    pub fn ca_config(&self) -> (Index, Option<&Arc<CaConfiguration>>) {
        (self.row(&IndexRow::CaConfig), self.ca_config.as_ref())
    }

    /// What a provider keeps.
    pub fn ca_provider(&self, id: &str) -> Option<&Arc<CaProviderState>> {
        self.ca_providers.get(id)
    }

    /// `<cluster id>.consul`, lower case; `None` until the CA is set up, so that no name is made of a trust domain that
    /// nobody knows (C091).
    pub fn trust_domain(&self) -> Option<String> {
        let config = self.ca_config.as_ref()?;
        (!config.cluster_id.is_empty() && !self.ca_roots.is_empty())
            .then(|| format!("{}.consul", config.cluster_id.to_lowercase()))
    }
}

impl Tx<'_> {
    pub(crate) fn ca(&mut self, op: &CaCommand) -> Result<Outcome, ApplyError> {
        match op {
            CaCommand::SetRoots { cas, roots } => self.ca_set_roots(*cas, roots),
            CaCommand::SetConfig { cas, config } => Ok(self.ca_set_config(*cas, config)),
            CaCommand::SetRootsAndConfig {
                cas,
                roots,
                config_cas,
                config,
            } => {
                if self.state.row(&IndexRow::CaConfig) != *config_cas {
                    return Ok(Outcome::Bool(false));
                }
                let set = self.ca_set_roots(*cas, roots)?;
                if set == Outcome::Bool(true) {
                    self.ca_set_config(None, config);
                }
                Ok(set)
            }
            CaCommand::SetProviderState(given) => {
                let mut state = given.clone();
                let old = self.state.ca_providers.get(&state.id);
                state.create_index = old.map_or(self.index, |old| old.create_index);
                state.serial = state.serial.max(old.map_or(0, |old| old.serial));
                state.modify_index = self.index;
                self.state
                    .ca_providers
                    .insert(state.id.clone(), Arc::new(state));
                Ok(Outcome::Bool(true))
            }
            CaCommand::DeleteProviderState(id) => {
                self.state.ca_providers.remove(id);
                Ok(Outcome::Bool(true))
            }
            CaCommand::NextSerials { id, count } => self.ca_next_serials(id, *count),
        }
    }

    fn ca_set_roots(&mut self, cas: Index, given: &[CaRoot]) -> Result<Outcome, ApplyError> {
        if self.state.row(&IndexRow::CaRoots) != cas {
            return Ok(Outcome::Bool(false));
        }
        if given.iter().filter(|root| root.active).count() != 1 {
            return Err(ApplyError::refused("there must be exactly one active CA"));
        }
        let indexed = |root: &CaRoot| {
            let old = self.state.ca_roots.iter().find(|old| old.id == root.id);
            Arc::new(CaRoot {
                create_index: old.map_or(self.index, |old| old.create_index),
                modify_index: self.index,
                ..root.clone()
            })
        };
        self.state.ca_roots = Arc::new(given.iter().map(indexed).collect());
        self.bump(IndexRow::CaRoots);
        self.touch(Topic::CaRoots);
        Ok(Outcome::Bool(true))
    }

    fn ca_set_config(&mut self, cas: Option<Index>, given: &CaConfiguration) -> Outcome {
        let (stored, old) = self.state.ca_config();
        if cas.is_some_and(|cas| cas != stored) {
            return Outcome::Bool(false);
        }
        let mut config = given.clone();
        config.create_index = old.map_or(self.index, |old| old.create_index);
        config.modify_index = self.index;
        if config.cluster_id.is_empty() {
            config.cluster_id = old.map_or_else(String::new, |old| old.cluster_id.clone());
        }
        self.state.ca_config = Some(Arc::new(config));
        self.bump(IndexRow::CaConfig);
        self.touch(Topic::CaConfig);
        Outcome::Bool(true)
    }

    fn ca_next_serials(&mut self, id: &str, count: u64) -> Result<Outcome, ApplyError> {
        let Some(old) = self.state.ca_providers.get(id) else {
            return Err(ApplyError::refused(format!("no CA provider state {id:?}")));
        };
        let Some(serial) = old.serial.checked_add(count.max(1)) else {
            return Err(ApplyError::refused("CA serial numbers are used up"));
        };
        let state = CaProviderState {
            serial,
            modify_index: self.index,
            ..(**old).clone()
        };
        self.state
            .ca_providers
            .insert(id.to_owned(), Arc::new(state));
        Ok(Outcome::Number(serial))
    }
}
