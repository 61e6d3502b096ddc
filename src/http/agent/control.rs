//! What a server is told to do: join, leave, reload.

use crate::http::error::HttpError;
use crate::http::reply::Reply;
use crate::http::request::Request;
use http::StatusCode;

pub(super) async fn join(request: Request) -> Result<Reply, HttpError> {
    let wan = request.query.switch("wan");
    request.api.agent_join(&request.rest, wan).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn leave(request: Request) -> Result<Reply, HttpError> {
    request.api.agent_leave().await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn force_leave(request: Request) -> Result<Reply, HttpError> {
    let query = &request.query;
    let (prune, wan) = (query.switch("prune"), query.switch("wan"));
    let node = &request.rest;
    request.api.agent_force_leave(node, prune, wan).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(super) async fn reload(request: Request) -> Result<Reply, HttpError> {
    request.api.agent_reload().await?;
    Ok(Reply::empty(StatusCode::OK))
}
