//! `/v1/catalog`: nodes and services.

use crate::api::route::Consistency;
use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::catalog::{NodeView, ServiceNodeView, services_by_id, services_listed};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::{
    DcSpecificRequest, DeregisterRequest, NodeSpecificRequest, RegisterRequest,
    ServiceSpecificRequest,
};
use bytes::Bytes;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Put, "/v1/catalog/register", register),
    route!(Put, "/v1/catalog/deregister", deregister),
    route!(Get, "/v1/catalog/datacenters", datacenters),
    route!(Get, "/v1/catalog/nodes", nodes),
    route!(Get, "/v1/catalog/services", services),
    route!(Get, "/v1/catalog/service/", service),
    route!(Get, "/v1/catalog/connect/", connect),
    route!(Get, "/v1/catalog/node/", node),
    route!(Get, "/v1/catalog/node-services/", node_services),
];

async fn register(request: Request) -> Result<Reply, HttpError> {
    let mut wanted: RegisterRequest = body(&request)?;
    if wanted.datacenter.is_empty() {
        wanted.datacenter = request.datacenter();
    }
    request.api.register(wanted).await?;
    Ok(Reply::bool(true))
}

async fn deregister(request: Request) -> Result<Reply, HttpError> {
    let mut wanted: DeregisterRequest = body(&request)?;
    if wanted.datacenter.is_empty() {
        wanted.datacenter = request.datacenter();
    }
    request.api.deregister(wanted).await?;
    Ok(Reply::bool(true))
}

fn body<T: serde::de::DeserializeOwned>(request: &Request) -> Result<T, HttpError> {
    let decoded = decode::json(&request.body);
    decoded.map_err(|e| HttpError::bad(format!("Request decode failed: {e}")))
}

async fn datacenters(request: Request) -> Result<Reply, HttpError> {
    Ok(Reply::json(json::bytes(&request.api.datacenters())?))
}

async fn nodes(request: Request) -> Result<Reply, HttpError> {
    let (query, consistency) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        node_meta_filters: request.node_meta(),
        source: request.source(),
        ..DcSpecificRequest::default()
    })?;
    let answer = request.api.nodes(&query).await;
    let (meta, nodes) = answer.map_err(HttpError::of_read)?.into_parts();
    let rows = nodes.iter().map(|node| NodeView::from(&**node));
    let body = json::list(rows)?;
    Ok(Reply::json(body).meta(&meta).consistency(consistency))
}

async fn services(request: Request) -> Result<Reply, HttpError> {
    let (query, consistency) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        node_meta_filters: request.node_meta(),
        ..DcSpecificRequest::default()
    })?;
    let answer = request.api.services(&query).await;
    let answer = answer.map_err(HttpError::of_read)?;
    let meta = answer.meta.clone();
    let key = request.content_key("catalog/services");
    let body = request
        .cache
        .get_or_encode(key, meta.index, || json::bytes(&answer.rows()))?;
    Ok(Reply::json(body).meta(&meta).consistency(consistency))
}

async fn service(request: Request) -> Result<Reply, HttpError> {
    instances(request, "catalog/service", false).await
}

async fn connect(request: Request) -> Result<Reply, HttpError> {
    instances(request, "catalog/connect", true).await
}

async fn instances(
    request: Request,
    endpoint: &'static str,
    connect: bool,
) -> Result<Reply, HttpError> {
    let (query, consistency) = request.of_service(connect)?;
    let answer = request.api.service_nodes(&query).await;
    let answer = answer.map_err(HttpError::of_read)?;
    let meta = answer.meta.clone();
    let key = request.content_key(endpoint);
    let body = request.cache.get_or_encode(key, meta.index, || {
        let rows = answer.rows();
        json::list(rows.iter().map(|(n, s)| ServiceNodeView::new(n, s)))
    })?;
    Ok(Reply::json(body).meta(&meta).consistency(consistency))
}

async fn node(request: Request) -> Result<Reply, HttpError> {
    of_node(request, Form::ById).await
}

async fn node_services(request: Request) -> Result<Reply, HttpError> {
    of_node(request, Form::Listed).await
}

#[derive(Clone, Copy)]
enum Form {
    ById,
    Listed,
}

async fn of_node(request: Request, form: Form) -> Result<Reply, HttpError> {
    let (query, consistency) = request.read(|datacenter| NodeSpecificRequest {
        datacenter,
        node: request.rest.as_str().into(),
        ..NodeSpecificRequest::default()
    })?;
    missing(&request.rest, "Missing node name")?;
    let answer = request.api.node_services(&query).await;
    let (meta, found) = answer.map_err(HttpError::of_read)?.into_parts();
    let body = match (&found, form) {
        // Clients have learned to expect this for a node that does not exist (C092).
        (None, _) => Bytes::from_static(b"null"),
        (Some((node, services)), Form::ById) => json::bytes(&services_by_id(node, services))?,
        (Some((node, services)), Form::Listed) => json::bytes(&services_listed(node, services))?,
    };
    Ok(Reply::json(body).meta(&meta).consistency(consistency))
}

/// 400 when the path ends before the name.
pub(crate) fn missing(name: &str, text: &str) -> Result<(), HttpError> {
    match name.is_empty() {
        true => Err(HttpError::bad(text)),
        false => Ok(()),
    }
}

impl Request {
    /// The question for the service that the path names, and how consistent its answer is to be.
    pub(crate) fn of_service(
        &self,
        connect: bool,
    ) -> Result<(ServiceSpecificRequest, Consistency), HttpError> {
        let read = self.read(|datacenter| {
            let tags: Vec<String> = self.query.all("tag").map(str::to_owned).collect();
            ServiceSpecificRequest {
                datacenter,
                service_name: self.rest.as_str().into(),
                tag_filter: !tags.is_empty(),
                service_tags: tags,
                node_meta_filters: self.node_meta(),
                connect,
                source: self.source(),
                ..ServiceSpecificRequest::default()
            }
        })?;
        missing(&self.rest, "Missing service name")?;
        Ok(read)
    }
}
