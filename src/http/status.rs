//! `/v1/status`: who leads and who takes part.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/status/leader", leader),
    route!(Get, "/v1/status/peers", peers),
];

async fn leader(request: Request) -> Result<Reply, HttpError> {
    request.api.reach_datacenter(&request.datacenter())?;
    Ok(Reply::json(json::bytes(&request.api.leader())?))
}

async fn peers(request: Request) -> Result<Reply, HttpError> {
    request.api.reach_datacenter(&request.datacenter())?;
    Ok(Reply::json(json::bytes(&request.api.peers())?))
}
