//! What the catalog should hold for this node, and the writes that make it so.

use crate::local::config::Identity;
use crate::local::state::{LocalState, Timer};
use crate::model::catalog::CONSUL_SERVICE;
use crate::model::check::SERF_HEALTH;
use crate::model::query::RegisterRequest;
use crate::model::{CheckId, HealthCheck, NodeService, ServiceId};
use crate::store::{Command, State};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// One write to the catalog.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncOp {
    /// Adds or updates a service together with its changed checks.
    Service(Arc<NodeService>, Vec<Arc<HealthCheck>>),
    /// Adds or updates a check alone.
    Check(Arc<HealthCheck>),
    /// Removes a service and its checks.
    RemoveService(ServiceId),
    /// Removes a check.
    RemoveCheck(CheckId),
}

impl fmt::Display for SyncOp {
    /// What it is about, for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service, _) => write!(f, "service {}", service.id),
            Self::Check(check) => write!(f, "check {}", check.check_id),
            Self::RemoveService(id) => write!(f, "removal of service {id}"),
            Self::RemoveCheck(id) => write!(f, "removal of check {id}"),
        }
    }
}

impl SyncOp {
    /// The write. The node's own row is left alone unless it is missing.
    pub fn command(&self, identity: &Identity) -> Command {
        let deregister = |service_id: ServiceId, check_id: CheckId| Command::Deregister {
            node: identity.node.clone(),
            service_id,
            check_id,
        };
        match self {
            Self::Service(service, checks) => {
                let service = NodeService::clone(service);
                let checks = checks.iter().map(|c| HealthCheck::clone(c)).collect();
                register(identity, Some(service), checks)
            }
            Self::Check(check) => register(identity, None, vec![HealthCheck::clone(check)]),
            Self::RemoveService(id) => deregister(id.clone(), CheckId::default()),
            Self::RemoveCheck(id) => deregister(ServiceId::default(), id.clone()),
        }
    }
}

fn register(
    identity: &Identity,
    service: Option<NodeService>,
    checks: Vec<HealthCheck>,
) -> Command {
    Command::Register(Box::new(RegisterRequest {
        datacenter: identity.datacenter.clone(),
        id: identity.id.clone(),
        node: identity.node.clone(),
        address: identity.address.clone(),
        tagged_addresses: identity.tagged_addresses.clone(),
        node_meta: identity.meta.clone(),
        service,
        checks,
        skip_node_update: true,
        ..RegisterRequest::default()
    }))
}

impl LocalState {
    /// Compares everything with the catalog and marks what differs. Where a service lets the catalog override its tags,
    /// its tags follow the catalog.
    pub fn compare(&mut self, catalog: &State) {
        let node = self.node.clone();
        let stored = catalog.services_on(node.as_str());
        let mut seen: BTreeSet<ServiceId> = BTreeSet::new();
        for service in &stored {
            seen.insert(service.id.clone());
            if self.services.contains_key(&service.id) {
                self.adopt_tags(service);
                let own = self.services.get(&service.id);
                if own.is_some_and(|own| !own.service.same(service)) {
                    self.changed_services.insert(service.id.clone());
                }
            } else if service.id != CONSUL_SERVICE {
                self.gone_services.insert(service.id.clone());
            }
        }
        let missing = self.services.keys().filter(|id| !seen.contains(*id));
        self.changed_services.extend(missing.cloned());
        self.compare_checks(catalog);
    }

    fn compare_checks(&mut self, catalog: &State) {
        let mut seen: BTreeSet<CheckId> = BTreeSet::new();
        for check in catalog.checks_on(self.node.as_str()) {
            let id = &check.check_id;
            seen.insert(id.clone());
            if let Some(own) = self.checks.get(id) {
                // Output that waits for its time is no difference.
                let same = if self.timers.contains(&Timer::Output(id.clone())) {
                    own.check.same_apart_from_output(&check)
                } else {
                    own.check.same(&check)
                };
                if !same {
                    self.changed_checks.insert(id.clone());
                }
            } else if id != SERF_HEALTH
                && check.service_id != CONSUL_SERVICE
                && !self.gone_services.contains(&check.service_id)
            {
                self.gone_checks.insert(id.clone());
            }
        }
        let missing = self.checks.keys().filter(|id| !seen.contains(*id));
        self.changed_checks.extend(missing.cloned());
    }

    fn adopt_tags(&mut self, stored: &NodeService) {
        let Some(own) = self.services.get_mut(&stored.id) else {
            return;
        };
        if !own.service.enable_tag_override || own.service.tags == stored.tags {
            return;
        }
        Arc::make_mut(&mut own.service)
            .tags
            .clone_from(&stored.tags);
        for row in self.checks.values_mut() {
            if row.check.service_id == stored.id {
                Arc::make_mut(&mut row.check)
                    .service_tags
                    .clone_from(&stored.tags);
            }
        }
    }

    /// Whether the catalog lacks something.
    pub fn has_changes(&self) -> bool {
        !(self.changed_services.is_empty()
            && self.changed_checks.is_empty()
            && self.gone_services.is_empty()
            && self.gone_checks.is_empty())
    }

    /// Takes the writes that bring the catalog up to date. Those that fail come back through
    /// [`LocalState::not_written`].
    pub fn take_changes(&mut self) -> Vec<SyncOp> {
        let mut ops: Vec<SyncOp> = Vec::new();
        ops.extend(
            std::mem::take(&mut self.gone_services)
                .into_iter()
                .map(SyncOp::RemoveService),
        );
        ops.extend(
            std::mem::take(&mut self.gone_checks)
                .into_iter()
                .map(SyncOp::RemoveCheck),
        );
        let mut checks = std::mem::take(&mut self.changed_checks);
        for check in &checks {
            self.timers.clear(&Timer::Output(check.clone()));
        }
        for id in std::mem::take(&mut self.changed_services) {
            let Some(row) = self.services.get(&id) else {
                continue;
            };
            let own: Vec<Arc<HealthCheck>> = self
                .checks_of(id.as_str())
                .filter(|row| checks.contains(&row.check.check_id))
                .map(|row| row.check.clone())
                .collect();
            for check in &own {
                checks.remove(&check.check_id);
            }
            ops.push(SyncOp::Service(row.service.clone(), own));
        }
        let rest = checks.iter().filter_map(|id| self.checks.get(id));
        ops.extend(rest.map(|row| SyncOp::Check(row.check.clone())));
        ops
    }

    /// Marks again what could not be written, unless it changed its mind meanwhile.
    pub fn not_written(&mut self, op: &SyncOp) {
        match op {
            SyncOp::Service(service, checks) => {
                if self.services.contains_key(&service.id) {
                    self.changed_services.insert(service.id.clone());
                }
                for check in checks {
                    self.check_not_written(&check.check_id);
                }
            }
            SyncOp::Check(check) => self.check_not_written(&check.check_id),
            SyncOp::RemoveService(id) => {
                if !self.services.contains_key(id) {
                    self.gone_services.insert(id.clone());
                }
            }
            SyncOp::RemoveCheck(id) => {
                if !self.checks.contains_key(id) {
                    self.gone_checks.insert(id.clone());
                }
            }
        }
    }

    fn check_not_written(&mut self, id: &CheckId) {
        if self.checks.contains_key(id) {
            self.changed_checks.insert(id.clone());
        }
    }
}
