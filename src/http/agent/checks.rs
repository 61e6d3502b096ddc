//! Checks of this server, and the reports of services about themselves.

use crate::api::agent::AgentError;
use crate::api::filter;
use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::catalog::Tags;
use crate::http::json::check::CheckView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::model::CheckStatus;
use http::StatusCode;
use serde::Deserialize;
use std::collections::BTreeMap;

pub(super) async fn all(request: Request) -> Result<Reply, HttpError> {
    let filter = request.filter(filter::CHECK)?;
    let checks = request.api.agent_checks()?;
    let views: BTreeMap<&str, CheckView<'_>> = checks
        .iter()
        .map(|check| (check.check_id.as_str(), CheckView::new(check, Tags::Empty)))
        .filter(|(_, view)| filter.keeps(view))
        .collect();
    Ok(Reply::json(json::bytes(&views)?))
}

pub(super) async fn register(request: Request) -> Result<Reply, HttpError> {
    let body = decode::value(&request.body).map_err(AgentError::Decode)?;
    request.api.agent_register_check(&body).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn deregister(request: Request) -> Result<Reply, HttpError> {
    request.api.agent_deregister_check(&request.rest).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn pass(request: Request) -> Result<Reply, HttpError> {
    report(&request, CheckStatus::Passing)
}

pub(super) async fn warn(request: Request) -> Result<Reply, HttpError> {
    report(&request, CheckStatus::Warning)
}

pub(super) async fn fail(request: Request) -> Result<Reply, HttpError> {
    report(&request, CheckStatus::Critical)
}

fn report(request: &Request, status: CheckStatus) -> Result<Reply, HttpError> {
    let note = request.query.get("note").unwrap_or_default().to_owned();
    request.api.agent_report(&request.rest, status, note)?;
    Ok(Reply::empty(StatusCode::OK))
}

/// A report with more to say than a note.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Update {
    status: String,
    output: String,
}

pub(super) async fn update(request: Request) -> Result<Reply, HttpError> {
    let update: Update = decode::json(&request.body).map_err(AgentError::Decode)?;
    let status = match update.status.parse() {
        Ok(CheckStatus::Maintenance) | Err(_) => {
            let text = format!("Invalid check status: '{}'", update.status);
            return Err(HttpError::bad(text));
        }
        Ok(status) => status,
    };
    request
        .api
        .agent_report(&request.rest, status, update.output)?;
    Ok(Reply::empty(StatusCode::OK))
}
