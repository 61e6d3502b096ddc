//! Nodes, and the registration that brings nodes, services and checks together.

use crate::model::check::SERF_HEALTH;
use crate::model::ids::Index;
use crate::model::query::RegisterRequest;
use crate::model::{
    CheckId, CheckStatus, HealthCheck, Node, NodeId, NodeName, NodeService, ServiceId,
};
use crate::store::command::{ApplyError, Outcome, Topic};
use crate::store::state::{IndexRow, Key, State, Tx};
use crate::store::tables::on_node;
use std::sync::Arc;

impl State {
    /// All nodes in name order.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// Index of [`State::nodes`].
    pub fn nodes_index(&self) -> Index {
        self.row(&IndexRow::Nodes)
    }

    /// A node by name, whatever its case.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(&Key::from(name))
    }

    /// A node by its UUID.
    pub fn node_by_id(&self, id: &str) -> Option<&Arc<Node>> {
        self.nodes.get(self.node_ids.get(&Key::from(id))?)
    }

    /// Index of what is known of one node: the newest change of it, its services or its checks.
    pub fn node_index(&self, name: &str) -> Index {
        let key = Key::from(name);
        let Some(node) = self.nodes.get(&key) else {
            return self.row(&IndexRow::Nodes);
        };
        let services = on_node(&self.services, &key).map(|(_, s)| s.modify_index);
        let checks = on_node(&self.checks, &key).map(|(_, c)| c.modify_index);
        services
            .chain(checks)
            .fold(node.modify_index, Index::max)
            .max(self.row(&IndexRow::Services))
    }
}

impl Tx<'_> {
    pub(crate) fn register(&mut self, request: &RegisterRequest) -> Result<Outcome, ApplyError> {
        let key = Key::of(request.node.shared());
        if !(request.skip_node_update && self.state.nodes.contains_key(&key)) {
            self.ensure_node(&key, request)?;
        }
        if let Some(service) = &request.service {
            self.ensure_service(&key, service)?;
        }
        for check in request.check.iter().chain(&request.checks) {
            self.ensure_check(&key, check)?;
        }
        Ok(Outcome::Done)
    }

    fn ensure_node(&mut self, key: &Key, request: &RegisterRequest) -> Result<(), ApplyError> {
        let mut node = Node {
            id: request.id.clone(),
            node: request.node.clone(),
            address: request.address.clone(),
            datacenter: request.datacenter.clone(),
            tagged_addresses: request.tagged_addresses.clone(),
            meta: request.node_meta.clone(),
            create_index: self.index,
            modify_index: self.index,
        };
        if !node.id.is_empty() {
            self.settle_node_id(key, &node)?;
        }
        if let Some(old) = self.state.nodes.get(key) {
            if node.id.is_empty() {
                node.id = old.id.clone();
            }
            if old.same(&node) {
                return Ok(());
            }
            node.create_index = old.create_index;
        }
        let id = Key::of(node.id.shared());
        if !node.id.is_empty() {
            self.state.node_ids.insert(id, key.clone());
        }
        self.state.nodes.insert(key.clone(), Arc::new(node));
        self.bump(IndexRow::Nodes);
        self.touch(Topic::Nodes);
        self.touch(Topic::Node(key.clone()));
        self.touch_services_of(key);
        Ok(())
    }

    /// A UUID follows its node to a new name; a name may be taken over only from a node that is not alive.
    fn settle_node_id(&mut self, key: &Key, node: &Node) -> Result<(), ApplyError> {
        let id = Key::of(node.id.shared());
        let holder = self.state.node_ids.get(&id).cloned();
        if let Some(old) = holder.filter(|old| old != key) {
            self.refuse_taken_name(key, node, true)?;
            self.delete_node(&old);
        } else {
            self.refuse_taken_name(key, node, false)?;
        }
        if let Some(previous) = self.state.nodes.get(key)
            && !previous.id.is_empty()
            && Key::of(previous.id.shared()) != id
        {
            self.state.node_ids.remove(&Key::of(previous.id.shared()));
        }
        Ok(())
    }

    fn refuse_taken_name(&self, key: &Key, node: &Node, rename: bool) -> Result<(), ApplyError> {
        let Some(other) = self.state.nodes.get(key) else {
            return Ok(());
        };
        let same = Key::of(other.id.shared()) == Key::of(node.id.shared());
        if same || other.id.is_empty() || !self.state.is_serf_alive(key) {
            return Ok(());
        }
        let what = if rename {
            "renaming Node ID"
        } else {
            "inserting node"
        };
        Err(ApplyError::refused(format!(
            "failed inserting node: Error while {what}: {:?} ({}): Node name {} is reserved by node {} with name {} ({})",
            node.id.as_str(),
            node.address,
            node.node,
            other.id,
            other.node,
            other.address,
        )))
    }

    pub(crate) fn deregister(&mut self, node: &NodeName, service: &ServiceId, check: &CheckId) {
        let key = Key::of(node.shared());
        if !service.is_empty() {
            self.delete_service(&key, &Key::of(service.shared()));
        } else if !check.is_empty() {
            self.delete_check(&key, &Key::of(check.shared()));
        } else {
            self.delete_node(&key);
        }
    }

    fn delete_node(&mut self, key: &Key) {
        let Some(node) = self.state.nodes.get(key).cloned() else {
            return;
        };
        let services: Vec<Key> = on_node(&self.state.services, key)
            .map(|(k, _)| k.1.clone())
            .collect();
        for id in services {
            self.delete_service(key, &id);
        }
        let checks: Vec<Key> = on_node(&self.state.checks, key)
            .map(|(k, _)| k.1.clone())
            .collect();
        for id in checks {
            self.delete_check(key, &id);
        }
        self.delete_coordinates(key);
        self.state.nodes.remove(key);
        if !node.id.is_empty() {
            self.state.node_ids.remove(&Key::of(node.id.shared()));
        }
        self.bump(IndexRow::Nodes);
        self.touch(Topic::Nodes);
        self.touch(Topic::Node(key.clone()));
    }

    /// A change of a node is one of every instance on it.
    pub(crate) fn touch_services_of(&mut self, node: &Key) {
        let services: Vec<Arc<NodeService>> = on_node(&self.state.services, node)
            .map(|(_, s)| s.clone())
            .collect();
        for service in services {
            self.touch_service(&service);
        }
    }
}

impl State {
    fn is_serf_alive(&self, node: &Key) -> bool {
        let serf = (node.clone(), Key::from(SERF_HEALTH));
        let alive = |check: &Arc<HealthCheck>| check.status != CheckStatus::Critical;
        self.checks.get(&serf).is_some_and(alive)
    }

    /// Whether a node with this UUID is registered under another name.
    pub fn id_is_elsewhere(&self, id: &NodeId, name: &NodeName) -> bool {
        let at = self.node_ids.get(&Key::of(id.shared()));
        at.is_some_and(|at| *at != Key::of(name.shared()))
    }
}
