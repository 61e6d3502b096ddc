//! Services of this server.

use crate::api::agent::AgentError;
use crate::api::filter;
use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::agent::AgentServiceView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use http::StatusCode;
use http::header::HeaderValue;
use std::collections::BTreeMap;

pub(super) async fn all(request: Request) -> Result<Reply, HttpError> {
    let filter = request.filter(filter::SERVICE)?;
    let services = request.api.agent_services()?;
    let views: BTreeMap<&str, AgentServiceView<'_>> = services
        .iter()
        .map(|service| (service.id.as_str(), AgentServiceView::new(service, "")))
        .filter(|(_, view)| filter.keeps(view))
        .collect();
    Ok(Reply::json(json::bytes(&views)?))
}

pub(super) async fn one(request: Request) -> Result<Reply, HttpError> {
    let (id, hash) = (&request.rest, request.query.get("hash").unwrap_or_default());
    let wait = request.options()?.max_query_time.to_std();
    let found = request.api.agent_service(id, hash, wait).await?;
    let Some((service, hash)) = found else {
        return Err(HttpError::not_found(format!("unknown service ID: {id}")));
    };
    let body = json::bytes(&AgentServiceView::new(&service, &hash))?;
    let mut reply = Reply::json(body);
    if let Ok(value) = HeaderValue::from_str(&hash) {
        reply.headers.insert("x-consul-contenthash", value);
    }
    Ok(reply)
}

pub(super) async fn register(request: Request) -> Result<Reply, HttpError> {
    let body = decode::value(&request.body).map_err(AgentError::Decode)?;
    let replace = request
        .query
        .get("replace-existing-checks")
        .is_some_and(|value| matches!(value, "" | "1" | "t" | "true"));
    request.api.agent_register_service(&body, replace).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn deregister(request: Request) -> Result<Reply, HttpError> {
    request.api.agent_deregister_service(&request.rest).await?;
    Ok(Reply::empty(StatusCode::OK))
}
