//! Nodes and services: what is registered where.

use crate::api::Api;
use crate::api::coordinate::nearest_first;
use crate::api::error::Error;
use crate::api::filter::{self, RowFilter};
use crate::api::read::Answer;
use crate::api::register;
use crate::api::service_node::ServiceNode;
use crate::local::definition::useless_federation_mark;
use crate::model::catalog::StringMap;
use crate::model::query::{
    DcSpecificRequest, DeregisterRequest, NodeSpecificRequest, RegisterRequest,
    ServiceSpecificRequest,
};
use crate::model::{Datacenter, Node, NodeService, ServiceName};
use crate::store::{Command, Key, State, Topic};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node with the services on it.
pub type NodeWithServices = (Arc<Node>, Vec<Arc<NodeService>>);

impl Api {
    /// Registers a node, and perhaps a service and checks on it.
    ///
    /// # Errors
    /// A broken rule, a conflict with what is registered, no path to the datacenter, or no leader.
    pub async fn register(&self, request: RegisterRequest) -> Result<(), Error> {
        let mut request = register::normalise(request)?;
        if let Some(service) = &request.service
            && let Some(value) = useless_federation_mark(service)
        {
            tracing::warn!(
                service = %service.id,
                value,
                "the meta value of consul-wan-federation has no effect: only \"1\" lets a gateway federate"
            );
        }
        let datacenter = request.datacenter.clone();
        request.datacenter = self.settings().datacenter.clone();
        request.token = String::new();
        let command = Command::Register(Box::new(request));
        self.write(&datacenter, command).await.map(|_| ())
    }

    /// Removes a service, a check, or the whole node. What is not there is no error.
    ///
    /// # Errors
    /// No node named, no path to the datacenter, or no leader.
    pub async fn deregister(&self, request: DeregisterRequest) -> Result<(), Error> {
        if request.node.is_empty() {
            return Err(Error::refused("Must provide node"));
        }
        let command = Command::Deregister {
            node: request.node,
            service_id: request.service_id,
            check_id: request.check_id,
        };
        self.write(&request.datacenter, command).await.map(|_| ())
    }

    /// Known datacenters: this one first, then those with a federation state.
    pub fn datacenters(&self) -> Vec<Datacenter> {
        let here = self.settings().datacenter.clone();
        let others: BTreeSet<Datacenter> = self
            .store()
            .latest()
            .federation_states()
            .iter()
            .map(|state| state.datacenter.clone())
            .filter(|dc| *dc != here)
            .collect();
        std::iter::once(here).chain(others).collect()
    }

    /// All nodes in name order, or nearest first.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn nodes(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<Vec<Arc<Node>>>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::NODE)?;
        let (meta, near) = (
            request.node_meta_filters.clone(),
            request.source.node.clone(),
        );
        self.read(
            request,
            vec![Topic::Nodes],
            State::nodes_index,
            move |state| {
                let mut nodes: Vec<_> = state
                    .nodes()
                    .filter(|node| has_meta(node, &meta) && filter.keeps(*node))
                    .cloned()
                    .collect();
                nearest_first(state, &mut nodes, &near, |node| node.node.as_str());
                nodes
            },
        )
        .await
    }

    /// Names of all services with their tags.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn services(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<BTreeMap<ServiceName, Vec<String>>>, Error> {
        let meta = request.node_meta_filters.clone();
        // Which nodes count can change with the nodes, so a filtered list waits for them too.
        let mut topics = vec![Topic::Services];
        topics.extend((!meta.is_empty()).then_some(Topic::Nodes));
        let filtered = !meta.is_empty();
        self.read(
            request,
            topics,
            move |state| match filtered {
                true => state.services_index().max(state.nodes_index()),
                false => state.services_index(),
            },
            move |state| match meta.is_empty() {
                true => state.services(),
                false => services_of(state, &meta),
            },
        )
        .await
    }

    /// Instances of a service, or those that its Connect clients may use, with their nodes.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn service_nodes(
        &self,
        request: &ServiceSpecificRequest,
    ) -> Result<Answer<Vec<(Arc<Node>, Arc<NodeService>)>>, Error> {
        if request.service_name.is_empty() {
            return Err(Error::refused("Must provide service name"));
        }
        let filter = RowFilter::parse(&request.filter, filter::SERVICE_NODE)?;
        let query = request.clone();
        self.read(
            request,
            vec![service_topic(request)],
            service_index(request),
            move |state| {
                let name = query.service_name.as_str();
                let mut rows = match query.connect {
                    true => state.connect_service_nodes(name),
                    false => state.service_nodes(name),
                };
                rows.retain(|(node, service)| {
                    has_meta(node, &query.node_meta_filters)
                        && has_tags(service, &query)
                        && (query.service_address.is_empty()
                            || query.service_address == service.address)
                        && filter.keeps(&ServiceNode::of(node, service))
                });
                nearest_first(state, &mut rows, &query.source.node, |(node, _)| {
                    node.node.as_str()
                });
                rows
            },
        )
        .await
    }

    /// A node with its services; `None` if it is not registered.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn node_services(
        &self,
        request: &NodeSpecificRequest,
    ) -> Result<Answer<Option<NodeWithServices>>, Error> {
        if request.node.is_empty() {
            return Err(Error::refused("Must provide node"));
        }
        let filter = RowFilter::parse(&request.filter, filter::SERVICE)?;
        let (name, key) = (request.node.clone(), request.node.clone());
        self.read(
            request,
            vec![Topic::Node(Key::from(name.as_str()))],
            move |state| match state.node(key.as_str()) {
                Some(_) => state.node_index(key.as_str()).max(state.checks_index()),
                None => 0,
            },
            move |state| {
                let node = state.node(name.as_str())?.clone();
                let mut services = state.services_on(name.as_str());
                services.retain(|service| filter.keeps(service));
                Some((node, services))
            },
        )
        .await
    }
}

/// What a read of one service waits for.
pub(crate) fn service_topic(request: &ServiceSpecificRequest) -> Topic {
    let key = Key::from(request.service_name.as_str());
    match request.connect {
        true => Topic::Connect(key),
        false => Topic::Service(key),
    }
}

/// The index of a read of one service.
pub(crate) fn service_index(request: &ServiceSpecificRequest) -> impl Fn(&State) -> u64 + use<> {
    let (name, connect) = (request.service_name.clone(), request.connect);
    move |state| match connect {
        true => state.connect_index(name.as_str()),
        false => state.service_index(name.as_str()),
    }
}

/// Whether a node has all these meta pairs.
pub(crate) fn has_meta(node: &Node, wanted: &StringMap) -> bool {
    wanted
        .iter()
        .all(|(key, value)| node.meta.get(key) == Some(value))
}

/// Whether an instance has all tags a request wants, whatever their case.
pub(crate) fn has_tags(service: &NodeService, request: &ServiceSpecificRequest) -> bool {
    let single = std::iter::once(&request.service_tag).filter(|tag| !tag.is_empty());
    !request.tag_filter
        || single.chain(&request.service_tags).all(|wanted| {
            service
                .tags
                .iter()
                .any(|tag| tag.eq_ignore_ascii_case(wanted))
        })
}

fn services_of(state: &State, meta: &StringMap) -> BTreeMap<ServiceName, Vec<String>> {
    let mut names: BTreeMap<ServiceName, Vec<String>> = BTreeMap::new();
    for node in state.nodes().filter(|node| has_meta(node, meta)) {
        for service in state.services_on(node.node.as_str()) {
            let tags = names.entry(service.service.clone()).or_default();
            for tag in &service.tags {
                if !tags.contains(tag) {
                    tags.push(tag.clone());
                }
            }
        }
    }
    names
}
