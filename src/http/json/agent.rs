//! What the agent shows: its services differ from those of the catalog in what is left out.

use crate::api::agent::{Member, ServiceHealth};
use crate::http::json::catalog::{ConnectView, ProxyView};
use crate::http::json::{NilList, is_empty, no_pairs};
use crate::model::catalog::StringMap;
use crate::model::{
    CheckStatus, HealthCheck, IssuedCert, NodeService, ServiceAddress, ServiceKind, Timestamp,
    Weights,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A local service.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct AgentServiceView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    kind: &'a str,
    #[serde(rename = "ID")]
    id: &'a str,
    service: &'a str,
    tags: &'a [String],
    meta: &'a StringMap,
    port: u16,
    address: &'a str,
    #[serde(skip_serializing_if = "no_pairs")]
    tagged_addresses: &'a BTreeMap<String, ServiceAddress>,
    weights: Weights,
    enable_tag_override: bool,
    #[serde(skip_serializing_if = "is_empty")]
    content_hash: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    proxy: Option<ProxyView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<ConnectView>,
}

impl<'a> AgentServiceView<'a> {
    /// The view of a service; an empty hash is left out.
    pub fn new(s: &'a NodeService, hash: &'a str) -> Self {
        Self {
            kind: s.kind.as_str(),
            id: s.id.as_str(),
            service: s.service.as_str(),
            tags: &s.tags,
            meta: &s.meta,
            port: s.port,
            address: &s.address,
            tagged_addresses: &s.tagged_addresses,
            weights: s.weights.unwrap_or_default(),
            enable_tag_override: s.enable_tag_override,
            content_hash: hash,
            proxy: (s.kind != ServiceKind::Typical).then(|| (&s.proxy).into()),
            connect: s.connect.native.then(|| (&s.connect).into()),
        }
    }
}

/// The definition of a check under `/v1/agent/health`, where it shows every field and none of them set.
#[derive(Default, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BlankDefinition {
    interval: &'static str,
    timeout: &'static str,
    deregister_critical_service_after: &'static str,
    #[serde(rename = "HTTP")]
    http: &'static str,
    header: Option<()>,
    method: &'static str,
    body: &'static str,
    #[serde(rename = "TLSSkipVerify")]
    tls_skip_verify: bool,
    #[serde(rename = "TCP")]
    tcp: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct HealthCheckView<'a> {
    node: &'a str,
    #[serde(rename = "CheckID")]
    check_id: &'a str,
    name: &'a str,
    status: &'static str,
    notes: &'a str,
    output: &'a str,
    #[serde(rename = "ServiceID")]
    service_id: &'a str,
    service_name: &'a str,
    service_tags: NilList<'a, String>,
    #[serde(rename = "Type")]
    kind: &'static str,
    definition: BlankDefinition,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a HealthCheck> for HealthCheckView<'a> {
    fn from(c: &'a HealthCheck) -> Self {
        Self {
            node: c.node.as_str(),
            check_id: c.check_id.as_str(),
            name: &c.name,
            status: c.status.as_str(),
            notes: &c.notes,
            output: &c.output,
            service_id: c.service_id.as_str(),
            service_name: c.service_name.as_str(),
            service_tags: NilList(&c.service_tags),
            kind: "",
            definition: BlankDefinition {
                interval: "0s",
                timeout: "0s",
                deregister_critical_service_after: "0s",
                ..BlankDefinition::default()
            },
            create_index: c.create_index,
            modify_index: c.modify_index,
        }
    }
}

/// A local service with its checks, or that there is none.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceHealthView<'a> {
    aggregated_status: &'static str,
    service: Option<AgentServiceView<'a>>,
    checks: Option<Vec<HealthCheckView<'a>>>,
}

impl<'a> ServiceHealthView<'a> {
    /// The view of a service's health. A service that does not exist is critical.
    pub fn of(health: Option<&'a ServiceHealth>) -> Self {
        let checks = health.map(|h| h.checks.iter().map(|c| (&**c).into()).collect());
        Self {
            aggregated_status: health.map_or(CheckStatus::Critical, |h| h.status).as_str(),
            service: health.map(|h| AgentServiceView::new(&h.service, "")),
            checks: checks.filter(|checks: &Vec<_>| !checks.is_empty()),
        }
    }
}

/// A member.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MemberView<'a> {
    name: &'a str,
    addr: &'a str,
    port: u16,
    tags: &'a StringMap,
    status: u8,
    protocol_min: u8,
    protocol_max: u8,
    protocol_cur: u8,
    delegate_min: u8,
    delegate_max: u8,
    delegate_cur: u8,
}

impl<'a> From<&'a Member> for MemberView<'a> {
    fn from(m: &'a Member) -> Self {
        let [protocol_min, protocol_max, protocol_cur] = m.protocol;
        let [delegate_min, delegate_max, delegate_cur] = m.delegate;
        Self {
            name: &m.name,
            addr: &m.address,
            port: m.port,
            tags: &m.tags,
            status: m.status,
            protocol_min,
            protocol_max,
            protocol_cur,
            delegate_min,
            delegate_max,
            delegate_cur,
        }
    }
}

/// What the agent tells about itself.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct SelfView<'a> {
    /// Names and versions.
    pub config: Value,
    /// Settings.
    pub debug_config: BTreeMap<String, Value>,
    /// The own member.
    pub member: MemberView<'a>,
    /// Figures.
    pub stats: BTreeMap<&'static str, StringMap>,
    /// The node's metadata.
    pub meta: StringMap,
    /// Ports and versions of xDS.
    #[serde(rename = "xDS")]
    pub xds: Value,
}

/// A leaf certificate with its key: the one answer that holds a secret, made for the service that asks.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LeafView<'a> {
    serial_number: &'a str,
    #[serde(rename = "CertPEM")]
    cert_pem: &'a str,
    #[serde(rename = "PrivateKeyPEM")]
    private_key_pem: &'a str,
    service: &'a str,
    #[serde(rename = "ServiceURI")]
    service_uri: &'a str,
    valid_after: Timestamp,
    valid_before: Timestamp,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a IssuedCert> for LeafView<'a> {
    fn from(c: &'a IssuedCert) -> Self {
        Self {
            serial_number: &c.serial_number,
            cert_pem: &c.cert_pem,
            private_key_pem: &c.private_key_pem,
            service: &c.service,
            service_uri: &c.service_uri,
            valid_after: c.valid_after,
            valid_before: c.valid_before,
            create_index: c.create_index,
            modify_index: c.modify_index,
        }
    }
}
