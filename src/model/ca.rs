//! Connect CA records. Field names are those of Consul's RPC messages.
#![allow(missing_docs)] // The fields are the wire schema; each type says what it is.

use crate::model::ids::Index;
use crate::model::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// A root certificate that the datacenter trusts. Its `Debug` form hides the key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CaRoot {
    /// Colon-separated SHA-1 of the certificate's DER.
    #[serde(rename = "ID")]
    pub id: String,
    pub name: String,
    pub serial_number: u64,
    #[serde(rename = "SigningKeyID")]
    pub signing_key_id: String,
    pub external_trust_domain: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    pub root_cert: String,
    pub intermediate_certs: Vec<String>,
    pub signing_cert: String,
    pub signing_key: String,
    pub active: bool,
    pub rotated_out_at: Timestamp,
    pub private_key_type: String,
    pub private_key_bits: i64,
    pub create_index: Index,
    pub modify_index: Index,
}

/// Which CA provider runs and how. `cluster_id` is the first label of the trust domain. Its `Debug` form hides the values
/// of the provider's settings, some of which are keys and tokens.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CaConfiguration {
    #[serde(rename = "ClusterID")]
    pub cluster_id: String,
    pub provider: String,
    pub config: BTreeMap<String, Value>,
    pub state: BTreeMap<String, String>,
    pub force_without_cross_signing: bool,
    pub create_index: Index,
    pub modify_index: Index,
}

impl fmt::Debug for CaRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaRoot")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("signing_key", &"<hidden>")
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CaConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaConfiguration")
            .field("cluster_id", &self.cluster_id)
            .field("provider", &self.provider)
            .field("config", &self.config.keys().collect::<Vec<_>>())
            .field("modify_index", &self.modify_index)
            .finish_non_exhaustive()
    }
}

/// What the built-in provider keeps. Its `Debug` form hides the key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CaProviderState {
    #[serde(rename = "ID")]
    pub id: String,
    pub private_key: String,
    pub root_cert: String,
    pub intermediate_cert: String,
    /// Last serial number handed out; strictly increasing for ever.
    pub serial: u64,
    pub create_index: Index,
    pub modify_index: Index,
}

impl fmt::Debug for CaProviderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaProviderState")
            .field("id", &self.id)
            .field("private_key", &"<hidden>")
            .field("serial", &self.serial)
            .finish_non_exhaustive()
    }
}

/// A signed leaf certificate. Its `Debug` form hides the key.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct IssuedCert {
    pub serial_number: String,
    #[serde(rename = "CertPEM")]
    pub cert_pem: String,
    #[serde(rename = "PrivateKeyPEM")]
    pub private_key_pem: String,
    pub service: String,
    #[serde(rename = "ServiceURI")]
    pub service_uri: String,
    pub agent: String,
    #[serde(rename = "AgentURI")]
    pub agent_uri: String,
    pub valid_after: Timestamp,
    pub valid_before: Timestamp,
    pub create_index: Index,
    pub modify_index: Index,
}

impl fmt::Debug for IssuedCert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedCert")
            .field("serial_number", &self.serial_number)
            .field("service_uri", &self.service_uri)
            .field("private_key_pem", &"<hidden>")
            .finish_non_exhaustive()
    }
}
