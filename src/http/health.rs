//! `/v1/health`: checks, and instances with the checks that decide their health.

use crate::api::Answer;
use crate::api::health::Checks;
use crate::api::route::Consistency;
use crate::http::catalog::missing;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::catalog::{InstanceView, Tags};
use crate::http::json::check::CheckView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::{ChecksInStateRequest, NodeSpecificRequest};
use crate::model::{CheckServiceNode, CheckStatus};

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/health/node/", node),
    route!(Get, "/v1/health/checks/", checks),
    route!(Get, "/v1/health/state/", state),
    route!(Get, "/v1/health/service/", service),
    route!(Get, "/v1/health/connect/", connect),
];

async fn node(request: Request) -> Result<Reply, HttpError> {
    let (query, consistency) = request.read(|datacenter| NodeSpecificRequest {
        datacenter,
        node: request.rest.as_str().into(),
        ..NodeSpecificRequest::default()
    })?;
    missing(&request.rest, "Missing node name")?;
    let answer = request.api.node_checks(&query).await;
    listed(answer.map_err(HttpError::of_read)?, consistency)
}

async fn checks(request: Request) -> Result<Reply, HttpError> {
    let (query, consistency) = request.of_service(false)?;
    let answer = request.api.service_checks(&query).await;
    listed(answer.map_err(HttpError::of_read)?, consistency)
}

async fn state(request: Request) -> Result<Reply, HttpError> {
    let (query, consistency) = request.read(|datacenter| ChecksInStateRequest {
        datacenter,
        node_meta_filters: request.node_meta(),
        state: request.rest.clone(),
        source: request.source(),
        ..ChecksInStateRequest::default()
    })?;
    missing(&request.rest, "Missing check state")?;
    let answer = request.api.checks_in_state(&query).await;
    listed(answer.map_err(HttpError::of_read)?, consistency)
}

fn listed(answer: Answer<Checks>, consistency: Consistency) -> Result<Reply, HttpError> {
    let (meta, checks) = answer.into_parts();
    let rows = checks
        .iter()
        .map(|check| CheckView::new(check, Tags::Empty));
    let body = json::list(rows)?;
    Ok(Reply::json(body).meta(&meta).consistency(consistency))
}

async fn service(request: Request) -> Result<Reply, HttpError> {
    instances(request, "health/service", false).await
}

async fn connect(request: Request) -> Result<Reply, HttpError> {
    instances(request, "health/connect", true).await
}

async fn instances(
    request: Request,
    endpoint: &'static str,
    connect: bool,
) -> Result<Reply, HttpError> {
    let (query, consistency) = request.of_service(connect)?;
    let passing = passing_only(request.query.get("passing"))?;
    let answer = request.api.health_service(&query).await;
    let answer = answer.map_err(HttpError::of_read)?;
    let meta = answer.meta.clone();
    let key = request.content_key(endpoint);
    let body = request.cache.get_or_encode(key, meta.index, || {
        let rows = answer.rows();
        let shown = rows.iter().filter(|row| !passing || is_passing(row));
        json::list(shown.map(|row| InstanceView::new(row, Tags::Empty)))
    })?;
    let reply = Reply::json(body).meta(&meta).consistency(consistency);
    Ok(match request.query.has("cached") {
        // Every answer is as new as the state; there is no older one to be served.
        true => reply.header("x-cache", "MISS"),
        false => reply,
    })
}

/// `?passing` without a value means yes.
fn passing_only(value: Option<&str>) -> Result<bool, HttpError> {
    match value {
        None => Ok(false),
        Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(false),
        Some(_) => Err(HttpError::bad("Invalid value for ?passing")),
    }
}

fn is_passing(row: &CheckServiceNode) -> bool {
    let mut checks = row.checks.iter();
    checks.all(|check| check.status == CheckStatus::Passing)
}
