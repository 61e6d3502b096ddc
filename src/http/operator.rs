//! `/v1/operator`: what people do to a datacenter's servers.

use crate::api::agent::pools;
use crate::api::operator::PeerName;
use crate::http::decode;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::{DcSpecificRequest, KeyringRequest, KeyringResponse};
use crate::model::{NodeId, multierror};
use http::StatusCode;
use serde::Deserialize;

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/operator/raft/configuration", raft_configuration),
    route!(Delete, "/v1/operator/raft/peer", raft_remove_peer),
    route!(Get, "/v1/operator/keyring", keys),
    route!(Post, "/v1/operator/keyring", install_key),
    route!(Put, "/v1/operator/keyring", use_key),
    route!(Delete, "/v1/operator/keyring", remove_key),
];

async fn raft_configuration(request: Request) -> Result<Reply, HttpError> {
    let (query, _) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        ..DcSpecificRequest::default()
    })?;
    let configuration = request.api.raft_configuration(&query).await?;
    Ok(Reply::json(json::bytes(&configuration)?))
}

async fn raft_remove_peer(request: Request) -> Result<Reply, HttpError> {
    let name = match (request.query.get("id"), request.query.get("address")) {
        (Some(id), None) => PeerName::Id(NodeId::from(id)),
        (None, Some(address)) => PeerName::Address(address.to_owned()),
        (None, None) => {
            return Err(HttpError::bad_request(
                "Must specify either ?id with the server's ID or ?address with IP:port of peer to remove",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(HttpError::bad_request(
                "Must specify only one of ?id or ?address",
            ));
        }
    };
    let datacenter = request.datacenter();
    request.api.raft_remove_peer(&datacenter, &name).await?;
    Ok(Reply::empty(StatusCode::OK))
}

async fn keys(request: Request) -> Result<Reply, HttpError> {
    let local_only = match request.query.get("local-only") {
        None | Some("") => false,
        Some(text) => go_bool(text).ok_or_else(|| {
            let text = format!("strconv.ParseBool: parsing {text:?}: invalid syntax");
            HttpError::bad_request(format!("Error parsing local-only: {text}"))
        })?,
    };
    let asked = KeyringRequest {
        local_only,
        ..keyring_request(&request, "list")?
    };
    let responses = keyring(&request, &asked).await?;
    Ok(Reply::json(json::bytes(&responses)?))
}

async fn install_key(request: Request) -> Result<Reply, HttpError> {
    change_keys(&request, "install").await
}

async fn use_key(request: Request) -> Result<Reply, HttpError> {
    change_keys(&request, "use").await
}

async fn remove_key(request: Request) -> Result<Reply, HttpError> {
    change_keys(&request, "remove").await
}

/// The body of a request that changes keys.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct KeyBody {
    key: String,
}

async fn change_keys(request: &Request, operation: &str) -> Result<Reply, HttpError> {
    let body: KeyBody = decode::json(&request.body)
        .map_err(|error| HttpError::bad_request(format!("Request decode failed: {error}")))?;
    if !matches!(
        request.query.get("local-only"),
        None | Some("" | "0" | "f" | "false")
    ) {
        let text = "Invalid use of local-only: local-only can only be set for list requests";
        return Err(HttpError::bad_request(text));
    }
    let asked = KeyringRequest {
        key: body.key,
        ..keyring_request(request, operation)?
    };
    keyring(request, &asked).await?;
    Ok(Reply::empty(StatusCode::OK))
}

fn keyring_request(request: &Request, operation: &str) -> Result<KeyringRequest, HttpError> {
    let relay_factor = match request.query.get("relay-factor") {
        None | Some("") => 0,
        Some(text) => {
            let number: i64 = text.parse().map_err(|_| {
                let text = format!("strconv.Atoi: parsing {text:?}: invalid syntax");
                HttpError::bad_request(format!("Error parsing relay factor: {text}"))
            })?;
            let factor = u8::try_from(number).ok().filter(|factor| *factor <= 5);
            factor.ok_or_else(|| {
                let problem = pools::relay_factor_problem(number);
                HttpError::bad_request(format!("Invalid relay factor: {problem}"))
            })?
        }
    };
    Ok(KeyringRequest {
        operation: operation.to_owned(),
        relay_factor,
        token: request.token(),
        ..KeyringRequest::default()
    })
}

/// 500 with every pool's and member's complaint, if there is one.
async fn keyring(
    request: &Request,
    asked: &KeyringRequest,
) -> Result<Vec<KeyringResponse>, HttpError> {
    let responses = request.api.keyring(asked).await?.responses;
    let mut problems = Vec::new();
    for response in responses
        .iter()
        .filter(|response| !response.error.is_empty())
    {
        let pool = match response.wan {
            true => "WAN".to_owned(),
            false => format!("{} (LAN)", response.datacenter),
        };
        problems.push(format!("{pool} error: {}", response.error));
        let messages = response.messages.iter();
        problems.extend(messages.map(|(node, message)| format!("{node}: {message}")));
    }
    match multierror(&problems) {
        Some(text) => Err(HttpError::internal(text)),
        None => Ok(responses),
    }
}

/// The words that Go's `strconv.ParseBool` takes.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Some(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}
