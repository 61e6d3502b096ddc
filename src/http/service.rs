//! From an HTTP request to an HTTP response: routing, access, body, panics, compression.

use crate::api::Api;
use crate::api::snapshot::MAX_ARCHIVE;
use crate::http::cache::Cache;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::path::{cleaned, percent_decode};
use crate::http::reply::{JSON, Reply};
use crate::http::request::{Query, Request};
use crate::http::serve::Settings;
use crate::http::snapshot;
use crate::http::table::{Endpoint, Handler, Route, Table, Verb};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::FutureExt;
use http::header::{
    ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    HeaderValue, LOCATION, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use std::io::Write;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

/// Smaller answers are not worth compressing.
const GZIP_FROM: usize = 1400;

/// Answers requests of every connection.
pub struct Service {
    api: Api,
    table: Table,
    cache: Arc<Cache>,
    settings: Settings,
}

impl Service {
    /// Answers with the handlers of these routes.
    pub fn new(
        api: Api,
        routes: impl IntoIterator<Item = &'static Route>,
        settings: Settings,
    ) -> Self {
        Self {
            api,
            table: Table::new(routes),
            cache: Arc::new(Cache::new(settings.cache_bytes)),
            settings,
        }
    }

    /// Answers one request. Never fails: every failure is an answer.
    pub async fn respond<B>(
        &self,
        request: http::Request<B>,
        remote: IpAddr,
    ) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let span = tracing::debug_span!(
            "http",
            method = %request.method(),
            path = request.uri().path(),
            client = %remote,
            status = tracing::field::Empty,
        );
        let mut reply = self.answer(request, remote).instrument(span.clone()).await;
        for (name, value) in &self.settings.response_headers {
            reply.headers.insert(name, value.clone());
        }
        span.record("status", reply.status.as_u16());
        let mut response = Response::new(Full::new(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }

    async fn answer<B>(&self, request: http::Request<B>, remote: IpAddr) -> Reply
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if let Some(refusal) = without_host(&request) {
            return refusal;
        }
        let uri = request.uri().clone();
        let path = uri.path();
        // Keys may hold empty parts; everything else is redirected to its clean form as Go's mux does.
        if !path.starts_with("/v1/kv/")
            && let Some(clean) = cleaned(path)
        {
            return moved(&clean, uri.query());
        }
        if path == "/" {
            return Reply::text(StatusCode::OK, "Consul Agent");
        }
        let Some((endpoint, rest)) = self.table.find(path) else {
            return match self.table.is_folder(path) {
                true => moved(&format!("{path}/"), uri.query()),
                false => Reply::empty(StatusCode::NOT_FOUND),
            };
        };
        let accepts_gzip = accepts_gzip(request.headers());
        let query = Query::parse(uri.query().unwrap_or_default());
        let pretty = query.has("pretty");
        let mut reply = self
            .route(endpoint, rest, query, request, remote)
            .await
            .unwrap_or_else(HttpError::into_reply);
        if pretty && reply.headers.get(CONTENT_TYPE) == Some(&JSON) {
            reply.body = json::pretty(&reply.body);
        }
        let vary = HeaderValue::from_static("Accept-Encoding");
        reply.headers.insert(VARY, vary);
        let packed = reply.headers.get(CONTENT_TYPE) == Some(&snapshot::ARCHIVE);
        match accepts_gzip && !packed && reply.body.len() >= GZIP_FROM {
            true => gzip(reply),
            false => reply,
        }
    }

    async fn route<B>(
        &self,
        endpoint: &Endpoint,
        rest: &str,
        query: Query,
        request: http::Request<B>,
        remote: IpAddr,
    ) -> Result<Reply, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.check_blocked(request.uri().path())?;
        if request.method() == Method::OPTIONS {
            return Ok(allowing(Reply::empty(StatusCode::OK), endpoint));
        }
        let verb = Verb::of(request.method());
        let Some((verb, handler)) = verb.and_then(|v| Some((v, endpoint.handler(v)?))) else {
            let text = format!("method {} not allowed", request.method());
            let reply = Reply::text(StatusCode::METHOD_NOT_ALLOWED, text);
            return Ok(allowing(reply, endpoint));
        };
        if verb != Verb::Get {
            self.check_write_access(remote)?;
        }
        refuse_namespaces(&query, request.headers())?;
        let rest = percent_decode(rest)
            .ok_or_else(|| HttpError::bad("The path holds a broken %-escape or is not UTF-8"))?
            .into_owned();
        let (parts, body) = request.into_parts();
        let place = match (verb, endpoint.path) {
            (Verb::Put, snapshot::PATH) => self.api.archive_place().await,
            _ => None,
        };
        let body = match verb {
            Verb::Get => Bytes::new(),
            _ => self.read_body(endpoint, &parts.headers, body).await?,
        };
        let request = Request {
            api: self.api.clone(),
            cache: self.cache.clone(),
            rest,
            query,
            headers: parts.headers,
            body,
            remote,
            place,
            discovery: ["/v1/catalog", "/v1/health"]
                .iter()
                .any(|begin| endpoint.path.starts_with(begin)),
            restores: self.api.store().restores(),
        };
        let started = Instant::now();
        let reply = guarded(handler, request).await;
        endpoint.observe(verb, started.elapsed().as_secs_f64() * 1000.0);
        if let Err(error) = &reply {
            tracing::debug!(status = error.status.as_u16(), error = error.text);
        }
        reply
    }

    fn check_blocked(&self, path: &str) -> Result<(), HttpError> {
        let blocked = &self.settings.block_endpoints;
        if blocked.iter().any(|begin| path.starts_with(begin.as_str())) {
            let text = "Endpoint is blocked by agent configuration";
            return Err(HttpError::new(StatusCode::FORBIDDEN, text));
        }
        Ok(())
    }

    fn check_write_access(&self, remote: IpAddr) -> Result<(), HttpError> {
        let allowed = &self.settings.allow_write_from;
        let remote = remote.to_canonical();
        if allowed.is_empty() || allowed.iter().any(|net| net.contains(&remote)) {
            return Ok(());
        }
        Err(HttpError::new(
            StatusCode::FORBIDDEN,
            "Access is restricted",
        ))
    }

    async fn read_body<B>(
        &self,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        body: B,
    ) -> Result<Bytes, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let limit = match endpoint.path {
            "/v1/kv/" => self.api.settings().kv_max_value_size,
            snapshot::PATH => MAX_ARCHIVE,
            _ => self.settings.max_body,
        };
        let length = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok());
        let length = length.and_then(|v| v.parse::<u64>().ok());
        let too_large = || {
            let size = length.map_or_else(|| format!("more than {limit}"), |l| l.to_string());
            let key = if endpoint.path == "/v1/kv/" {
                " (kv_max_value_size)"
            } else {
                ""
            };
            let text =
                format!("Request body({size} bytes) too large, max size: {limit} bytes{key}.");
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, text)
        };
        if length.is_some_and(|l| l > limit as u64) {
            return Err(too_large());
        }
        let patience = match endpoint.path {
            snapshot::PATH => self.settings.body_timeout.max(ARCHIVE_TIMEOUT),
            _ => self.settings.body_timeout,
        };
        let collected = timeout(patience, Limited::new(body, limit).collect());
        match collected.await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => Err(HttpError::bad(format!(
                "The request body ended early: {error}"
            ))),
            Err(_) => Err(HttpError::new(
                StatusCode::REQUEST_TIMEOUT,
                "The request body did not arrive in time",
            )),
        }
    }
}

/// Runs a handler; a panic in it is an answer too, and other requests go on.
async fn guarded(handler: Handler, request: Request) -> Result<Reply, HttpError> {
    AssertUnwindSafe(handler(request))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            tracing::error!("a request handler panicked; the server goes on");
            Err(HttpError::internal("Internal error: see the server's log"))
        })
}

fn without_host<B>(request: &http::Request<B>) -> Option<Reply> {
    let named = request.headers().contains_key(HOST) || request.uri().authority().is_some();
    if named || request.version() != Version::HTTP_11 {
        return None;
    }
    let text = "400 Bad Request: missing required Host header";
    let mut reply = Reply::text(StatusCode::BAD_REQUEST, text);
    let close = HeaderValue::from_static("close");
    reply.headers.insert(CONNECTION, close);
    Some(reply)
}

fn moved(path: &str, query: Option<&str>) -> Reply {
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let shown = target
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&#34;");
    let body = format!("<a href=\"{shown}\">Moved Permanently</a>.\n\n");
    let mut reply = Reply::with_type(HeaderValue::from_static("text/html; charset=utf-8"), body);
    reply.status = StatusCode::MOVED_PERMANENTLY;
    if let Ok(value) = HeaderValue::try_from(target) {
        reply.headers.insert(LOCATION, value);
    }
    reply
}

fn allowing(mut reply: Reply, endpoint: &Endpoint) -> Reply {
    if let Ok(value) = HeaderValue::try_from(&endpoint.allow) {
        reply.headers.insert(ALLOW, value);
    }
    reply
}

fn refuse_namespaces(query: &Query, headers: &HeaderMap) -> Result<(), HttpError> {
    let given = if query.get("ns").is_some_and(|ns| !ns.is_empty()) {
        "query parameter: \"ns\""
    } else if headers.contains_key("x-consul-namespace") {
        "header: \"X-Consul-Namespace\""
    } else {
        return Ok(());
    };
    let text = format!("Invalid {given} - Namespaces are a Consul Enterprise feature");
    Err(HttpError::bad(text))
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    values.filter_map(|v| v.to_str().ok()).any(|value| {
        value.split(',').any(|coding| {
            let mut parts = coding.split(';').map(str::trim);
            let gzip = parts.next().is_some_and(|c| c.eq_ignore_ascii_case("gzip"));
            let refused = |q: &str| matches!(q.replace(' ', "").as_str(), "q=0" | "q=0.0");
            gzip && !parts.any(refused)
        })
    })
}

fn gzip(mut reply: Reply) -> Reply {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    if encoder.write_all(&reply.body).is_ok()
        && let Ok(body) = encoder.finish()
    {
        reply.body = body.into();
        let value = HeaderValue::from_static("gzip");
        reply.headers.insert(CONTENT_ENCODING, value);
    }
    reply
}

/// The longest that a client may take for an archive.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest that a client may take for its body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
