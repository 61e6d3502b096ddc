//! Health of local services: the status says it all, for load balancers that read nothing else.

use crate::api::agent::ServiceHealth;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::agent::ServiceHealthView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::model::CheckStatus;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};

pub(super) async fn by_id(request: Request) -> Result<Reply, HttpError> {
    let id = &request.rest;
    if id.is_empty() {
        return Err(HttpError::internal("Bad request: Missing serviceID"));
    }
    let health = request.api.agent_health_by_id(id)?;
    let reason = match &health {
        Some(health) => health.status.as_str().to_owned(),
        None => format!("ServiceId {id} not found"),
    };
    let body = json::bytes(&ServiceHealthView::of(health.as_ref()))?;
    let status = health.as_ref().map(|health| health.status);
    Ok(answer(&request, status, &reason, body))
}

pub(super) async fn by_name(request: Request) -> Result<Reply, HttpError> {
    let name = &request.rest;
    if name.is_empty() {
        return Err(HttpError::internal("Bad request: Missing service Name"));
    }
    let healths = request.api.agent_health_by_name(name)?;
    let status = healths.iter().map(|health| health.status).max();
    let reason = match status {
        Some(status) => status.as_str().to_owned(),
        None => format!("ServiceName {name} Not Found"),
    };
    let views = healths
        .iter()
        .map(|health: &ServiceHealth| ServiceHealthView::of(Some(health)));
    let body = json::list(views)?;
    Ok(answer(&request, status, &reason, body))
}

fn answer(request: &Request, status: Option<CheckStatus>, reason: &str, body: Bytes) -> Reply {
    let code = match status {
        Some(CheckStatus::Passing) => StatusCode::OK,
        Some(CheckStatus::Warning) => StatusCode::TOO_MANY_REQUESTS,
        Some(CheckStatus::Critical | CheckStatus::Maintenance) => StatusCode::SERVICE_UNAVAILABLE,
        None => StatusCode::NOT_FOUND,
    };
    let mut reply = if request.query.get("format") == Some("text") {
        let status = status.unwrap_or(CheckStatus::Critical);
        let mut reply = Reply::text(code, status.as_str());
        let plain = HeaderValue::from_static("text/plain");
        reply.headers.insert(CONTENT_TYPE, plain);
        reply
    } else {
        Reply::json(body)
    };
    reply.status = code;
    if let Ok(value) = HeaderValue::from_str(reason) {
        reply.headers.insert("x-consul-reason", value);
    }
    reply
}
