//! One request with its parameters.

use crate::api::Api;
use crate::api::filter::RowFilter;
use crate::api::route::Consistency;
use crate::http::cache::Cache;
use crate::http::error::HttpError;
use crate::model::catalog::StringMap;
use crate::model::query::{QuerySource, ReadRequest};
use crate::model::{Datacenter, GoDuration, QueryOptions};
use bytes::Bytes;
use http::HeaderMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Parameters that do not change what an answer says.
const NOT_CONTENT: [&str; 10] = [
    "index",
    "wait",
    "token",
    "dc",
    "stale",
    "consistent",
    "leader",
    "cached",
    "pretty",
    "max_stale",
];

/// The query string, decoded, in the order of the client.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query string.
    pub fn parse(text: &str) -> Self {
        Self(
            url::form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// The first value of a parameter; empty when it has none.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// All values of a repeated parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether a parameter is there and not switched off with `0` or `false`.
    pub fn switch(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value != "0" && value != "false")
    }

    /// Whether a parameter is there, with a value or without.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// A request, its body read.
pub struct Request {
    /// The verbs.
    pub api: Api,
    /// Encoded answers.
    pub cache: Arc<Cache>,
    /// What of the path lies below the route's, decoded.
    pub rest: String,
    /// The query string.
    pub query: Query,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; empty for `GET`.
    pub body: Bytes,
    /// Who asks.
    pub remote: IpAddr,
    /// Whether it is about the catalog or health, where `discovery_max_stale` counts.
    pub discovery: bool,
    /// A place among those who hold an archive; for the routes whose bodies are archives.
    pub place: Option<tokio::sync::OwnedSemaphorePermit>,
    /// How often the state had been restored when the request came: after a restore an index may mean something else.
    pub restores: u64,
}

impl Request {
    /// The datacenter that should answer; empty for this one.
    pub fn datacenter(&self) -> Datacenter {
        Datacenter::from(self.query.get("dc").unwrap_or_default())
    }

    /// The token: the parameter, `X-Consul-Token`, or a bearer token.
    pub fn token(&self) -> String {
        let header = |name: &str| self.headers.get(name).and_then(|v| v.to_str().ok());
        let bearer = || {
            let (scheme, token) = header("authorization")?.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(token.trim())
        };
        self.query
            .get("token")
            .filter(|token| !token.is_empty())
            .or_else(|| header("x-consul-token"))
            .or_else(bearer)
            .unwrap_or_default()
            .to_owned()
    }

    /// How the client wants to read.
    ///
    /// # Errors
    /// 400 for an index, wait or consistency that makes no sense.
    pub fn options(&self) -> Result<QueryOptions, HttpError> {
        let query = &self.query;
        let mut options = QueryOptions {
            token: self.token(),
            filter: query.get("filter").unwrap_or_default().to_owned(),
            ..QueryOptions::default()
        };
        if let Some(wait) = query.get("wait").filter(|wait| !wait.is_empty()) {
            options.max_query_time = duration(wait, "Invalid wait time")?;
        }
        if let Some(index) = query.get("index").filter(|index| !index.is_empty()) {
            let parsed = index.parse();
            options.min_query_index = parsed.map_err(|_| HttpError::bad("Invalid index"))?;
        }
        if let Some(max) = query.get("max_stale").filter(|max| !max.is_empty()) {
            options.max_stale_duration = duration(max, "Invalid max_stale value")?;
        }
        options.allow_stale = query.has("stale") || query.has("max_stale");
        options.require_consistent = query.has("consistent");
        let says = ["stale", "consistent", "leader", "cached", "max_stale"];
        if self.discovery && !says.iter().any(|name| query.has(name)) {
            let max = self.api.settings().discovery_max_stale;
            options.allow_stale = !max.is_zero();
            options.max_stale_duration = max.into();
        }
        for (name, given) in [
            ("stale", options.allow_stale),
            ("cached", query.has("cached")),
        ] {
            if given && options.require_consistent {
                return Err(HttpError::bad(format!(
                    "Cannot specify ?{name} with ?consistent, conflicting semantics."
                )));
            }
        }
        Ok(options)
    }

    /// Puts datacenter and read options into an API request.
    ///
    /// # Errors
    /// As [`Request::options`].
    pub fn read<R: ReadRequest>(
        &self,
        make: impl FnOnce(Datacenter) -> R,
    ) -> Result<(R, Consistency), HttpError> {
        let options = self.options()?;
        let consistency = Consistency::of(&options);
        let mut request = make(self.datacenter());
        request.set_options(options);
        Ok((request, consistency))
    }

    /// The `filter` parameter, for rows that do not come from the API. `fields` are those that a row has.
    ///
    /// # Errors
    /// 500 as Consul answers, for an expression that is broken or names a field that no row has.
    pub(crate) fn filter(&self, fields: &[&str]) -> Result<RowFilter, HttpError> {
        let text = self.query.get("filter").unwrap_or_default();
        RowFilter::parse(text, fields).map_err(HttpError::of_read)
    }

    /// The `node-meta=key:value` pairs.
    pub fn node_meta(&self) -> StringMap {
        let pairs = self.query.all("node-meta");
        pairs
            .map(|pair| pair.split_once(':').unwrap_or((pair, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    /// Whom results should be near to; `_agent` is this server.
    pub fn source(&self) -> QuerySource {
        let node = match self.query.get("near") {
            Some("_agent") => self.api.settings().node.as_str(),
            Some(node) => node,
            None => "",
        };
        QuerySource {
            datacenter: self.api.settings().datacenter.to_string(),
            node: node.to_owned(),
            ..QuerySource::default()
        }
    }

    /// A number parameter.
    ///
    /// # Errors
    /// 500 with the text of Go's parser, which is what Consul answers.
    pub fn number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let Some(text) = self.query.get(name) else {
            return Ok(None);
        };
        let reason = match text.parse::<u64>() {
            Ok(number) => return Ok(Some(number)),
            Err(e) if *e.kind() == std::num::IntErrorKind::PosOverflow => "value out of range",
            Err(_) => "invalid syntax",
        };
        let text = format!("strconv.ParseUint: parsing {text:?}: {reason}");
        Err(HttpError::internal(text))
    }

    /// Everything of the request that decides what the answer says, for the cache.
    pub fn content_key(&self, endpoint: &str) -> String {
        let mut key = format!("{endpoint}\0{}\0{}", self.restores, self.rest);
        for (name, value) in &self.query.0 {
            if !NOT_CONTENT.contains(&name.as_str()) {
                key.push('\0');
                key.push_str(name);
                key.push('=');
                key.push_str(value);
            }
        }
        key
    }
}

fn duration(text: &str, problem: &str) -> Result<GoDuration, HttpError> {
    text.parse::<GoDuration>()
        .map_err(|_| HttpError::bad(problem))
}
