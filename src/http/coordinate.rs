//! `/v1/coordinate`: where nodes are in the network.

use crate::api::coordinate::Coordinates;
use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::NodeName;
use crate::model::query::{CoordinateUpdateRequest, DcSpecificRequest, NodeSpecificRequest};
use http::StatusCode;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/coordinate/datacenters", datacenters),
    route!(Get, "/v1/coordinate/nodes", nodes),
    route!(Get, "/v1/coordinate/node/", node),
    route!(Put, "/v1/coordinate/update", update),
];

async fn datacenters(request: Request) -> Result<Reply, HttpError> {
    Ok(Reply::json(json::bytes(&request.api.areas()?)?))
}

async fn nodes(request: Request) -> Result<Reply, HttpError> {
    let (query, _) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        ..DcSpecificRequest::default()
    })?;
    let (meta, mut rows) = request.api.coordinates(&query).await?.into_parts();
    request.api.add_places(&mut rows, |_| true);
    let rows = of_segment(&request, rows);
    Ok(Reply::json(json::list(rows.iter().map(|row| &**row))?).meta(&meta))
}

async fn node(request: Request) -> Result<Reply, HttpError> {
    let (query, _) = request.read(|datacenter| NodeSpecificRequest {
        datacenter,
        node: request.rest.as_str().into(),
        ..NodeSpecificRequest::default()
    })?;
    let (meta, mut rows) = request.api.coordinates_of(&query).await?.into_parts();
    let wanted = |node: &NodeName| node.as_str().eq_ignore_ascii_case(&request.rest);
    request.api.add_places(&mut rows, wanted);
    let rows = of_segment(&request, rows);
    if rows.is_empty() {
        return Ok(Reply::empty(StatusCode::NOT_FOUND).meta(&meta));
    }
    Ok(Reply::json(json::list(rows.iter().map(|row| &**row))?).meta(&meta))
}

/// The rows of the segment that the request names, if it names one.
fn of_segment(request: &Request, mut rows: Coordinates) -> Coordinates {
    if let Some(segment) = request.query.get("segment") {
        rows.retain(|row| row.segment == segment);
    }
    rows
}

async fn update(request: Request) -> Result<Reply, HttpError> {
    let decoded = decode::json::<CoordinateUpdateRequest>(&request.body);
    let mut update = decoded.map_err(|e| HttpError::bad(format!("Request decode failed: {e}")))?;
    if update.datacenter.is_empty() {
        update.datacenter = request.datacenter();
    }
    request.api.update_coordinate(update)?;
    Ok(Reply::empty(StatusCode::OK))
}
