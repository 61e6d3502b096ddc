//! The headers of Go's net/rpc, as both sides write them.

use serde::Deserialize;
use serde::Serialize;

/// Comes before the body of a request.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct RequestHeader {
    /// `Service.Method`.
    pub(super) service_method: String,
    /// Chosen by the caller; the reply repeats it.
    pub(super) seq: u64,
}

/// Comes before the body of a reply.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct ResponseHeader {
    /// The request's.
    pub(super) service_method: String,
    /// The request's.
    pub(super) seq: u64,
    /// Empty if all went well.
    pub(super) error: String,
}

/// The body of a reply that is an error: a map without entries, which the caller throws away.
pub(super) const EMPTY_BODY: &[u8] = &[0x80];
