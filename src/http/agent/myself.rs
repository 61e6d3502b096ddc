//! The server itself, its metrics, and what the CA gives to its services.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::agent::{LeafView, MemberView, SelfView};
use crate::http::json::ca::RootsView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::model::Timestamp;
use crate::model::query::DcSpecificRequest;
use http::header::HeaderValue;
use serde_json::json;

/// The content type of Prometheus's text form.
const PROMETHEUS: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

pub(super) async fn myself(request: Request) -> Result<Reply, HttpError> {
    let api = &request.api;
    let member = api.agent_member()?;
    let view = SelfView {
        config: api.agent_config()?,
        debug_config: api.agent_debug_config()?,
        member: MemberView::from(&member),
        stats: api.agent_stats()?,
        meta: api.agent_meta()?,
        xds: api.agent_xds()?,
    };
    Ok(Reply::json(json::bytes(&view)?))
}

pub(super) async fn members(request: Request) -> Result<Reply, HttpError> {
    if request
        .query
        .get("segment")
        .is_some_and(|s| !s.is_empty() && s != "_all")
    {
        let text = "Network segments are not supported in this version of Consul";
        return Err(HttpError::internal(text));
    }
    let members = request.api.agent_members(request.query.switch("wan"))?;
    let body = json::list(members.iter().map(MemberView::from))?;
    Ok(Reply::json(body))
}

pub(super) async fn version(request: Request) -> Result<Reply, HttpError> {
    let facts = &request.api.agent()?.facts;
    let body = json::bytes(&json!({
        "SHA": facts.revision,
        "HumanVersion": facts.api_level,
        "Crossway": facts.version,
    }))?;
    Ok(Reply::json(body))
}

pub(super) async fn metrics(request: Request) -> Result<Reply, HttpError> {
    let Some(metrics) = &request.api.agent()?.metrics else {
        return Err(HttpError::internal("This server collects no metrics"));
    };
    if request.query.get("format") == Some("prometheus") {
        return Ok(Reply::with_type(PROMETHEUS, metrics.render_prometheus()));
    }
    Ok(Reply::json(json::bytes(&metrics.snapshot())?))
}

pub(super) async fn roots(request: Request) -> Result<Reply, HttpError> {
    let (query, _) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        ..DcSpecificRequest::default()
    })?;
    let (meta, roots) = request.api.ca_roots(&query).await?.into_parts();
    let body = json::bytes(&RootsView::from(&roots))?;
    Ok(Reply::json(body).meta(&meta).header("x-cache", "HIT"))
}

pub(super) async fn leaf(request: Request) -> Result<Reply, HttpError> {
    let options = request.options()?;
    let answer = request.api.agent_leaf(&request.rest, &options, wall);
    let (index, leaf) = answer.await?;
    let mut reply = Reply::json(json::bytes(&LeafView::from(&*leaf))?);
    reply
        .headers
        .insert("x-consul-index", HeaderValue::from(index.max(1)));
    Ok(reply.header("x-cache", "HIT"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a certificate's age is a matter of the wall clock"
)]
fn wall() -> Timestamp {
    std::time::SystemTime::now().into()
}
