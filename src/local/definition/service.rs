//! A service's definition.

use crate::local::checks::Limits;
use crate::local::definition::check::CheckDefinition;
use crate::local::definition::decode::{self, DecodeError};
use crate::local::definition::{DefinitionError, validate};
use crate::model::catalog::CONSUL_SERVICE;
use crate::model::catalog::{ExposeConfig, ExposePath};
use crate::model::{
    ConnectProxyConfig, MeshGatewayConfig, NodeService, Secret, ServiceAddress, ServiceKind,
    Upstream, Weights,
};
use serde_json::Value;
use std::net::IpAddr;

/// Whether a definition asks for a sidecar of the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sidecar {
    /// It does not.
    #[default]
    None,
    /// It does.
    Wanted,
    /// It does, and the sidecar's definition asks for a sidecar of the sidecar.
    Nested,
}

/// A service as somebody asked for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceDefinition {
    /// The instance; its id is the name unless given.
    pub service: NodeService,
    /// Its checks, in order.
    pub checks: Vec<CheckDefinition>,
    /// Token to write it with.
    pub token: Secret,
    /// Whether a sidecar is asked for.
    pub sidecar: Sidecar,
}

impl ServiceDefinition {
    /// Reads a definition. Nothing is judged yet but its form.
    ///
    /// # Errors
    /// An unknown key or a value of a wrong type.
    pub fn parse(value: &Value) -> Result<Self, DefinitionError> {
        let mut out = Self::default();
        let (mut single, mut several) = (None, Vec::new());
        decode::each(value, "", |key, value| {
            match key {
                "check" => single = (!value.is_null()).then_some(value),
                "checks" => {
                    several = decode::list(value, "Checks", "structs.CheckTypes", |item| {
                        Ok(item.clone())
                    })?;
                }
                "token" => out.token = decode::text(value, "Token")?.into(),
                "connect" => out.connect(value)?,
                _ => return field(&mut out.service, key, value),
            }
            Ok(true)
        })?;
        for (value, field) in single
            .into_iter()
            .map(|v| (v, "Check"))
            .chain(several.iter().map(|v| (v, "Checks")))
        {
            out.checks.push(CheckDefinition::parse_in(value, field)?);
        }
        if out.service.id.is_empty() {
            out.service.id = out.service.service.as_str().into();
        }
        out.service.weights.get_or_insert_default();
        Ok(out)
    }

    fn connect(&mut self, value: &Value) -> Result<(), DecodeError> {
        let at = "Connect";
        decode::each(value, at, |key, value| {
            match key {
                "native" => self.service.connect.native = decode::flag(value, at)?,
                "sidecarservice" if value.is_null() => {}
                "sidecarservice" => {
                    let nested = value
                        .as_object()
                        .into_iter()
                        .flatten()
                        .filter(|(key, _)| key.eq_ignore_ascii_case("connect"))
                        .filter_map(|(_, connect)| connect.as_object())
                        .flatten()
                        .any(|(key, value)| {
                            key.replace('_', "").eq_ignore_ascii_case("sidecarservice")
                                && !value.is_null()
                        });
                    self.sidecar = if nested {
                        Sidecar::Nested
                    } else {
                        Sidecar::Wanted
                    };
                }
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    /// All rules, in Consul's order.
    ///
    /// # Errors
    /// The first rule broken, in Consul's words.
    pub fn validate(&self, limits: Limits) -> Result<(), DefinitionError> {
        let service = &self.service;
        if service.service.is_empty() {
            return Err(DefinitionError::invalid("Missing service name"));
        }
        if service.id.as_str().eq_ignore_ascii_case(CONSUL_SERVICE) {
            return Err(DefinitionError::invalid(format!(
                "Service id {:?} is reserved: the servers register themselves under it; choose another ID",
                service.id.as_str()
            )));
        }
        let address: Option<IpAddr> = service.address.parse().ok();
        if address.is_some_and(|ip| ip.is_unspecified()) {
            return Err(DefinitionError::invalid("Invalid service address"));
        }
        if let Some(weights) = service.weights {
            validate::weights(weights)?;
        }
        validate::service_meta(&service.kind, &service.meta)
            .map_err(|e| DefinitionError::invalid(format!("Invalid Service Meta: {e}")))?;
        validate::service_rules(service, self.sidecar)?;
        for check in &self.checks {
            check.plan(limits)?;
        }
        if self.sidecar == Sidecar::Wanted {
            return Err(DefinitionError::invalid(
                "Invalid SidecarService: this server does not register sidecars along with their service yet: register \
                 it as a service of its own with Kind \"connect-proxy\"",
            ));
        }
        Ok(())
    }

    /// Fills in what the agent adds: the IP addresses by family, for those who ask for one.
    pub fn complete(&mut self) {
        let service = &mut self.service;
        let names = match service.address.parse() {
            Ok(IpAddr::V4(_)) => ["lan_ipv4", "wan_ipv4"],
            Ok(IpAddr::V6(_)) => ["lan_ipv6", "wan_ipv6"],
            Err(_) => return,
        };
        let own = ServiceAddress {
            address: service.address.clone(),
            port: service.port,
        };
        for name in names {
            service
                .tagged_addresses
                .entry(name.to_owned())
                .or_insert_with(|| own.clone());
        }
    }
}

fn field(service: &mut NodeService, key: &str, value: &Value) -> Result<bool, DecodeError> {
    match key {
        "kind" => service.kind = ServiceKind::from(decode::text(value, "Kind")?.as_str()),
        "id" => service.id = decode::text(value, "ID")?.into(),
        "name" => service.service = decode::text(value, "Name")?.into(),
        "tags" => service.tags = decode::texts(value, "Tags")?,
        "address" => service.address = decode::text(value, "Address")?,
        "taggedaddresses" => {
            service.tagged_addresses = decode::map(
                value,
                "TaggedAddresses",
                "map[string]structs.ServiceAddress",
                address,
            )?;
        }
        "meta" => service.meta = decode::text_map(value, "Meta")?,
        "port" => service.port = decode::port(value, "Port")?,
        "weights" => service.weights = weights(value)?,
        "enabletagoverride" => {
            service.enable_tag_override = decode::flag(value, "EnableTagOverride")?;
        }
        "proxy" => service.proxy = proxy(value)?,
        // The open edition has one namespace; clients may name it.
        "namespace" => match decode::text(value, "Namespace")?.as_str() {
            "" | "default" => {}
            _ => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

fn address(value: &Value) -> Result<ServiceAddress, DecodeError> {
    let (at, mut out) = ("TaggedAddresses", ServiceAddress::default());
    decode::each(value, at, |key, value| {
        match key {
            "address" => out.address = decode::text(value, at)?,
            "port" => out.port = decode::port(value, at)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(out)
}

fn weights(value: &Value) -> Result<Option<Weights>, DecodeError> {
    if value.is_null() {
        return Ok(None);
    }
    let at = "Weights";
    let mut out = Weights {
        passing: 0,
        warning: 0,
    };
    decode::each(value, at, |key, value| {
        match key {
            "passing" => out.passing = decode::number(value, at)?,
            "warning" => out.warning = decode::number(value, at)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(Some(out))
}

fn proxy(value: &Value) -> Result<ConnectProxyConfig, DecodeError> {
    let (at, mut out) = ("Proxy", ConnectProxyConfig::default());
    decode::each(value, at, |key, value| {
        match key {
            "destinationservicename" => {
                out.destination_service_name = decode::text(value, at)?.into();
            }
            "destinationserviceid" => out.destination_service_id = decode::text(value, at)?.into(),
            "localserviceaddress" => out.local_service_address = decode::text(value, at)?,
            "localserviceport" => out.local_service_port = decode::port(value, at)?,
            "config" => out.config = decode::open_map(value, at)?,
            "upstreams" => {
                out.upstreams = decode::list(value, at, "structs.Upstreams", upstream)?;
            }
            "meshgateway" => out.mesh_gateway = mesh_gateway(value, at)?,
            "expose" => out.expose = expose(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(out)
}

fn mesh_gateway(value: &Value, at: &'static str) -> Result<MeshGatewayConfig, DecodeError> {
    let mut out = MeshGatewayConfig::default();
    decode::each(value, at, |key, value| {
        match key {
            "mode" => out.mode = decode::text(value, at)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(out)
}

fn upstream(value: &Value) -> Result<Upstream, DecodeError> {
    let (at, mut out) = ("Proxy", Upstream::default());
    decode::each(value, at, |key, value| {
        match key {
            "destinationtype" => out.destination_type = decode::text(value, at)?,
            "destinationnamespace" => out.destination_namespace = decode::text(value, at)?,
            "destinationname" => out.destination_name = decode::text(value, at)?,
            "datacenter" => out.datacenter = decode::text(value, at)?,
            "localbindaddress" => out.local_bind_address = decode::text(value, at)?,
            "localbindport" => out.local_bind_port = decode::port(value, at)?,
            "config" => out.config = decode::open_map(value, at)?,
            "meshgateway" => out.mesh_gateway = mesh_gateway(value, at)?,
            "ingresshosts" => out.ingress_hosts = decode::texts(value, at)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if out.destination_type.is_empty() {
        out.destination_type = "service".to_owned();
    }
    Ok(out)
}

fn expose(value: &Value) -> Result<ExposeConfig, DecodeError> {
    let (at, mut out) = ("Proxy", ExposeConfig::default());
    decode::each(value, at, |key, value| {
        match key {
            "checks" => out.checks = decode::flag(value, at)?,
            "paths" => out.paths = decode::list(value, at, "[]structs.ExposePath", expose_path)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(out)
}

fn expose_path(value: &Value) -> Result<ExposePath, DecodeError> {
    let (at, mut out) = ("Proxy", ExposePath::default());
    decode::each(value, at, |key, value| {
        match key {
            "listenerport" => out.listener_port = decode::port(value, at)?,
            "path" => out.path = decode::text(value, at)?,
            "localpathport" => out.local_path_port = decode::port(value, at)?,
            "protocol" => out.protocol = decode::text(value, at)?,
            "parsedfromcheck" => out.parsed_from_check = decode::flag(value, at)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(out)
}
