//! `/v1/internal`: federation states, for people who look for trouble.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::federation_state::{FederationStateView, Gateways};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::{DcSpecificRequest, FederationStateQuery};
use http::StatusCode;
use serde::Serialize;
use std::collections::BTreeMap;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/internal/federation-states", states),
    route!(
        Get,
        "/v1/internal/federation-states/mesh-gateways",
        mesh_gateways
    ),
    route!(Get, "/v1/internal/federation-state/", state),
];

fn query(request: &Request) -> Result<DcSpecificRequest, HttpError> {
    let (query, _) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        ..DcSpecificRequest::default()
    })?;
    Ok(query)
}

async fn states(request: Request) -> Result<Reply, HttpError> {
    let answer = request.api.federation_states(&query(&request)?).await;
    let (meta, states) = answer.map_err(HttpError::of_read)?.into_parts();
    let body = json::list(states.iter().map(|s| FederationStateView::from(&**s)))?;
    Ok(Reply::json(body).meta(&meta))
}

async fn mesh_gateways(request: Request) -> Result<Reply, HttpError> {
    let answer = request
        .api
        .federation_mesh_gateways(&query(&request)?)
        .await;
    let (meta, gateways) = answer.map_err(HttpError::of_read)?.into_parts();
    let views: BTreeMap<&str, Gateways<'_>> = gateways
        .iter()
        .map(|(dc, gateways)| (dc.as_str(), Gateways(gateways)))
        .collect();
    Ok(Reply::json(json::bytes(&views)?).meta(&meta))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct StateView<'a> {
    state: FederationStateView<'a>,
    index: u64,
    last_contact: i64,
    known_leader: bool,
    consistency_level: &'a str,
}

async fn state(request: Request) -> Result<Reply, HttpError> {
    if request.rest.is_empty() {
        return Err(HttpError::bad_request("Missing datacenter name"));
    }
    let (query, _) = request.read(|target_datacenter| FederationStateQuery {
        datacenter: request.rest.as_str().into(),
        target_datacenter,
        ..FederationStateQuery::default()
    })?;
    let answer = request.api.federation_state(&query).await;
    let (meta, state) = answer.map_err(HttpError::of_read)?.into_parts();
    let Some(state) = state else {
        return Ok(Reply::empty(StatusCode::NOT_FOUND));
    };
    let body = json::bytes(&StateView {
        state: (&*state).into(),
        index: meta.index,
        last_contact: meta.last_contact.0,
        known_leader: meta.known_leader,
        consistency_level: &meta.consistency_level,
    })?;
    Ok(Reply::json(body).meta(&meta))
}
