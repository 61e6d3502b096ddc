//! What HTTP clients send.

use crate::http::decode;
use crate::http::json;
use crate::http::path::{cleaned, percent_decode};
use crate::http::request::Query;
use crate::model::query::{DeregisterRequest, RegisterRequest};

/// A body of a registration or a config entry, through reading and, when it can be read, through writing.
pub fn fuzz_http_json(data: &[u8]) {
    let _ = decode::json::<DeregisterRequest>(data);
    if let Ok(request) = decode::json::<RegisterRequest>(data) {
        let _ = crate::api::register::normalise(request);
    }
    if let Ok(entry) = decode::config_entry(data) {
        let _ = crate::api::config_entry::normalise(entry);
    }
    let _ = json::pretty(data);
}

/// A path and a query string.
pub fn fuzz_http_target(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = percent_decode(&text);
    if let Some(clean) = cleaned(&text) {
        assert_eq!(cleaned(&clean), None, "{clean:?} is clean");
    }
    let _ = Query::parse(&text).get("index");
}
