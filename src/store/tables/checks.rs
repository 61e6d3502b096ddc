//! Checks of nodes and service instances.

use crate::model::ids::Index;
use crate::model::{CheckStatus, HealthCheck, NodeName, ServiceName};
use crate::store::command::{ApplyError, CheckOp, Outcome, Topic};
use crate::store::state::{IndexRow, Key, State, Tx};
use crate::store::tables::{on_node, rows};
use imbl::ordmap::DiffItem;
use std::sync::Arc;

impl State {
    /// Node and id of each check that was added, changed or removed since `older`. Costs what changed, not what is
    /// stored.
    pub fn changed_checks(&self, older: &Self) -> Vec<(Key, Key)> {
        older
            .checks
            .diff(&self.checks)
            .map(|item| match item {
                DiffItem::Add(key, _) | DiffItem::Remove(key, _) => key.clone(),
                DiffItem::Update { new, .. } => new.0.clone(),
            })
            .collect()
    }

    /// Index of the checks by state.
    pub fn checks_index(&self) -> Index {
        self.row(&IndexRow::Checks)
    }

    /// All checks, in order of node and id.
    pub fn checks(&self) -> impl Iterator<Item = &Arc<HealthCheck>> {
        self.checks.values()
    }

    /// Checks with this status; `None` for all.
    pub fn checks_in_state(&self, status: Option<CheckStatus>) -> Vec<Arc<HealthCheck>> {
        self.checks
            .values()
            .filter(|check| status.is_none_or(|s| check.status == s))
            .cloned()
            .collect()
    }

    /// Checks on a node, in id order.
    pub fn checks_on(&self, node: &str) -> Vec<Arc<HealthCheck>> {
        let key = Key::from(node);
        on_node(&self.checks, &key)
            .map(|(_, c)| c.clone())
            .collect()
    }

    /// One check.
    pub fn check(&self, node: &str, id: &str) -> Option<&Arc<HealthCheck>> {
        self.checks.get(&(Key::from(node), Key::from(id)))
    }

    /// Checks of all instances of a service, in order of node and id; not those of the nodes.
    pub fn checks_of_service(&self, name: &str) -> Vec<Arc<HealthCheck>> {
        let key = Key::from(name);
        rows(&self.services_by_name, &key, None)
            .flat_map(|(at, _)| rows(&self.checks_by_service, &at.1, Some(&at.2)))
            .map(|(_, check)| check.clone())
            .collect()
    }
}

impl Tx<'_> {
    pub(crate) fn check_op(&mut self, op: &CheckOp) -> Result<Outcome, ApplyError> {
        match op {
            CheckOp::Result {
                node,
                check_id,
                status,
                output,
            } => {
                let Some(old) = self.state.check(node.as_str(), check_id.as_str()) else {
                    return Ok(Outcome::Bool(false));
                };
                let check = HealthCheck {
                    status: *status,
                    output: output.clone(),
                    ..HealthCheck::clone(old)
                };
                self.ensure_check(&Key::of(node.shared()), &check)?;
                Ok(Outcome::Bool(true))
            }
            CheckOp::Reap {
                node,
                check_id,
                modify_index,
            } => {
                let check = self.state.check(node.as_str(), check_id.as_str());
                let Some(check) = check.cloned().filter(|check| {
                    check.status == CheckStatus::Critical
                        && check.modify_index == *modify_index
                        && !check.service_id.is_empty()
                }) else {
                    return Ok(Outcome::Bool(false));
                };
                self.reap(node, &check);
                Ok(Outcome::Bool(true))
            }
        }
    }

    fn reap(&mut self, node: &NodeName, check: &HealthCheck) {
        let key = Key::of(node.shared());
        self.delete_service(&key, &Key::of(check.service_id.shared()));
        let empty = on_node(&self.state.services, &key).next().is_none()
            && on_node(&self.state.checks, &key).next().is_none();
        if empty {
            self.deregister(node, &Default::default(), &Default::default());
        }
    }

    pub(crate) fn ensure_check(
        &mut self,
        node: &Key,
        given: &HealthCheck,
    ) -> Result<(), ApplyError> {
        let Some(on) = self.state.nodes.get(node).cloned() else {
            return Err(ApplyError::refused("Missing node registration"));
        };
        let mut check = given.clone();
        check.node = on.node.clone();
        if check.check_id.is_empty() {
            check.check_id = check.name.as_str().into();
        }
        let service_key = Key::of(check.service_id.shared());
        if check.service_id.is_empty() {
            check.service_name = ServiceName::default();
            check.service_tags = Vec::new();
        } else {
            let service = self
                .state
                .services
                .get(&(node.clone(), service_key.clone()));
            let Some(service) = service else {
                return Err(ApplyError::refused("Missing service registration"));
            };
            check.service_name = service.service.clone();
            check.service_tags = service.tags.clone();
        }
        let id = Key::of(check.check_id.shared());
        check.create_index = self.index;
        check.modify_index = self.index;
        let at = (node.clone(), id.clone());
        if let Some(old) = self.state.checks.get(&at).cloned() {
            if old.same(&check) {
                return Ok(());
            }
            check.create_index = old.create_index;
            if old.service_id != check.service_id {
                self.touch_owner(node, &old);
            }
            let old_service = Key::of(old.service_id.shared());
            self.state
                .checks_by_service
                .remove(&(node.clone(), old_service, id.clone()));
        }
        let check = Arc::new(check);
        self.state.checks.insert(at, check.clone());
        self.state
            .checks_by_service
            .insert((node.clone(), service_key, id), check.clone());
        self.touch_check(node, &check);
        Ok(())
    }

    pub(crate) fn delete_check(&mut self, node: &Key, id: &Key) {
        let Some(check) = self.state.checks.remove(&(node.clone(), id.clone())) else {
            return;
        };
        let service = Key::of(check.service_id.shared());
        self.state
            .checks_by_service
            .remove(&(node.clone(), service, id.clone()));
        self.touch_check(node, &check);
    }

    fn touch_check(&mut self, node: &Key, check: &HealthCheck) {
        self.bump(IndexRow::Checks);
        self.touch(Topic::Checks);
        self.touch(Topic::Node(node.clone()));
        self.touch_owner(node, check);
    }

    /// A service's check concerns that service; a node's check every service on the node.
    fn touch_owner(&mut self, node: &Key, check: &HealthCheck) {
        if check.service_id.is_empty() {
            self.touch_services_of(node);
            return;
        }
        let at = (node.clone(), Key::of(check.service_id.shared()));
        if let Some(service) = self.state.services.get(&at).cloned() {
            self.touch_service(&service);
        }
    }
}
