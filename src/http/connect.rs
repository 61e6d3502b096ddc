//! `/v1/connect/ca`: what clients may know of the Connect CA.

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json::ca::{RootsView, pem};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::http::table::{Route, route};
use crate::model::query::DcSpecificRequest;
use http::header::HeaderValue;

/// The endpoints.
pub static ROUTES: &[Route] = &[route!(Get, "/v1/connect/ca/roots", roots)];

async fn roots(request: Request) -> Result<Reply, HttpError> {
    let as_pem = match request.query.get("pem") {
        None => false,
        Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
        Some(_) => {
            let text = "The 'pem' query parameter must be a boolean value";
            return Err(HttpError::bad_request(text));
        }
    };
    let (query, _) = request.read(|datacenter| DcSpecificRequest {
        datacenter,
        ..DcSpecificRequest::default()
    })?;
    let answer = request.api.ca_roots(&query).await;
    let (meta, roots) = answer.map_err(HttpError::of_read)?.into_parts();
    if as_pem {
        let content_type = HeaderValue::from_static("application/pem-certificate-chain");
        return Ok(Reply::with_type(content_type, pem(&roots)));
    }
    let body = json::bytes(&RootsView::from(&roots))?;
    Ok(Reply::json(body).meta(&meta))
}
