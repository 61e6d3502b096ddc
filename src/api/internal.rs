//! Reads that servers make of each other.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::filter::{self, RowFilter};
use crate::api::read::Answer;
use crate::model::query::ServiceDumpRequest;
use crate::model::{CheckServiceNode, ServiceKind};
use crate::store::Topic;

impl Api {
    /// All instances with nodes and checks, or those of one kind.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn service_dump(
        &self,
        request: &ServiceDumpRequest,
    ) -> Result<Answer<Vec<CheckServiceNode>>, Error> {
        let filter = RowFilter::parse(&request.filter, filter::INSTANCE)?;
        let kind = request
            .use_service_kind
            .then(|| ServiceKind::from(request.service_kind.as_str()));
        let topics = match &kind {
            Some(kind) => vec![Topic::ServiceKind(kind.clone())],
            None => vec![Topic::Services, Topic::Nodes, Topic::Checks],
        };
        let of = kind.clone();
        self.read(
            request,
            topics,
            move |state| match &of {
                Some(kind) => state.kind_index(kind),
                None => {
                    let nodes = state.nodes_index().max(state.services_index());
                    nodes.max(state.checks_index())
                }
            },
            move |state| {
                let mut rows = match &kind {
                    Some(kind) => state.kind_dump(kind),
                    None => state.service_dump(),
                };
                rows.retain(|row| filter.keeps(row));
                rows
            },
        )
        .await
    }
}
