//! What config entries say about one service: the defaults that an agent merges into its registration.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::catalog::{ExposeConfig, MeshGatewayConfig};
use crate::model::query::ServiceConfigRequest;
use crate::model::{ConfigEntry, ConfigKind, ProxyDefaults, ServiceDefaults};
use crate::store::{State, Topic};
use serde_json::Value;
use std::collections::BTreeMap;

/// The one name that proxy defaults have.
const GLOBAL: &str = "global";

/// The merged settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceConfig {
    /// Settings of the service's proxy.
    pub proxy_config: BTreeMap<String, Value>,
    /// The protocol of each upstream that has one.
    pub upstreams: BTreeMap<String, Value>,
    /// How its proxy uses mesh gateways.
    pub mesh_gateway: MeshGatewayConfig,
    /// What its proxy exposes.
    pub expose: ExposeConfig,
}

impl Api {
    /// The settings of a service and of its upstreams.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn service_config(
        &self,
        request: &ServiceConfigRequest,
    ) -> Result<Answer<ServiceConfig>, Error> {
        let (name, mut upstreams) = (request.name.clone(), request.upstreams.clone());
        if !request.upstream_ids.is_empty() {
            upstreams = request.upstream_ids.iter().map(|u| u.id.clone()).collect();
        }
        let topics = upstreams.iter().chain([&name]);
        let topics =
            topics.map(|name| Topic::ConfigEntry(ConfigKind::ServiceDefaults, name.clone()));
        let global = Topic::ConfigEntry(ConfigKind::ProxyDefaults, GLOBAL.to_owned());
        self.read(
            request,
            topics.chain([global]).collect(),
            |state| {
                let services = state.config_kind_index(ConfigKind::ServiceDefaults);
                services.max(state.config_kind_index(ConfigKind::ProxyDefaults))
            },
            move |state| merged(state, &name, &upstreams),
        )
        .await
    }
}

fn merged(state: &State, name: &str, upstreams: &[String]) -> ServiceConfig {
    let global = proxy_defaults(state);
    let mut config = global.map_or_else(ServiceConfig::default, |global| ServiceConfig {
        proxy_config: global.config.clone(),
        upstreams: BTreeMap::new(),
        mesh_gateway: global.mesh_gateway.clone(),
        expose: global.expose.clone(),
    });
    let common = config.proxy_config.get("protocol").cloned();
    if let Some(own) = service_defaults(state, name) {
        config.expose.checks |= own.expose.checks;
        if !own.expose.paths.is_empty() {
            config.expose.paths.clone_from(&own.expose.paths);
        }
        if own.mesh_gateway != MeshGatewayConfig::default() {
            config.mesh_gateway = own.mesh_gateway.clone();
        }
        if !own.protocol.is_empty() {
            let protocol = Value::String(own.protocol.clone());
            config.proxy_config.insert("protocol".to_owned(), protocol);
        }
    }
    for upstream in upstreams {
        let own = service_defaults(state, upstream).filter(|own| !own.protocol.is_empty());
        let protocol = own.map(|own| Value::String(own.protocol.clone()));
        if let Some(protocol) = protocol.or_else(|| common.clone()) {
            config.upstreams.insert(upstream.clone(), protocol);
        }
    }
    config
}

fn proxy_defaults(state: &State) -> Option<&ProxyDefaults> {
    match &**state.config_entry(ConfigKind::ProxyDefaults, GLOBAL)? {
        ConfigEntry::ProxyDefaults(entry) => Some(entry),
        _ => None,
    }
}

fn service_defaults<'a>(state: &'a State, name: &str) -> Option<&'a ServiceDefaults> {
    match &**state.config_entry(ConfigKind::ServiceDefaults, name)? {
        ConfigEntry::ServiceDefaults(entry) => Some(entry),
        _ => None,
    }
}
