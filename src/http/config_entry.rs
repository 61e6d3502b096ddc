//! `/v1/config`: config entries.

use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::config_entry::ConfigEntryView;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::ConfigEntryQuery;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Put, "/v1/config", apply),
    route!(Get, "/v1/config/", get),
    route!(Delete, "/v1/config/", delete),
];

async fn apply(request: Request) -> Result<Reply, HttpError> {
    let decoded = decode::config_entry(&request.body);
    let entry =
        decoded.map_err(|e| HttpError::bad_request(format!("Request decoding failed: {e}")))?;
    let cas = request.number("cas")?;
    let datacenter = request.datacenter();
    let done = request
        .api
        .apply_config_entry(&datacenter, entry, cas)
        .await?;
    Ok(Reply::bool(done))
}

async fn get(request: Request) -> Result<Reply, HttpError> {
    match request.rest.split_once('/') {
        Some((kind, name)) => one(&request, kind, name).await,
        None if request.rest.is_empty() => Err(HttpError::not_found(
            "Must provide either a kind or both kind and name",
        )),
        None => of_kind(&request, &request.rest).await,
    }
}

fn query(request: &Request, kind: &str, name: &str) -> Result<ConfigEntryQuery, HttpError> {
    let (query, _) = request.read(|datacenter| ConfigEntryQuery {
        datacenter,
        kind: kind.to_owned(),
        name: name.to_owned(),
        ..ConfigEntryQuery::default()
    })?;
    Ok(query)
}

async fn one(request: &Request, kind: &str, name: &str) -> Result<Reply, HttpError> {
    let query = query(request, kind, name)?;
    let (meta, entry) = request.api.config_entry(&query).await?.into_parts();
    let Some(entry) = entry else {
        let text = format!("Config entry not found for {kind:?} / {name:?}");
        return Err(HttpError::not_found(text).with_meta(meta));
    };
    let body = json::bytes(&ConfigEntryView::from(&*entry))?;
    Ok(Reply::json(body).meta(&meta))
}

async fn of_kind(request: &Request, kind: &str) -> Result<Reply, HttpError> {
    let query = query(request, kind, "")?;
    let (meta, entries) = request.api.config_entries(&query).await?.into_parts();
    let body = json::list(entries.iter().map(|entry| ConfigEntryView::from(&**entry)))?;
    Ok(Reply::json(body).meta(&meta))
}

async fn delete(request: Request) -> Result<Reply, HttpError> {
    let Some((kind, name)) = request.rest.split_once('/') else {
        let text = "Must provide both a kind and name to delete";
        return Err(HttpError::not_found(text));
    };
    let datacenter = request.datacenter();
    let deleted = request.api.delete_config_entry(&datacenter, kind, name);
    deleted.await?;
    Ok(Reply::json("{}"))
}
