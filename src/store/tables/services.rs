//! Service instances and the look-ups by name, kind and Connect destination.

use crate::model::ids::Index;
use crate::model::{NodeService, ServiceKind, ServiceName};
use crate::store::command::{ApplyError, Topic};
use crate::store::state::{IndexRow, Key, State, Tx};
use crate::store::tables::{on_node, rows};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl State {
    /// Index of the list of services.
    pub fn services_index(&self) -> Index {
        self.row(&IndexRow::Services)
    }

    /// Names of all services with the distinct tags of their instances, both in order.
    pub fn services(&self) -> BTreeMap<ServiceName, Vec<String>> {
        let mut names: BTreeMap<ServiceName, BTreeSet<&str>> = BTreeMap::new();
        for service in self.services_by_name.values() {
            let tags = names.entry(service.service.clone()).or_default();
            tags.extend(service.tags.iter().map(String::as_str));
        }
        names
            .into_iter()
            .map(|(name, tags)| (name, tags.into_iter().map(str::to_owned).collect()))
            .collect()
    }

    /// Instances on a node, in id order.
    pub fn services_on(&self, node: &str) -> Vec<Arc<NodeService>> {
        let key = Key::from(node);
        on_node(&self.services, &key)
            .map(|(_, s)| s.clone())
            .collect()
    }

    /// One instance.
    pub fn service(&self, node: &str, id: &str) -> Option<&Arc<NodeService>> {
        self.services.get(&(Key::from(node), Key::from(id)))
    }

    /// Every instance with this id, with its node: service ids are unique on their node only.
    pub fn services_with_id(&self, id: &str) -> Vec<(Key, Arc<NodeService>)> {
        let id = Key::from(id);
        self.services
            .iter()
            .filter(|(key, _)| key.1 == id)
            .map(|(key, service)| (key.0.clone(), service.clone()))
            .collect()
    }

    /// Index of the instances of one service: its own row; for a service that does not exist, when one last ceased to.
    pub fn service_index(&self, name: &str) -> Index {
        match self.row(&IndexRow::Service(Key::from(name))) {
            0 => match self.row(&IndexRow::ServiceLastExtinction) {
                0 => self.row(&IndexRow::Services),
                extinction => extinction,
            },
            index => index,
        }
    }

    /// Index of the Connect-capable instances of one service.
    pub fn connect_index(&self, name: &str) -> Index {
        match self.row(&IndexRow::Connect(Key::from(name))) {
            0 => self.service_index(name),
            index => index,
        }
    }

    /// Index of the instances of one kind.
    pub fn kind_index(&self, kind: &ServiceKind) -> Index {
        self.row(&IndexRow::ServiceKind(kind.clone()))
    }

    /// Names of all services with at least one Connect-capable instance, lower case, in order.
    pub fn connect_names(&self) -> Vec<Key> {
        let mut names: Vec<Key> = Vec::new();
        for (name, _, _) in self.connect.keys() {
            if names.last() != Some(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

impl Tx<'_> {
    pub(crate) fn ensure_service(
        &mut self,
        node: &Key,
        given: &NodeService,
    ) -> Result<(), ApplyError> {
        if !self.state.nodes.contains_key(node) {
            return Err(ApplyError::refused("Missing node registration"));
        }
        let mut service = given.clone();
        if service.id.is_empty() {
            service.id = service.service.as_str().into();
        }
        if service.weights.is_none() {
            service.weights = Some(crate::model::Weights::default());
        }
        let id = Key::of(service.id.shared());
        service.create_index = self.index;
        service.modify_index = self.index;
        if let Some(old) = self
            .state
            .services
            .get(&(node.clone(), id.clone()))
            .cloned()
        {
            if old.same(&service) {
                return Ok(());
            }
            service.create_index = old.create_index;
            self.unlink_service(node, &id, &old);
            self.link_service(node, &id, service);
            self.settle_removed(&old);
        } else {
            self.link_service(node, &id, service);
        }
        Ok(())
    }

    fn link_service(&mut self, node: &Key, id: &Key, service: NodeService) {
        let service = Arc::new(service);
        let on_node = (node.clone(), id.clone());
        let name = Key::of(service.service.shared());
        self.state.services.insert(on_node, service.clone());
        self.state
            .services_by_name
            .insert((name, node.clone(), id.clone()), service.clone());
        self.state.services_by_kind.insert(
            (service.kind.clone(), node.clone(), id.clone()),
            service.clone(),
        );
        if let Some(name) = service.connect_name() {
            self.state.connect.insert(
                (Key::of(name.shared()), node.clone(), id.clone()),
                service.clone(),
            );
        }
        self.touch_service(&service);
        self.bump(IndexRow::Services);
        self.touch(Topic::Services);
        self.touch(Topic::Node(node.clone()));
    }

    fn unlink_service(&mut self, node: &Key, id: &Key, service: &NodeService) {
        let (node, id) = (node.clone(), id.clone());
        self.state.services.remove(&(node.clone(), id.clone()));
        let name = Key::of(service.service.shared());
        self.state
            .services_by_name
            .remove(&(name, node.clone(), id.clone()));
        self.state
            .services_by_kind
            .remove(&(service.kind.clone(), node.clone(), id.clone()));
        if let Some(name) = service.connect_name() {
            self.state
                .connect
                .remove(&(Key::of(name.shared()), node, id));
        }
    }

    /// Bumps what an instance belonged to; a name without instances loses its own row.
    fn settle_removed(&mut self, old: &NodeService) {
        self.touch_service(old);
        let name = Key::of(old.service.shared());
        if rows(&self.state.services_by_name, &name, None)
            .next()
            .is_none()
        {
            self.state.indexes.remove(&IndexRow::Service(name));
            self.bump(IndexRow::ServiceLastExtinction);
        }
        if let Some(name) = old.connect_name() {
            let name = Key::of(name.shared());
            if rows(&self.state.connect, &name, None).next().is_none() {
                self.state.indexes.remove(&IndexRow::Connect(name));
                self.bump(IndexRow::ServiceLastExtinction);
            }
        }
    }

    pub(crate) fn delete_service(&mut self, node: &Key, id: &Key) {
        let key = (node.clone(), id.clone());
        let Some(service) = self.state.services.get(&key).cloned() else {
            return;
        };
        let checks: Vec<Key> = rows(&self.state.checks_by_service, node, Some(id))
            .map(|(k, _)| k.2.clone())
            .collect();
        for check in checks {
            self.delete_check(node, &check);
        }
        self.unlink_service(node, id, &service);
        self.settle_removed(&service);
        self.bump(IndexRow::Services);
        self.touch(Topic::Services);
        self.touch(Topic::Node(node.clone()));
    }

    /// Marks everything that shows this instance as changed: its name, its kind, and its Connect destination.
    pub(crate) fn touch_service(&mut self, service: &NodeService) {
        let name = Key::of(service.service.shared());
        self.bump(IndexRow::Service(name.clone()));
        self.touch(Topic::Service(name));
        self.bump(IndexRow::ServiceKind(service.kind.clone()));
        self.touch(Topic::ServiceKind(service.kind.clone()));
        if let Some(name) = service.connect_name() {
            let name = Key::of(name.shared());
            self.bump(IndexRow::Connect(name.clone()));
            self.touch(Topic::Connect(name));
            self.touch(Topic::AnyConnect);
        }
    }
}
