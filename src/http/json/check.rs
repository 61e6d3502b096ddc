//! Checks.

use crate::http::json::catalog::{TagList, Tags};
use crate::http::json::{is_empty, is_zero, no_items, no_pairs};
use crate::model::{GoDuration, HealthCheck, HealthCheckDefinition};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

fn text<S: Serializer>(duration: &GoDuration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(duration)
}

/// What a check does. Fields that are not set are left out.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct DefinitionView<'a> {
    #[serde(serialize_with = "text", skip_serializing_if = "is_zero")]
    interval: GoDuration,
    #[serde(skip_serializing_if = "is_zero")]
    output_max_size: u64,
    #[serde(serialize_with = "text", skip_serializing_if = "is_zero")]
    timeout: GoDuration,
    #[serde(serialize_with = "text", skip_serializing_if = "is_zero")]
    deregister_critical_service_after: GoDuration,
    #[serde(rename = "HTTP", skip_serializing_if = "is_empty")]
    http: &'a str,
    #[serde(rename = "TLSSkipVerify", skip_serializing_if = "is_zero")]
    tls_skip_verify: bool,
    #[serde(skip_serializing_if = "no_pairs")]
    header: &'a BTreeMap<String, Vec<String>>,
    #[serde(skip_serializing_if = "is_empty")]
    method: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    body: &'a str,
    #[serde(rename = "TCP", skip_serializing_if = "is_empty")]
    tcp: &'a str,
    #[serde(skip_serializing_if = "no_items")]
    script_args: &'a [String],
    #[serde(rename = "DockerContainerID", skip_serializing_if = "is_empty")]
    docker_container_id: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    shell: &'a str,
    #[serde(rename = "GRPC", skip_serializing_if = "is_empty")]
    grpc: &'a str,
    #[serde(rename = "GRPCUseTLS", skip_serializing_if = "is_zero")]
    grpc_use_tls: bool,
    #[serde(skip_serializing_if = "is_empty")]
    alias_node: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    alias_service: &'a str,
    #[serde(
        rename = "TTL",
        serialize_with = "text",
        skip_serializing_if = "is_zero"
    )]
    ttl: GoDuration,
}

impl<'a> From<&'a HealthCheckDefinition> for DefinitionView<'a> {
    fn from(d: &'a HealthCheckDefinition) -> Self {
        Self {
            interval: d.interval,
            output_max_size: d.output_max_size,
            timeout: d.timeout,
            deregister_critical_service_after: d.deregister_critical_service_after,
            http: &d.http,
            tls_skip_verify: d.tls_skip_verify,
            header: &d.header,
            method: &d.method,
            body: &d.body,
            tcp: &d.tcp,
            script_args: &d.script_args,
            docker_container_id: &d.docker_container_id,
            shell: &d.shell,
            grpc: &d.grpc,
            grpc_use_tls: d.grpc_use_tls,
            alias_node: &d.alias_node,
            alias_service: &d.alias_service,
            ttl: d.ttl,
        }
    }
}

/// A check as every endpoint shows it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CheckView<'a> {
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
    service_tags: TagList<'a>,
    #[serde(rename = "Type")]
    kind: &'a str,
    definition: DefinitionView<'a>,
    create_index: u64,
    modify_index: u64,
}

impl<'a> CheckView<'a> {
    /// The view of a check.
    pub fn new(c: &'a HealthCheck, tags: Tags) -> Self {
        Self {
            node: c.node.as_str(),
            check_id: c.check_id.as_str(),
            name: &c.name,
            status: c.status.as_str(),
            notes: &c.notes,
            output: &c.output,
            service_id: c.service_id.as_str(),
            service_name: c.service_name.as_str(),
            service_tags: tags.of(&c.service_tags),
            kind: &c.kind,
            definition: (&c.definition).into(),
            create_index: c.create_index,
            modify_index: c.modify_index,
        }
    }
}
