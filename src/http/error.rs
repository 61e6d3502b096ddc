//! The only place where failures become statuses and texts.

use crate::api::error::Error;
use crate::http::reply::Reply;
use crate::model::QueryMeta;
use http::StatusCode;

/// A failed request: what the client gets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{status}: {text}")]
pub struct HttpError {
    /// The status.
    pub status: StatusCode,
    /// The body, plain text.
    pub text: String,
    /// Facts of the read, when the answer shows them in spite of the failure.
    pub meta: Option<QueryMeta>,
}

impl HttpError {
    /// A failure with this status and text.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            meta: None,
        }
    }

    /// 400 with this text.
    pub fn bad(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// 400 with `Bad request: ` before this text.
    pub fn bad_request(text: impl AsRef<str>) -> Self {
        Self::bad(format!("Bad request: {}", text.as_ref()))
    }

    /// 404 with this text.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// 500 with this text.
    pub fn internal(text: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }

    /// Shows these facts in the headers.
    #[must_use]
    pub fn with_meta(mut self, meta: QueryMeta) -> Self {
        self.meta = Some(meta);
        self
    }

    /// A failed read of an endpoint whose failures show the facts too, those of an answer that never came.
    pub fn of_read(error: impl Into<Self>) -> Self {
        error.into().with_meta(QueryMeta {
            index: 1,
            ..QueryMeta::default()
        })
    }

    /// As an answer.
    pub fn into_reply(self) -> Reply {
        let reply = Reply::text(self.status, self.text);
        match &self.meta {
            Some(meta) => reply.meta(meta),
            None => reply,
        }
    }
}

impl From<Error> for HttpError {
    /// Consul answers 500 whenever the server behind the edge refuses, whoever is at fault.
    fn from(error: Error) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<serde_json::Error> for HttpError {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("the answer could not be encoded: {error}"))
    }
}
