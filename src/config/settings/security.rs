//! TLS, the mesh's CA, federation and access control.

use crate::discovery::Source;
use serde_json::Value as Json;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Certificates and what they are demanded for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// File with CA certificates.
    pub ca_file: Option<PathBuf>,
    /// Directory with CA certificates.
    pub ca_path: Option<PathBuf>,
    /// File with this server's certificate chain.
    pub cert_file: Option<PathBuf>,
    /// File with its private key.
    pub key_file: Option<PathBuf>,
    /// Whether clients of the RPC port need a certificate (`verify_incoming` or `verify_incoming_rpc`).
    pub verify_incoming_rpc: bool,
    /// Whether clients of HTTPS need a certificate (`verify_incoming` or `verify_incoming_https`).
    pub verify_incoming_https: bool,
    /// Whether servers that are dialled need a certificate (`verify_outgoing` or `verify_server_hostname`).
    pub verify_outgoing: bool,
    /// Whether that certificate must name `server.<datacenter>.<domain>`.
    pub verify_server_hostname: bool,
    /// Lowest version that is spoken.
    pub min_version: TlsVersion,
    /// Cipher suites by their Go names; empty is the default set.
    pub cipher_suites: Vec<String>,
}

impl Tls {
    /// Whether a certificate and its key are configured.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.cert_file.is_some() && self.key_file.is_some()
    }

    /// Whether a CA is configured.
    #[must_use]
    pub fn has_ca(&self) -> bool {
        self.ca_file.is_some() || self.ca_path.is_some()
    }
}

/// Lowest TLS version. 1.0 and 1.1 can be configured, but 1.2 is spoken then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// The mesh.
#[derive(Clone, PartialEq)]
pub struct Connect {
    /// Whether the CA and xDS serve (`connect.enabled`).
    pub enabled: bool,
    /// CA provider: `consul` (built in), `vault` or `aws-pca`.
    pub ca_provider: String,
    /// The provider's settings with camel-case keys (`LeafCertTTL`), as its API has them.
    pub ca_config: serde_json::Map<String, Json>,
}

/// The provider's settings may hold private keys: only their names are shown.
impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect")
            .field("enabled", &self.enabled)
            .field("ca_provider", &self.ca_provider)
            .field("ca_config", &self.ca_config.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// Federation through mesh gateways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Federation {
    /// Whether servers of other datacenters are reached through gateways.
    pub through_gateways: bool,
    /// Addresses or discovery strings of the primary's gateways.
    pub primary_gateways: Vec<Source>,
    /// Time between discoveries of them, at least 1 s.
    pub primary_gateways_interval: Duration,
    /// Whether a secondary may not fall back to dialling the primary's gateways itself.
    pub disable_primary_gateway_fallback: bool,
}

/// Access control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    /// Whether tokens are looked at.
    pub enabled: bool,
    /// Whether what no rule names is allowed.
    pub default_allow: bool,
    /// What to do when the primary cannot be asked: `allow`, `deny`, `extend-cache` or `async-cache`.
    pub down_policy: String,
    /// Longest use of a resolved token.
    pub token_ttl: Duration,
    /// Longest use of a resolved policy.
    pub policy_ttl: Duration,
    /// Longest use of a resolved role.
    pub role_ttl: Duration,
    /// How long a client takes ACLs as switched off.
    pub disabled_ttl: Duration,
    /// Whether tokens are replicated from the primary.
    pub enable_token_replication: bool,
    /// Whether listing keys needs `key_prefix` list rules.
    pub enable_key_list_policy: bool,
    /// Whether agent tokens set over HTTP are written to disk.
    pub enable_token_persistence: bool,
    /// Tokens of this server.
    pub tokens: AclTokens,
}

/// Tokens of this server. Never logged.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AclTokens {
    /// Initial management token.
    pub master: Option<String>,
    /// For the server's own work.
    pub agent: Option<String>,
    /// For this server's agent endpoints when the primary cannot be asked.
    pub agent_master: Option<String>,
    /// For requests without a token.
    pub default: Option<String>,
    /// For replication from the primary.
    pub replication: Option<String>,
}

impl fmt::Debug for AclTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |token: &Option<String>| token.as_ref().map(|_| "hidden");
        f.debug_struct("AclTokens")
            .field("master", &set(&self.master))
            .field("agent", &set(&self.agent))
            .field("agent_master", &set(&self.agent_master))
            .field("default", &set(&self.default))
            .field("replication", &set(&self.replication))
            .finish()
    }
}
