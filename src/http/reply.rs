//! An answer before it becomes HTTP.

use crate::api::route::Consistency;
use crate::model::QueryMeta;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};

/// The content type of JSON answers.
pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The content type of texts.
pub const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

const INDEX: HeaderName = HeaderName::from_static("x-consul-index");
const KNOWN_LEADER: HeaderName = HeaderName::from_static("x-consul-knownleader");
const LAST_CONTACT: HeaderName = HeaderName::from_static("x-consul-lastcontact");
const CONSISTENCY: HeaderName = HeaderName::from_static("x-consul-effective-consistency");

/// Status, headers and body.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// No body and no content type.
    pub fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// 200 with a body of this type.
    pub fn with_type(content_type: HeaderValue, body: impl Into<Bytes>) -> Self {
        let mut reply = Self::empty(StatusCode::OK);
        reply.headers.insert(CONTENT_TYPE, content_type);
        reply.body = body.into();
        reply
    }

    /// 200 with encoded JSON.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::with_type(JSON, body)
    }

    /// 200 with `true` or `false`.
    pub fn bool(value: bool) -> Self {
        Self::json(if value { "true" } else { "false" })
    }

    /// A text with a status.
    pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let mut reply = Self::with_type(TEXT, body);
        reply.status = status;
        reply
    }

    /// Adds the facts of a read.
    #[must_use]
    pub fn meta(mut self, meta: &QueryMeta) -> Self {
        let known = if meta.known_leader { "true" } else { "false" };
        let contact = u64::try_from(meta.last_contact.to_std().as_millis()).unwrap_or(u64::MAX);
        let headers = &mut self.headers;
        headers.insert(INDEX, HeaderValue::from(meta.index.max(1)));
        headers.insert(KNOWN_LEADER, HeaderValue::from_static(known));
        headers.insert(LAST_CONTACT, HeaderValue::from(contact));
        self
    }

    /// Adds how fresh the answer is.
    #[must_use]
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        let value = HeaderValue::from_static(consistency.as_str());
        self.headers.insert(CONSISTENCY, value);
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
        self
    }
}
