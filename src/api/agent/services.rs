//! Services and checks registered with this server.

use crate::api::Api;
use crate::api::agent::Agent;
use crate::api::error::Error;
use crate::api::read::wait_time;
use crate::local::{self, CheckDefinition, DefinitionError, Local, ServiceDefinition};
use crate::model::{CheckStatus, HealthCheck, NodeService};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Why a registration or a report fails: whose fault it is decides the status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    /// The body has another form than a definition.
    #[error("{0}")]
    Decode(String),
    /// The definition says something that cannot be.
    #[error("{0}")]
    Invalid(String),
    /// It does not fit what is registered, or could not be kept.
    #[error("{0}")]
    Failed(String),
}

impl From<local::Error> for AgentError {
    fn from(error: local::Error) -> Self {
        match error {
            local::Error::Definition(error) => error.into(),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<DefinitionError> for AgentError {
    fn from(error: DefinitionError) -> Self {
        match error {
            DefinitionError::Decode(error) => Self::Decode(error.to_string()),
            DefinitionError::Invalid(text) => Self::Invalid(text),
        }
    }
}

impl From<Error> for AgentError {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A local service with the checks that decide its health.
#[derive(Debug, Clone)]
pub struct ServiceHealth {
    /// The worst of the checks; passing without any.
    pub status: CheckStatus,
    /// The service.
    pub service: Arc<NodeService>,
    /// Its checks, and those of the node.
    pub checks: Vec<Arc<HealthCheck>>,
}

/// A short fingerprint of what a service says, 16 hexadecimal digits. Equal services have equal ones.
pub fn content_hash(service: &NodeService) -> String {
    // A service always encodes: its maps have text keys.
    let bytes = serde_json::to_vec(service).unwrap_or_default();
    let digest = Sha256::digest(bytes);
    digest.iter().take(8).map(|b| format!("{b:02x}")).collect()
}

impl Api {
    fn local(&self) -> Result<&Local, Error> {
        self.agent().map(|Agent { local, .. }| local)
    }

    /// All services, in id order.
    ///
    /// # Errors
    /// There is no agent; so with every verb here.
    pub fn agent_services(&self) -> Result<Vec<Arc<NodeService>>, Error> {
        let rows = self.local()?.services();
        Ok(rows.into_iter().map(|row| row.service).collect())
    }

    /// One service with its fingerprint. With `hash`, waits while that is the fingerprint: `wait` long, or the default.
    ///
    /// # Errors
    /// There is no agent.
    pub async fn agent_service(
        &self,
        id: &str,
        hash: &str,
        wait: Duration,
    ) -> Result<Option<(Arc<NodeService>, String)>, Error> {
        let local = self.local()?;
        let mut changes = local.service_changes();
        let settings = self.settings();
        let (default, max) = (settings.default_query_time, settings.max_query_time);
        let deadline = Instant::now() + wait_time(wait, default, max, rand::random());
        loop {
            changes.mark_unchanged();
            let Some(row) = local.service(id) else {
                return Ok(None);
            };
            let found = content_hash(&row.service);
            if found != hash {
                return Ok(Some((row.service, found)));
            }
            match timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                _ => return Ok(Some((row.service, found))),
            }
        }
    }

    /// All checks, in id order.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_checks(&self) -> Result<Vec<Arc<HealthCheck>>, Error> {
        let rows = self.local()?.checks();
        Ok(rows.into_iter().map(|row| row.check).collect())
    }

    /// Registers a service as `body` defines it.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn agent_register_service(
        &self,
        body: &Value,
        replace_checks: bool,
    ) -> Result<(), AgentError> {
        let definition = ServiceDefinition::parse(body)?;
        let local = self.local()?;
        Ok(local.register_service(definition, replace_checks).await?)
    }

    /// Removes a service and its checks; one that does not exist is no error.
    ///
    /// # Errors
    /// No id, or its files cannot be removed.
    pub async fn agent_deregister_service(&self, id: &str) -> Result<(), AgentError> {
        if id.is_empty() {
            return Err(AgentError::Failed("ServiceID missing".to_owned()));
        }
        self.local()?.deregister_service(&id.into()).await?;
        Ok(())
    }

    /// Registers a check as `body` defines it.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn agent_register_check(&self, body: &Value) -> Result<(), AgentError> {
        let definition = CheckDefinition::parse(body)?;
        Ok(self.local()?.register_check(definition).await?)
    }

    /// Removes a check; one that does not exist is no error.
    ///
    /// # Errors
    /// No id, or its files cannot be removed.
    pub async fn agent_deregister_check(&self, id: &str) -> Result<(), AgentError> {
        if id.is_empty() {
            return Err(AgentError::Failed("CheckID missing".to_owned()));
        }
        self.local()?.deregister_check(&id.into()).await?;
        Ok(())
    }

    /// Takes a service's report about itself.
    ///
    /// # Errors
    /// There is no such check, or this server runs it.
    pub fn agent_report(
        &self,
        id: &str,
        status: CheckStatus,
        output: String,
    ) -> Result<(), AgentError> {
        Ok(self.local()?.report(&id.into(), status, output)?)
    }

    /// Health of one service by id.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_health_by_id(&self, id: &str) -> Result<Option<ServiceHealth>, Error> {
        let local = self.local()?;
        Ok(local.service(id).map(|row| health(local, row.service)))
    }

    /// Health of all instances of a service.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_health_by_name(&self, name: &str) -> Result<Vec<ServiceHealth>, Error> {
        let local = self.local()?;
        let rows = local.services().into_iter();
        Ok(rows
            .filter(|row| row.service.service == *name)
            .map(|row| health(local, row.service))
            .collect())
    }
}

fn health(local: &Local, service: Arc<NodeService>) -> ServiceHealth {
    let rows = local.checks_of(service.id.as_str()).into_iter();
    let checks: Vec<_> = rows.map(|row| row.check).collect();
    ServiceHealth {
        status: checks
            .iter()
            .map(|c| c.status)
            .max()
            .unwrap_or(CheckStatus::Passing),
        service,
        checks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_services_have_equal_fingerprints() {
        let mut service = NodeService {
            id: "a".into(),
            ..NodeService::default()
        };
        let before = content_hash(&service);
        assert_eq!(before.len(), 16);
        assert_eq!(before, content_hash(&service.clone()));
        service.meta.insert("k".into(), "v".into());
        assert_ne!(before, content_hash(&service));
    }
}
