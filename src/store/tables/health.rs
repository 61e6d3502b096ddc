//! Instances together with their node and the checks that decide their health.

use crate::model::{CheckServiceNode, Node, NodeService, ServiceKind};
use crate::store::state::{Key, State};
use crate::store::tables::rows;
use std::sync::Arc;

impl State {
    /// Instances of a service with their nodes, in order of node and id.
    pub fn service_nodes(&self, name: &str) -> Vec<(Arc<Node>, Arc<NodeService>)> {
        let key = Key::from(name);
        rows(&self.services_by_name, &key, None)
            .filter_map(|(at, service)| Some((self.nodes.get(&at.1)?.clone(), service.clone())))
            .collect()
    }

    /// Instances that Connect clients of a service may use, with their nodes, in order of node and id.
    pub fn connect_service_nodes(&self, name: &str) -> Vec<(Arc<Node>, Arc<NodeService>)> {
        let key = Key::from(name);
        rows(&self.connect, &key, None)
            .filter_map(|(at, service)| Some((self.nodes.get(&at.1)?.clone(), service.clone())))
            .collect()
    }

    /// Instances of a service with nodes and checks, in order of node and id.
    pub fn check_service_nodes(&self, name: &str) -> Vec<CheckServiceNode> {
        let key = Key::from(name);
        rows(&self.services_by_name, &key, None)
            .filter_map(|(at, service)| self.with_checks(&at.1, &at.2, service))
            .collect()
    }

    /// As [`State::check_service_nodes`], of the instances that Connect clients of a service may use.
    pub fn connect_check_service_nodes(&self, name: &str) -> Vec<CheckServiceNode> {
        let key = Key::from(name);
        rows(&self.connect, &key, None)
            .filter_map(|(at, service)| self.with_checks(&at.1, &at.2, service))
            .collect()
    }

    /// All instances of one kind with nodes and checks, in order of node and id.
    pub fn kind_dump(&self, kind: &ServiceKind) -> Vec<CheckServiceNode> {
        rows(&self.services_by_kind, kind, None)
            .filter_map(|(at, service)| self.with_checks(&at.1, &at.2, service))
            .collect()
    }

    /// All instances with nodes and checks, in order of node and id.
    pub fn service_dump(&self) -> Vec<CheckServiceNode> {
        self.services
            .iter()
            .filter_map(|(at, service)| self.with_checks(&at.0, &at.1, service))
            .collect()
    }

    /// One instance with its node and checks.
    pub fn check_service_node(&self, node: &str, id: &str) -> Option<CheckServiceNode> {
        let (node, id) = (Key::from(node), Key::from(id));
        let service = self.services.get(&(node.clone(), id.clone()))?;
        self.with_checks(&node, &id, service)
    }

    /// The node's own checks first, then those of the instance.
    fn with_checks(
        &self,
        node: &Key,
        id: &Key,
        service: &Arc<NodeService>,
    ) -> Option<CheckServiceNode> {
        let none = Key::first();
        let of_node = rows(&self.checks_by_service, node, Some(&none));
        let of_service = rows(&self.checks_by_service, node, Some(id));
        let checks = of_node
            .chain(of_service)
            .map(|(_, check)| check.clone())
            .collect();
        Some(CheckServiceNode {
            node: Some(self.nodes.get(node)?.clone()),
            service: Some(service.clone()),
            checks,
        })
    }
}
