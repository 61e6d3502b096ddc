//! Which handler answers a path.

use crate::http::error::HttpError;
use crate::http::reply::Reply;
use crate::http::request::Request;
use futures_util::future::BoxFuture;
use http::Method;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A method that routes can have. `OPTIONS` is answered for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Reads.
    Get,
    /// Writes.
    Put,
    /// Writes.
    Post,
    /// Removes.
    Delete,
}

impl Verb {
    /// The method's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    /// The verb of a method, if routes can have it.
    pub fn of(method: &Method) -> Option<Self> {
        match *method {
            Method::GET => Some(Self::Get),
            Method::PUT => Some(Self::Put),
            Method::POST => Some(Self::Post),
            Method::DELETE => Some(Self::Delete),
            _ => None,
        }
    }
}

/// Answers one request.
pub type Handler = fn(Request) -> BoxFuture<'static, Result<Reply, HttpError>>;

/// One row: a path, a method and what answers them.
pub struct Route {
    /// The path; with a `/` at its end everything below it, which the handler gets as [`Request::rest`].
    pub path: &'static str,
    /// The method.
    pub verb: Verb,
    /// What answers.
    pub handler: Handler,
}

/// A [`Route`] whose handler is an `async fn(Request) -> Result<Reply, HttpError>`.
macro_rules! route {
    ($verb:ident, $path:literal, $handler:path) => {
        $crate::http::table::Route {
            path: $path,
            verb: $crate::http::table::Verb::$verb,
            handler: |request| Box::pin($handler(request)),
        }
    };
}
pub(crate) use route;

/// A path with its methods.
pub struct Endpoint {
    /// The path as routes name it.
    pub path: &'static str,
    methods: BTreeMap<Verb, Method1>,
    /// What `Allow` says, in the order of the routes.
    pub allow: String,
}

struct Method1 {
    handler: Handler,
    /// Name of the metric.
    name: metrics::SharedString,
}

impl Endpoint {
    /// The handler of a method.
    pub fn handler(&self, verb: Verb) -> Option<Handler> {
        self.methods.get(&verb).map(|m| m.handler)
    }

    /// Notes how long a request took.
    pub fn observe(&self, verb: Verb, milliseconds: f64) {
        if let Some(method) = self.methods.get(&verb) {
            // Asked for anew each time: a reload may have changed what the filter lets through.
            metrics::histogram!(method.name.clone()).record(milliseconds);
        }
    }
}

/// All endpoints by path.
pub struct Table {
    endpoints: BTreeMap<&'static str, Endpoint>,
}

impl Table {
    /// A table of these routes. The later of two rows with the same path and method counts.
    pub fn new(routes: impl IntoIterator<Item = &'static Route>) -> Self {
        let mut endpoints: BTreeMap<&'static str, Endpoint> = BTreeMap::new();
        for route in routes {
            let endpoint = endpoints.entry(route.path).or_insert_with(|| Endpoint {
                path: route.path,
                methods: BTreeMap::new(),
                allow: "OPTIONS".to_owned(),
            });
            let method = Method1 {
                handler: route.handler,
                name: Arc::<str>::from(metric_name(route)).into(),
            };
            if endpoint.methods.insert(route.verb, method).is_none() {
                endpoint.allow.push(',');
                endpoint.allow.push_str(route.verb.as_str());
            }
        }
        Self { endpoints }
    }

    /// The endpoint of a path, and what of the path lies below it. The longest matching path wins.
    pub fn find<'p>(&self, path: &'p str) -> Option<(&Endpoint, &'p str)> {
        if let Some(endpoint) = self.endpoints.get(path) {
            return Some((endpoint, ""));
        }
        let ends = path.rmatch_indices('/').map(|(at, _)| at + 1);
        ends.filter_map(|end| path.split_at_checked(end))
            .filter(|(above, _)| *above != "/")
            .find_map(|(above, below)| Some((self.endpoints.get(above)?, below)))
    }

    /// Whether a path exists with a `/` behind it.
    pub fn is_folder(&self, path: &str) -> bool {
        self.endpoints.contains_key(format!("{path}/").as_str())
    }
}

/// Consul's name: `consul.http.GET.v1.catalog.service._`, an underscore standing for what is named in the path.
fn metric_name(route: &Route) -> String {
    let parts = route.path.trim_matches('/').replace('/', ".");
    let below = if route.path.ends_with('/') { "._" } else { "" };
    format!("consul.http.{}.{parts}{below}", route.verb.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn nothing(_: Request) -> Result<Reply, HttpError> {
        Ok(Reply::empty(http::StatusCode::OK))
    }

    static ROUTES: &[Route] = &[
        route!(Get, "/v1/kv/", nothing),
        route!(Put, "/v1/kv/", nothing),
        route!(Get, "/v1/catalog/nodes", nothing),
        route!(Get, "/v1/internal/federation-states", nothing),
        route!(Get, "/v1/internal/federation-states/mesh-gateways", nothing),
    ];

    #[test]
    fn paths_match_exactly_or_by_the_longest_folder() {
        let table = Table::new(ROUTES);
        let found = |path: &'static str| table.find(path).map(|(e, rest)| (e.path, rest));
        assert_eq!(found("/v1/kv/a/b"), Some(("/v1/kv/", "a/b")));
        assert_eq!(found("/v1/kv/"), Some(("/v1/kv/", "")));
        assert_eq!(found("/v1/kv"), None);
        assert!(table.is_folder("/v1/kv"));
        assert_eq!(found("/v1/catalog/nodes"), Some(("/v1/catalog/nodes", "")));
        assert_eq!(found("/v1/catalog/nodes/"), None);
        assert_eq!(found("/v1/nope"), None);
        assert_eq!(table.find("/v1/kv/").unwrap().0.allow, "OPTIONS,GET,PUT");
        assert_eq!(metric_name(&ROUTES[0]), "consul.http.GET.v1.kv._");
    }
}
