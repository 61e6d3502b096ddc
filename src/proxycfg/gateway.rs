//! What one gateway's registration says: on which addresses it listens, and its options.

use crate::model::{NodeService, ProxyDefaults, ServiceAddress};
use crate::proxycfg::options::{GatewayOptions, Opaque, member, whole_number};
use serde_json::Value;
use std::net::IpAddr;

/// One address on which a gateway listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// `default`, the tag of a tagged address, or the key in the configuration.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// The port, never 0.
    pub port: u16,
}

/// The facts of one gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// What shapes its clusters.
    pub options: GatewayOptions,
    /// Where it listens, each address and port once: the default, then tagged addresses, then configured ones, by name.
    pub binds: Vec<Bind>,
    /// What was ignored in its registration, and why.
    pub warnings: Vec<String>,
}

impl Gateway {
    /// Reads a registration, over the defaults of all proxies.
    pub fn of(service: &NodeService, defaults: Option<&ProxyDefaults>) -> Self {
        let mut opaque = Opaque::new(&service.proxy.config, defaults);
        let options = GatewayOptions::read(&mut opaque, service.exposes_servers());
        let binds = binds(service, &mut opaque);
        Self {
            options,
            binds,
            warnings: opaque.into_warnings(),
        }
    }
}

fn binds(service: &NodeService, opaque: &mut Opaque<'_>) -> Vec<Bind> {
    let mut given: Vec<(String, ServiceAddress)> = Vec::new();
    if !either(opaque, "no_default_bind") {
        let default = ServiceAddress {
            address: match service.address.as_str() {
                "" => "0.0.0.0".to_owned(),
                address => address.to_owned(),
            },
            port: service.port,
        };
        given.push(("default".to_owned(), default));
    }
    if either(opaque, "bind_tagged_addresses") {
        let tagged = service.tagged_addresses.iter();
        given.extend(tagged.map(|(tag, address)| (tag.clone(), address.clone())));
    }
    given.extend(configured(opaque));
    let mut binds: Vec<Bind> = Vec::new();
    for (name, at) in given {
        match bind(&name, &at) {
            Err(warning) => opaque.warn(warning),
            Ok(bind) => {
                let same = |b: &Bind| (b.address, b.port) == (bind.address, bind.port);
                if !binds.iter().any(same) {
                    binds.push(bind);
                }
            }
        }
    }
    binds
}

/// A flag under its name, or the name it had when there were only mesh gateways.
fn either(opaque: &mut Opaque<'_>, key: &str) -> bool {
    opaque.flag(&format!("envoy_gateway_{key}"))
        || opaque.flag(&format!("envoy_mesh_gateway_{key}"))
}

fn configured(opaque: &mut Opaque<'_>) -> Vec<(String, ServiceAddress)> {
    let key = "envoy_gateway_bind_addresses";
    let old = "envoy_mesh_gateway_bind_addresses";
    let Some(value) = opaque.get(key).or_else(|| opaque.get(old)) else {
        return Vec::new();
    };
    let Some(entries) = value.as_object() else {
        opaque.wrong(key, value, "a map from names to { address, port }");
        return Vec::new();
    };
    let address = |entry: &Value| {
        let port = member(entry, "port").and_then(whole_number).unwrap_or(0);
        Some(ServiceAddress {
            address: member(entry, "address")?.as_str()?.to_owned(),
            port: u16::try_from(port).ok()?,
        })
    };
    let mut found = Vec::new();
    for (name, entry) in entries {
        match address(entry) {
            Some(at) => found.push((name.clone(), at)),
            None => {
                let expected = "an object with an address and a port from 1 to 65535";
                opaque.wrong(&format!("{key}.{name}"), entry, expected);
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found
}

fn bind(name: &str, at: &ServiceAddress) -> Result<Bind, String> {
    let text = at.address.as_str();
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let address: IpAddr = inner.unwrap_or(text).parse().map_err(|_| {
        format!(
            "bind {name:?} is left out: {text:?} is not an IP address; give one of this machine in \
             envoy_gateway_bind_addresses and set envoy_gateway_no_default_bind"
        )
    })?;
    if at.port == 0 {
        return Err(format!("bind {name:?} is left out: its port is 0"));
    }
    Ok(Bind {
        name: name.to_owned(),
        address,
        port: at.port,
    })
}
