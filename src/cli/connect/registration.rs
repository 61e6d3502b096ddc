//! What `-register` puts into the catalog: the gateway as a node of its own, with a check that the servers run.

use crate::cli::connect::address::HostPort;
use crate::cli::connect::plan::MESH_GATEWAY;
use crate::cli::connect::plan::RegisterPlan;
use crate::model::catalog::META_WAN_FEDERATION;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use std::net::IpAddr;

/// How often the servers try the gateway's port.
const CHECK_INTERVAL: &str = "10s";
/// How long they wait for it to accept; a port inside the datacenter answers in milliseconds.
const CHECK_TIMEOUT: &str = "3s";

/// Why a gateway cannot be registered with these addresses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RegistrationError {
    #[error(
        "The LAN address {0:?} will not be bindable. Either set a bindable address or override the bind addresses with -bind-address"
    )]
    NotBindable(String),
}

/// The names and addresses of a registration.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// Catalog node.
    pub(crate) node: String,
    /// Service id.
    pub(crate) id: String,
    /// Service name.
    pub(crate) service: String,
    /// Address of the node, for a gateway without a LAN address of its own.
    pub(crate) node_address: IpAddr,
}

/// Body of `PUT /v1/catalog/register`. `local` are this host's addresses.
pub(crate) fn payload(
    plan: &RegisterPlan,
    names: &Names,
    local: &[IpAddr],
) -> Result<Value, RegistrationError> {
    let lan = HostPort {
        host: match plan.lan.host.as_str() {
            "" => names.node_address.to_string(),
            host => host.to_owned(),
        },
        port: plan.lan.port,
    };
    let mut service = json!({
        "Kind": MESH_GATEWAY,
        "ID": names.id,
        "Service": names.service,
        "Address": plan.lan.host,
        "Port": plan.lan.port,
    });
    let mut set = |key: &str, value: Value| {
        if let Some(fields) = service.as_object_mut() {
            fields.insert(key.to_owned(), value);
        }
    };
    let tagged = tagged_addresses(plan);
    if !tagged.is_empty() {
        set("TaggedAddresses", tagged.into());
    }
    if plan.expose_servers {
        set("Meta", json!({ META_WAN_FEDERATION: "1" }));
    }
    if let Some(config) = bind_config(plan, local)? {
        set("Proxy", json!({ "Config": config }));
    }
    Ok(json!({
        "Node": names.node,
        "Address": lan.host,
        "Service": service,
        "Check": check(plan, names, &lan),
    }))
}

fn check(plan: &RegisterPlan, names: &Names, lan: &HostPort) -> Value {
    json!({
        "Node": names.node,
        "CheckID": format!("service:{}", names.id),
        "Name": format!("{MESH_GATEWAY} listening"),
        "Status": "critical",
        "Output": "not tried yet",
        "ServiceID": names.id,
        "ServiceName": names.service,
        "Type": "tcp",
        "Definition": {
            "TCP": lan.to_string(),
            "Interval": CHECK_INTERVAL,
            "Timeout": CHECK_TIMEOUT,
            "DeregisterCriticalServiceAfter": plan.deregister_after.to_string(),
        },
    })
}

fn tagged_addresses(plan: &RegisterPlan) -> Map<String, Value> {
    let lan = Some(&plan.lan).filter(|lan| !lan.host.is_empty());
    let tagged = [("lan", lan), ("wan", plan.wan.as_ref())];
    let entry = |(tag, address): (&str, Option<&HostPort>)| {
        address.map(|a| (tag.to_owned(), json!({ "Address": a.host, "Port": a.port })))
    };
    tagged.into_iter().filter_map(entry).collect()
}

/// Which addresses Envoy listens on, unless it is the LAN address alone.
fn bind_config(plan: &RegisterPlan, local: &[IpAddr]) -> Result<Option<Value>, RegistrationError> {
    if !plan.binds.is_empty() {
        let binds: Map<_, _> = plan
            .binds
            .iter()
            .map(|(name, at)| (name.clone(), json!({ "Address": at.host, "Port": at.port })))
            .collect();
        return Ok(Some(json!({
            "envoy_gateway_no_default_bind": true,
            "envoy_gateway_bind_addresses": binds,
        })));
    }
    if plan.lan.host.is_empty() {
        return Ok(None);
    }
    let bindable = |address: &HostPort| {
        address
            .ip()
            // The kernel takes all of 127.0.0.0/8 for the loopback interface, which lists one address.
            .is_some_and(|ip| ip.is_unspecified() || ip.is_loopback() || local.contains(&ip))
    };
    if !bindable(&plan.lan) {
        return Err(RegistrationError::NotBindable(plan.lan.host.clone()));
    }
    Ok(plan.wan.as_ref().is_some_and(bindable).then(|| {
        json!({
            "envoy_gateway_no_default_bind": true,
            "envoy_gateway_bind_tagged_addresses": true,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> HostPort {
        HostPort {
            host: host.to_owned(),
            port,
        }
    }

    fn plan(lan: HostPort, wan: Option<HostPort>) -> RegisterPlan {
        RegisterPlan {
            lan,
            wan,
            binds: Vec::new(),
            expose_servers: true,
            deregister_after: "6h".parse().unwrap(),
        }
    }

    fn register(plan: &RegisterPlan) -> Result<Value, RegistrationError> {
        let names = Names {
            node: "host".to_owned(),
            id: "gw-1".to_owned(),
            service: "mesh-gateway".to_owned(),
            node_address: "10.0.0.7".parse().unwrap(),
        };
        let local = ["127.0.0.1", "10.0.0.7", "192.0.2.1"].map(|ip| ip.parse().unwrap());
        payload(plan, &names, &local)
    }

    #[test]
    fn the_gateway_is_a_node_with_its_service_and_a_check_that_travels() {
        let body = register(&plan(at("10.0.0.7", 8443), Some(at("gw.example.com", 443)))).unwrap();
        assert_eq!(
            body,
            json!({
                "Node": "host",
                "Address": "10.0.0.7",
                "Service": {
                    "Kind": "mesh-gateway",
                    "ID": "gw-1",
                    "Service": "mesh-gateway",
                    "Address": "10.0.0.7",
                    "Port": 8443,
                    "TaggedAddresses": {
                        "lan": {"Address": "10.0.0.7", "Port": 8443},
                        "wan": {"Address": "gw.example.com", "Port": 443},
                    },
                    "Meta": {"consul-wan-federation": "1"},
                },
                "Check": {
                    "Node": "host",
                    "CheckID": "service:gw-1",
                    "Name": "mesh-gateway listening",
                    "Status": "critical",
                    "Output": "not tried yet",
                    "ServiceID": "gw-1",
                    "ServiceName": "mesh-gateway",
                    "Type": "tcp",
                    "Definition": {
                        "TCP": "10.0.0.7:8443",
                        "Interval": "10s",
                        "Timeout": "3s",
                        "DeregisterCriticalServiceAfter": "6h0m0s",
                    },
                },
            })
        );
    }

    #[test]
    fn without_an_address_the_node_answers() {
        let body = register(&plan(at("", 8443), None)).unwrap();
        assert_eq!(body["Address"], "10.0.0.7");
        assert_eq!(body["Service"]["Address"], "");
        assert_eq!(body["Service"].get("TaggedAddresses"), None);
        assert_eq!(body["Check"]["Definition"]["TCP"], "10.0.0.7:8443");
    }

    #[test]
    fn what_envoy_binds() {
        let config = |plan: &RegisterPlan| {
            register(plan).map(|body| body["Service"]["Proxy"]["Config"].clone())
        };
        let both = plan(at("10.0.0.7", 8443), Some(at("192.0.2.1", 443)));
        assert_eq!(
            config(&both).unwrap(),
            json!({"envoy_gateway_no_default_bind": true, "envoy_gateway_bind_tagged_addresses": true})
        );
        let foreign = plan(at("198.51.100.1", 8443), None);
        assert_eq!(
            config(&foreign).unwrap_err().to_string(),
            "The LAN address \"198.51.100.1\" will not be bindable. Either set a bindable address or override the bind addresses with -bind-address"
        );
        let mut bound = foreign;
        bound.binds = vec![("lan".to_owned(), at("0.0.0.0", 8443))];
        assert_eq!(
            config(&bound).unwrap(),
            json!({
                "envoy_gateway_no_default_bind": true,
                "envoy_gateway_bind_addresses": {"lan": {"Address": "0.0.0.0", "Port": 8443}},
            })
        );
    }
}
