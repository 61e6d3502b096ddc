//! Checks, and instances with the checks that decide their health.

use crate::api::Api;
use crate::api::catalog::{has_meta, has_tags, service_index, service_topic};
use crate::api::coordinate::nearest_first;
use crate::api::error::Error;
use crate::api::filter::{self, RowFilter};
use crate::api::read::Answer;
use crate::model::catalog::StringMap;
use crate::model::query::{ChecksInStateRequest, NodeSpecificRequest, ServiceSpecificRequest};
use crate::model::{CheckServiceNode, CheckStatus, HealthCheck};
use crate::store::{Key, State, Topic};
use std::sync::Arc;

/// Checks in order of node and id.
pub type Checks = Vec<Arc<HealthCheck>>;

impl Api {
    /// Instances of a service, or those that its Connect clients may use, with nodes and checks.
    ///
    /// # Errors
    /// A broken filter, no path to the datacenter, or no leader.
    pub async fn health_service(
        &self,
        request: &ServiceSpecificRequest,
    ) -> Result<Answer<Vec<CheckServiceNode>>, Error> {
        if request.service_name.is_empty() {
            return Err(Error::refused("Must provide service name"));
        }
        let filter = RowFilter::parse(&request.filter, filter::INSTANCE)?;
        let query = request.clone();
        self.read(
            request,
            vec![service_topic(request)],
            service_index(request),
            move |state| {
                let name = query.service_name.as_str();
                let mut rows = match query.connect {
                    true => state.connect_check_service_nodes(name),
                    false => state.check_service_nodes(name),
                };
                rows.retain(|row| is_wanted(row, &query) && filter.keeps(row));
                nearest_first(state, &mut rows, &query.source.node, |row| {
                    row.node.as_ref().map_or("", |node| node.node.as_str())
                });
                rows
            },
        )
        .await
    }

    /// Checks of a node; none if it is not registered.
    ///
    /// # Errors
    /// A broken filter, no path to the datacenter, or no leader.
    pub async fn node_checks(
        &self,
        request: &NodeSpecificRequest,
    ) -> Result<Answer<Checks>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::CHECK)?;
        let node = request.node.clone();
        self.read(
            request,
            vec![Topic::Node(Key::from(node.as_str()))],
            State::checks_index,
            move |state| {
                let mut checks = state.checks_on(node.as_str());
                checks.retain(|check| filter.keeps(check));
                checks
            },
        )
        .await
    }

    /// Checks of all instances of a service.
    ///
    /// # Errors
    /// A broken filter, no path to the datacenter, or no leader.
    pub async fn service_checks(
        &self,
        request: &ServiceSpecificRequest,
    ) -> Result<Answer<Checks>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::CHECK)?;
        let query = request.clone();
        self.read(
            request,
            vec![service_topic(request)],
            service_index(request),
            move |state| {
                let mut checks = state.checks_of_service(query.service_name.as_str());
                checks.retain(|check| {
                    check_is_on(state, check, &query.node_meta_filters) && filter.keeps(check)
                });
                nearest_first(state, &mut checks, &query.source.node, |check| {
                    check.node.as_str()
                });
                checks
            },
        )
        .await
    }

    /// Checks with a status; `any` for all. A status that does not exist has none.
    ///
    /// # Errors
    /// A broken filter, no path to the datacenter, or no leader.
    pub async fn checks_in_state(
        &self,
        request: &ChecksInStateRequest,
    ) -> Result<Answer<Checks>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::CHECK)?;
        let query = request.clone();
        self.read(
            request,
            vec![Topic::Checks],
            State::checks_index,
            move |state| {
                let mut checks = match (query.state.as_str(), query.state.parse::<CheckStatus>()) {
                    ("any", _) => state.checks_in_state(None),
                    (_, Ok(status)) => state.checks_in_state(Some(status)),
                    (_, Err(_)) => Vec::new(),
                };
                checks.retain(|check| {
                    check_is_on(state, check, &query.node_meta_filters) && filter.keeps(check)
                });
                nearest_first(state, &mut checks, &query.source.node, |check| {
                    check.node.as_str()
                });
                checks
            },
        )
        .await
    }
}

fn is_wanted(row: &CheckServiceNode, query: &ServiceSpecificRequest) -> bool {
    let node = row.node.as_ref();
    let service = row.service.as_ref();
    node.is_none_or(|node| has_meta(node, &query.node_meta_filters))
        && service.is_none_or(|service| has_tags(service, query))
}

fn check_is_on(state: &State, check: &HealthCheck, meta: &StringMap) -> bool {
    let node = || state.node(check.node.as_str());
    meta.is_empty() || node().is_some_and(|node| has_meta(node, meta))
}
