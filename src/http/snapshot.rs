//! `/v1/snapshot`: the whole state, saved and restored.

use crate::http::error::HttpError;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use http::StatusCode;
use http::header::HeaderValue;

/// The path, whose body may be larger than others.
pub(crate) const PATH: &str = "/v1/snapshot";

/// The content type of archives.
pub(crate) const ARCHIVE: HeaderValue = HeaderValue::from_static("application/x-gzip");

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/snapshot", save),
    route!(Put, "/v1/snapshot", restore),
];

async fn save(request: Request) -> Result<Reply, HttpError> {
    let stale = request.query.has("stale");
    let _place = request.api.archive_place().await;
    let datacenter = request.datacenter();
    let saved = request.api.save_snapshot(&datacenter, stale).await;
    let (meta, archive) = saved?;
    Ok(Reply::with_type(ARCHIVE, archive).meta(&meta))
}

async fn restore(request: Request) -> Result<Reply, HttpError> {
    let datacenter = request.datacenter();
    let archive = request.body.into();
    request.api.restore_snapshot(&datacenter, archive).await?;
    Ok(Reply::empty(StatusCode::OK))
}
