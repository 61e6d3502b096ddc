//! `/v1/coordinate`: where nodes are in the network, as this server's gossip knows it.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/coordinate/datacenters", datacenters),
    route!(Get, "/v1/coordinate/nodes", nodes),
    route!(Get, "/v1/coordinate/node/", node),
];

async fn datacenters(request: Request) -> Result<Reply, HttpError> {
    Ok(Reply::json(json::bytes(&request.api.areas()?)?))
}

async fn nodes(request: Request) -> Result<Reply, HttpError> {
    request.api.reach_datacenter(&request.datacenter())?;
    Ok(Reply::json(json::bytes(&request.api.places()?)?))
}

async fn node(request: Request) -> Result<Reply, HttpError> {
    request.api.reach_datacenter(&request.datacenter())?;
    let mut places = request.api.places()?;
    places.retain(|place| place.node.as_str() == request.rest);
    match places.is_empty() {
        true => Err(HttpError::not_found("")),
        false => Ok(Reply::json(json::bytes(&places)?)),
    }
}
