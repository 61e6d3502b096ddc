//! Envoy's bootstrap configuration (API v3) for `connect envoy`.
//!
//! A function from [`Options`] to JSON: no file, no network, and variables only through the look-up that is passed
//! in. The parts: `control_plane` (how Envoy finds the servers), `stats` (tags and sinks), `listeners` (static
//! listeners for metrics and readiness). Everything else reaches Envoy by xDS.
//!
//! Invariants: the same options give the same bytes; every text is a JSON value, never pasted into one; nothing that
//! Envoy 1.40 calls deprecated is used (but the section `tracing`, when the proxy's configuration has one).

mod control_plane;
mod listeners;
mod stats;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Most connections that an Envoy accepts at a time; without a limit Envoy warns at start.
const MAX_DOWNSTREAM_CONNECTIONS: u32 = 50_000;

/// Program size at which a regular expression counts as too complex. Stats tags need more than Envoy's default.
const MAX_REGEX_PROGRAM_SIZE: u32 = 1_048_576;

/// Everything a bootstrap depends on.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who this Envoy is.
    pub node: Node,
    /// Address of Envoy's admin interface.
    pub admin: SocketAddr,
    /// File for the admin interface's access log.
    pub admin_access_log: PathBuf,
    /// How Envoy finds the servers.
    pub control_plane: ControlPlane,
    /// Statistics given by flags.
    pub stats: Stats,
    /// Where to answer `/ready`, if anywhere.
    pub ready: Option<SocketAddr>,
    /// The proxy's configuration with its `envoy_*` keys.
    pub proxy_config: Map<String, Value>,
}

/// Identity of a proxy.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Service id of the proxy, by which the servers find its registration.
    pub id: String,
    /// Service name; used for statistics only.
    pub cluster: String,
    /// Catalog node of the registration; with the id it names exactly one proxy.
    pub name: String,
    /// Datacenter of the proxy, for statistics.
    pub datacenter: String,
}

/// Where the xDS servers are and how to speak to them.
#[derive(Debug, Clone, Default)]
pub struct ControlPlane {
    /// gRPC addresses of all servers; Envoy moves on when one dies.
    pub endpoints: Vec<Endpoint>,
    /// TLS, or plain text without.
    pub tls: Option<ClientTls>,
    /// ACL token for the streams; empty for none.
    pub token: String,
}

/// One address of a server's gRPC port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// An IP address and port.
    Ip(SocketAddr),
    /// A DNS name and port, looked up by Envoy again and again.
    Dns(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

/// TLS towards the servers, as PEM text.
#[derive(Debug, Clone, Default)]
pub struct ClientTls {
    /// Certificates of the accepted CAs.
    pub ca_pem: String,
    /// Name sent as SNI.
    pub server_name: String,
    /// DNS names of which the server's certificate must carry one; empty accepts any certificate of the CA.
    pub accepted_names: Vec<String>,
    /// Client certificate and key, for servers that ask for one.
    pub certificate: Option<(String, String)>,
}

/// Statistics given by flags.
#[derive(Debug, Clone)]
pub struct Stats {
    /// Leave out the tag names of Consul before 1.9: each is one more regular expression for every statistic.
    pub omit_deprecated_tags: bool,
    /// Port on 127.0.0.1 that answers Prometheus instead of Envoy itself.
    pub prometheus_backend_port: Option<u16>,
    /// Path on which the Prometheus listener answers.
    pub prometheus_scrape_path: String,
    /// TLS of the Prometheus listener.
    pub prometheus_tls: Option<ServerTls>,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            omit_deprecated_tags: true,
            prometheus_backend_port: None,
            prometheus_scrape_path: "/metrics".to_owned(),
            prometheus_tls: None,
        }
    }
}

/// Files for a TLS listener.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Certificate chain.
    pub cert_file: PathBuf,
    /// Private key.
    pub key_file: PathBuf,
    /// PEM text of the CAs for client certificates; with it clients must show one.
    pub ca_pem: Option<String>,
}

/// Why no bootstrap can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A key of the proxy's configuration has a value that cannot be used.
    #[error("proxy configuration {key} = {value}: {remedy}")]
    Key {
        /// The key.
        key: String,
        /// Its value as JSON.
        value: String,
        /// What to write instead.
        remedy: String,
    },
    /// There is no address of a server.
    #[error("no gRPC address of a server is known: give one with -grpc-addr")]
    NoEndpoint,
    /// Envoy cannot mix socket files with other addresses in one cluster.
    #[error("a unix:// gRPC address must be the only one")]
    MixedEndpoints,
}

impl Error {
    fn key(key: &str, value: &Value, remedy: impl Into<String>) -> Self {
        Self::Key {
            key: key.to_owned(),
            value: value.to_string(),
            remedy: remedy.into(),
        }
    }
}

/// Looks up an environment variable for `$NAME` and `${NAME}` in addresses.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The bootstrap for `options`.
///
/// # Errors
/// An `envoy_*` key with a value that cannot be used, or no usable server address.
pub fn render(options: &Options, lookup: Lookup<'_>) -> Result<Value, Error> {
    let config = ProxyConfig(&options.proxy_config);
    if let Some(template) = config.get("envoy_bootstrap_json_tpl") {
        return Err(Error::key(
            "envoy_bootstrap_json_tpl",
            template,
            "templates are not supported; use envoy_extra_static_clusters_json, envoy_extra_static_listeners_json, \
             envoy_extra_stats_sinks_json, envoy_stats_config_json or envoy_tracing_json",
        ));
    }
    let extra_listeners = config.json_list("envoy_extra_static_listeners_json")?;
    let extra_clusters = config.json_list("envoy_extra_static_clusters_json")?;
    let mut statics = listeners::statics(options, config)?;
    statics.listeners.extend(extra_listeners);
    let mut clusters = vec![control_plane::cluster(&options.control_plane)?];
    clusters.append(&mut statics.clusters);
    clusters.extend(extra_clusters);
    let mut static_resources = json!({ "clusters": clusters });
    set_unless_empty(&mut static_resources, "listeners", statics.listeners);

    let mut bootstrap = json!({
        "admin": admin(options),
        "node": node(&options.node),
        "layered_runtime": layered_runtime(),
        "overload_manager": overload_manager(),
        "static_resources": static_resources,
        "dynamic_resources": control_plane::dynamic_resources(&options.control_plane),
        "stats_config": stats::config(options, config)?,
        "deferred_stat_options": deferred_stats(),
    });
    set_unless_empty(&mut bootstrap, "stats_sinks", stats::sinks(config, lookup)?);
    set(
        &mut bootstrap,
        "stats_flush_interval",
        stats::flush_interval(config)?,
    );
    set(
        &mut bootstrap,
        "tracing",
        config.json("envoy_tracing_json")?,
    );
    Ok(bootstrap)
}

fn admin(options: &Options) -> Value {
    json!({
        "access_log": [{
            "name": "envoy.access_loggers.file",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                "path": options.admin_access_log,
            },
        }],
        "address": socket_address(&options.admin),
    })
}

fn node(node: &Node) -> Value {
    let mut metadata = json!({ "namespace": "default", "partition": "default" });
    if !node.name.is_empty() {
        set(&mut metadata, "node_name", Some(node.name.as_str().into()));
    }
    json!({ "id": node.id, "cluster": node.cluster, "metadata": metadata })
}

fn layered_runtime() -> Value {
    json!({ "layers": [{
        "name": "base",
        "static_layer": { "re2.max_program_size.error_level": MAX_REGEX_PROGRAM_SIZE },
    }]})
}

fn overload_manager() -> Value {
    json!({ "resource_monitors": [{
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            "max_active_downstream_connections": MAX_DOWNSTREAM_CONNECTIONS,
        },
    }]})
}

/// The statistics of a cluster's traffic are made when it first has some. Envoy matches each name with all patterns of
/// `stats_tags`, which made up almost all of its work for a new cluster: 28 ms each, half of it for these.
fn deferred_stats() -> Value {
    json!({ "enable_deferred_creation_stats": true })
}

fn socket_address(address: &SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

/// Sets `key` of the object `target` if there is a value.
fn set(target: &mut Value, key: &str, value: Option<Value>) {
    if let (Some(fields), Some(value)) = (target.as_object_mut(), value) {
        fields.insert(key.to_owned(), value);
    }
}

fn set_unless_empty(target: &mut Value, key: &str, list: Vec<Value>) {
    set(
        target,
        key,
        (!list.is_empty()).then_some(Value::Array(list)),
    );
}

/// Typed access to the proxy's configuration.
#[derive(Debug, Clone, Copy)]
struct ProxyConfig<'a>(&'a Map<String, Value>);

impl<'a> ProxyConfig<'a> {
    /// The value of `key`; null and empty text count as absent.
    fn get(self, key: &str) -> Option<&'a Value> {
        self.0
            .get(key)
            .filter(|value| !value.is_null() && value.as_str() != Some(""))
    }

    fn text(self, key: &str) -> Result<Option<&'a str>, Error> {
        self.get(key)
            .map(|value| {
                value
                    .as_str()
                    .ok_or_else(|| Error::key(key, value, "write a text"))
            })
            .transpose()
    }

    /// The JSON document that is the text of `key`.
    fn json(self, key: &str) -> Result<Option<Value>, Error> {
        let parse = |text: &str| {
            serde_json::from_str(text)
                .map_err(|error| Error::key(key, &text.into(), format!("not valid JSON: {error}")))
        };
        self.text(key)?.map(parse).transpose()
    }

    /// The JSON objects, separated by commas, that are the text of `key`.
    fn json_list(self, key: &str) -> Result<Vec<Value>, Error> {
        let Some(text) = self.text(key)? else {
            return Ok(Vec::new());
        };
        serde_json::from_str(&format!("[{text}]")).map_err(|error| {
            Error::key(
                key,
                &text.into(),
                format!("write JSON objects separated by commas: {error}"),
            )
        })
    }
}

#[cfg(test)]
mod tests;
