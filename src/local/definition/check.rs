//! A check's definition.

use crate::local::checks::{Limits, Plan};
use crate::local::definition::DefinitionError;
use crate::local::definition::decode::{self, DecodeError};
use crate::model::check::SERF_HEALTH;
use crate::model::{CheckId, CheckStatus, HealthCheckDefinition, Secret, ServiceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A check as somebody asked for it. The serde form is that of the data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckDefinition {
    /// The check's id; empty until one is made.
    pub id: CheckId,
    /// The name people see.
    pub name: String,
    /// Text for people.
    pub notes: String,
    /// The status to begin with; critical when not given.
    pub status: Option<CheckStatus>,
    /// The service instance it belongs to; empty for a check of the node.
    pub service_id: ServiceId,
    /// Token to write it with.
    pub token: Secret,
    /// How many successes in a row make it passing; 0 counts as 1.
    pub success_before_passing: u32,
    /// How many failures in a row make it critical; 0 counts as 1.
    pub failures_before_critical: u32,
    /// How it is run.
    pub run: HealthCheckDefinition,
}

impl CheckDefinition {
    /// Reads a definition. Nothing is judged yet but its form and its status.
    ///
    /// # Errors
    /// An unknown key, a value of a wrong type, or a status that does not exist.
    pub fn parse(value: &Value) -> Result<Self, DefinitionError> {
        Self::parse_in(value, "")
    }

    /// As [`CheckDefinition::parse`], inside another object whose key `field` errors name.
    pub(super) fn parse_in(value: &Value, field: &'static str) -> Result<Self, DefinitionError> {
        let (mut out, mut status) = (Self::default(), String::new());
        decode::each(value, field, |key, value| {
            let at = |own| if field.is_empty() { own } else { field };
            match key {
                "id" | "checkid" => out.id = decode::text(value, at("ID"))?.into(),
                "name" => out.name = decode::text(value, at("Name"))?,
                "notes" => out.notes = decode::text(value, at("Notes"))?,
                "status" => status = decode::text(value, at("Status"))?,
                "serviceid" => out.service_id = decode::text(value, at("ServiceID"))?.into(),
                "token" => out.token = decode::text(value, at("Token"))?.into(),
                "successbeforepassing" => {
                    out.success_before_passing = decode::count(value, at("SuccessBeforePassing"))?;
                }
                "failuresbeforecritical" => {
                    out.failures_before_critical =
                        decode::count(value, at("FailuresBeforeCritical"))?;
                }
                // How sidecars expose a check's path; they come with sidecars.
                "proxyhttp" | "proxygrpc" => {}
                _ => return how(&mut out.run, key, value, field),
            }
            Ok(true)
        })?;
        out.status = initial(&status, field.is_empty())?;
        Ok(out)
    }

    /// What has to be done, if the definition makes sense.
    ///
    /// # Errors
    /// It contradicts itself or wants what is not supported; the text begins as Consul's does.
    pub fn plan(&self, limits: Limits) -> Result<Plan, DefinitionError> {
        Plan::of(&self.run, limits)
            .map_err(|e| DefinitionError::invalid(format!("Invalid check: {e}")))
    }

    /// Rules for a check that stands alone.
    ///
    /// # Errors
    /// Consul's texts, and one for the reserved id of the check that says whether this server is alive.
    pub fn validate(&self, limits: Limits) -> Result<(), DefinitionError> {
        if self.name.is_empty() {
            return Err(DefinitionError::invalid("Missing check name"));
        }
        let id = if self.id.is_empty() {
            self.name.as_str()
        } else {
            self.id.as_str()
        };
        if id.eq_ignore_ascii_case(SERF_HEALTH) {
            return Err(DefinitionError::invalid(format!(
                "Check id {id:?} is reserved: it says whether this server is alive; choose another ID"
            )));
        }
        self.plan(limits).map(|_| ())
    }
}

fn initial(status: &str, alone: bool) -> Result<Option<CheckStatus>, DefinitionError> {
    match status.parse() {
        Ok(CheckStatus::Maintenance) | Err(_) if !status.is_empty() => {
            Err(DefinitionError::invalid(if alone {
                "Bad check status"
            } else {
                "Status for checks must 'passing', 'warning', 'critical'"
            }))
        }
        Ok(status) => Ok(Some(status)),
        Err(_) => Ok(None),
    }
}

/// The keys that say how a check is run.
fn how(
    run: &mut HealthCheckDefinition,
    key: &str,
    value: &Value,
    field: &'static str,
) -> Result<bool, DecodeError> {
    let at = |own| if field.is_empty() { own } else { field };
    match key {
        "http" => run.http = decode::text(value, at("HTTP"))?,
        "header" => run.header = header(value, at("Header"))?,
        "method" => run.method = decode::text(value, at("Method"))?,
        "body" => run.body = decode::text(value, at("Body"))?,
        "tlsskipverify" => run.tls_skip_verify = decode::flag(value, at("TLSSkipVerify"))?,
        "tcp" => run.tcp = decode::text(value, at("TCP"))?,
        "interval" => run.interval = decode::duration(value, at("Interval"))?,
        "timeout" => run.timeout = decode::duration(value, at("Timeout"))?,
        "ttl" => run.ttl = decode::duration(value, at("TTL"))?,
        "deregistercriticalserviceafter" => {
            run.deregister_critical_service_after =
                decode::duration(value, at("DeregisterCriticalServiceAfter"))?;
        }
        "outputmaxsize" => {
            let size = decode::number(value, at("OutputMaxSize"))?;
            run.output_max_size = u64::try_from(size).map_err(|_| DecodeError::Type {
                found: format!("number {size}"),
                field: at("OutputMaxSize"),
                wanted: "positive int",
            })?;
        }
        "args" | "scriptargs" => run.script_args = decode::texts(value, at("ScriptArgs"))?,
        "dockercontainerid" => {
            run.docker_container_id = decode::text(value, at("DockerContainerID"))?;
        }
        "shell" => run.shell = decode::text(value, at("Shell"))?,
        "grpc" => run.grpc = decode::text(value, at("GRPC"))?,
        "grpcusetls" => run.grpc_use_tls = decode::flag(value, at("GRPCUseTLS"))?,
        "aliasnode" => run.alias_node = decode::text(value, at("AliasNode"))?,
        "aliasservice" => run.alias_service = decode::text(value, at("AliasService"))?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Values are lists; a single text counts as a list of one.
fn header(
    value: &Value,
    field: &'static str,
) -> Result<BTreeMap<String, Vec<String>>, DecodeError> {
    decode::map(value, field, "map[string][]string", |item| match item {
        Value::String(text) => Ok(vec![text.clone()]),
        other => decode::texts(other, field),
    })
}
