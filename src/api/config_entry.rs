//! Config entries: settings of services that apply wherever their instances run.

mod rules;

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::query::ConfigEntryQuery;
use crate::model::{ConfigEntry, ConfigKind, Datacenter, Index};
use crate::store::{Command, ConfigOp, Outcome, Topic};
use std::sync::Arc;

pub use rules::normalise;

impl Api {
    /// One entry, if it exists.
    ///
    /// # Errors
    /// An unknown kind, no path to the datacenter, or no leader.
    pub async fn config_entry(
        &self,
        request: &ConfigEntryQuery,
    ) -> Result<Answer<Option<Arc<ConfigEntry>>>, Error> {
        let (kind, name) = (kind_of(&request.kind)?, request.name.clone());
        self.read(
            request,
            vec![Topic::ConfigEntry(kind, name.clone())],
            move |state| state.config_kind_index(kind),
            move |state| state.config_entry(kind, &name).cloned(),
        )
        .await
    }

    /// The entries of one kind, or with an empty kind all, in order of kind and name.
    ///
    /// # Errors
    /// An unknown kind, no path to the datacenter, or no leader.
    pub async fn config_entries(
        &self,
        request: &ConfigEntryQuery,
    ) -> Result<Answer<Vec<Arc<ConfigEntry>>>, Error> {
        let kind = match request.kind.as_str() {
            "" => None,
            kind => Some(kind_of(kind)?),
        };
        let topic = kind.map_or(Topic::AnyConfig, Topic::ConfigKind);
        self.read(
            request,
            vec![topic],
            move |state| kind.map_or_else(|| state.config_index(), |k| state.config_kind_index(k)),
            move |state| match kind {
                Some(kind) => state.config_entries(kind).cloned().collect(),
                None => state.all_config_entries().cloned().collect(),
            },
        )
        .await
    }

    /// Adds or replaces an entry; with `cas` only if that is the stored one's index. Answers whether it was done.
    ///
    /// # Errors
    /// A broken rule, no path to the datacenter, or no leader.
    pub async fn apply_config_entry(
        &self,
        datacenter: &Datacenter,
        entry: ConfigEntry,
        cas: Option<Index>,
    ) -> Result<bool, Error> {
        let entry = normalise(entry)?;
        let op = match cas {
            Some(index) => ConfigOp::UpsertCas(entry.with_indexes(0, index)),
            None => ConfigOp::Upsert(entry),
        };
        let outcome = self.write(datacenter, Command::Config(op)).await?;
        Ok(outcome != Outcome::Bool(false))
    }

    /// Removes an entry; a missing one is no error.
    ///
    /// # Errors
    /// An unknown kind, no path to the datacenter, or no leader.
    pub async fn delete_config_entry(
        &self,
        datacenter: &Datacenter,
        kind: &str,
        name: &str,
    ) -> Result<(), Error> {
        let op = ConfigOp::Delete(kind_of(kind)?, name.to_owned());
        self.write(datacenter, Command::Config(op))
            .await
            .map(|_| ())
    }
}

fn kind_of(text: &str) -> Result<ConfigKind, Error> {
    text.parse::<ConfigKind>()
        .map_err(|error| Error::refused(error.to_string()))
}
