//! `/v1/kv`: the key/value store.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::kv::KvView;
use crate::http::reply::{Reply, TEXT};
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::{KeyListRequest, KeyRequest, KvsRequest};
use crate::model::{Index, KvEntry, QueryMeta};
use http::StatusCode;
use std::sync::Arc;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/kv/", get),
    route!(Put, "/v1/kv/", put),
    route!(Delete, "/v1/kv/", delete),
];

async fn get(request: Request) -> Result<Reply, HttpError> {
    if request.query.has("keys") {
        return keys(request).await;
    }
    let (query, _) = request.read(|datacenter| KeyRequest {
        datacenter,
        key: request.rest.clone(),
        ..KeyRequest::default()
    })?;
    if request.query.has("recurse") {
        let (meta, entries) = request.api.kv_list(&query).await?.into_parts();
        return listed(&entries, &meta);
    }
    missing_key(&request)?;
    let (meta, entry) = request.api.kv_get(&query).await?.into_parts();
    match entry {
        Some(entry) if request.query.has("raw") => {
            let body = bytes::Bytes::copy_from_slice(&entry.value);
            // Whoever may write a key must not be able to run a script in the browser of who reads it.
            Ok(Reply::with_type(TEXT, body)
                .meta(&meta)
                .header("x-content-type-options", "nosniff")
                .header("content-security-policy", "sandbox"))
        }
        entry => listed(entry.as_slice(), &meta),
    }
}

fn listed(entries: &[Arc<KvEntry>], meta: &QueryMeta) -> Result<Reply, HttpError> {
    if entries.is_empty() {
        return Ok(Reply::empty(StatusCode::NOT_FOUND).meta(meta));
    }
    let body = json::list(entries.iter().map(|entry| KvView::from(&**entry)))?;
    Ok(Reply::json(body).meta(meta))
}

async fn keys(request: Request) -> Result<Reply, HttpError> {
    let (query, _) = request.read(|datacenter| KeyListRequest {
        datacenter,
        prefix: request.rest.clone(),
        separator: request
            .query
            .get("separator")
            .unwrap_or_default()
            .to_owned(),
        ..KeyListRequest::default()
    })?;
    let (meta, keys) = request.api.kv_keys(&query).await?.into_parts();
    if keys.is_empty() {
        return Ok(Reply::empty(StatusCode::NOT_FOUND).meta(&meta));
    }
    Ok(Reply::json(json::bytes(&keys)?).meta(&meta))
}

async fn put(request: Request) -> Result<Reply, HttpError> {
    missing_key(&request)?;
    conflicts(&request, &["cas", "acquire", "release"])?;
    let mut entry = KvEntry {
        key: request.rest.as_str().into(),
        value: request.body.to_vec(),
        flags: request.number("flags")?.unwrap_or(0),
        ..KvEntry::default()
    };
    let mut op = "set";
    if let Some(index) = request.number("cas")? {
        (op, entry.modify_index) = ("cas", index);
    }
    for (name, lock) in [("acquire", "lock"), ("release", "unlock")] {
        if let Some(session) = request.query.get(name) {
            (op, entry.session) = (lock, session.to_owned());
        }
    }
    apply(request, op, entry).await
}

async fn delete(request: Request) -> Result<Reply, HttpError> {
    conflicts(&request, &["recurse", "cas"])?;
    let recurse = request.query.has("recurse");
    if !recurse {
        missing_key(&request)?;
    }
    let cas: Option<Index> = request.number("cas")?;
    let op = match cas {
        _ if recurse => "delete-tree",
        Some(_) => "delete-cas",
        None => "delete",
    };
    let entry = KvEntry {
        key: request.rest.as_str().into(),
        modify_index: cas.unwrap_or(0),
        ..KvEntry::default()
    };
    apply(request, op, entry).await
}

async fn apply(request: Request, op: &str, dir_ent: KvEntry) -> Result<Reply, HttpError> {
    let wanted = KvsRequest {
        datacenter: request.datacenter(),
        op: op.to_owned(),
        dir_ent,
        token: request.token(),
    };
    Ok(Reply::bool(request.api.kv_apply(wanted).await?))
}

fn missing_key(request: &Request) -> Result<(), HttpError> {
    match request.rest.is_empty() {
        true => Err(HttpError::bad("Missing key name")),
        false => Ok(()),
    }
}

/// 400 when more than one of these parameters is there.
fn conflicts(request: &Request, names: &[&str]) -> Result<(), HttpError> {
    let given = names.iter().filter(|name| request.query.has(name));
    let given: Vec<&str> = given.copied().collect();
    if given.len() < 2 {
        return Ok(());
    }
    let text = format!("Conflicting flags: {}", given.join(" and "));
    Err(HttpError::bad(text))
}
