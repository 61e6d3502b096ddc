//! Config entries.

use crate::http::json::catalog::{ExposeView, MeshGatewayView};
use crate::http::json::{NilMap, is_empty, is_zero, no_items};
use crate::model::config_entry::{ResolverFailover, ResolverRedirect, ResolverSubset};
use crate::model::{ConfigEntry, ProxyDefaults, ServiceDefaults, ServiceResolver};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ProxyDefaultsView<'a> {
    kind: &'a str,
    name: &'a str,
    config: NilMap<'a, String, Value>,
    mesh_gateway: MeshGatewayView<'a>,
    expose: ExposeView<'a>,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceDefaultsView<'a> {
    kind: &'a str,
    name: &'a str,
    protocol: &'a str,
    mesh_gateway: MeshGatewayView<'a>,
    expose: ExposeView<'a>,
    #[serde(rename = "ExternalSNI", skip_serializing_if = "is_empty")]
    external_sni: &'a str,
    create_index: u64,
    modify_index: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SubsetView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    filter: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    only_passing: bool,
}

impl<'a> From<&'a ResolverSubset> for SubsetView<'a> {
    fn from(s: &'a ResolverSubset) -> Self {
        Self {
            filter: &s.filter,
            only_passing: s.only_passing,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RedirectView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    service: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    service_subset: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    datacenter: &'a str,
}

impl<'a> From<&'a ResolverRedirect> for RedirectView<'a> {
    fn from(r: &'a ResolverRedirect) -> Self {
        Self {
            service: &r.service,
            service_subset: &r.service_subset,
            namespace: &r.namespace,
            datacenter: &r.datacenter,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FailoverView<'a> {
    #[serde(skip_serializing_if = "is_empty")]
    service: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    service_subset: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "no_items")]
    datacenters: &'a [String],
}

impl<'a> From<&'a ResolverFailover> for FailoverView<'a> {
    fn from(f: &'a ResolverFailover) -> Self {
        Self {
            service: &f.service,
            service_subset: &f.service_subset,
            namespace: &f.namespace,
            datacenters: &f.datacenters,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ResolverView<'a> {
    /// Text, as operators write it (C101).
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_timeout: Option<String>,
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "is_empty")]
    default_subset: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    subsets: BTreeMap<&'a str, SubsetView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<RedirectView<'a>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    failover: BTreeMap<&'a str, FailoverView<'a>>,
    create_index: u64,
    modify_index: u64,
}

/// A config entry of any kind.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct ConfigEntryView<'a>(View<'a>);

#[derive(Serialize)]
#[serde(untagged)]
enum View<'a> {
    Proxy(ProxyDefaultsView<'a>),
    Service(ServiceDefaultsView<'a>),
    Resolver(Box<ResolverView<'a>>),
}

impl<'a> From<&'a ConfigEntry> for ConfigEntryView<'a> {
    fn from(entry: &'a ConfigEntry) -> Self {
        Self(match entry {
            ConfigEntry::ProxyDefaults(e) => View::Proxy(e.into()),
            ConfigEntry::ServiceDefaults(e) => View::Service(e.into()),
            ConfigEntry::ServiceResolver(e) => View::Resolver(Box::new(e.into())),
        })
    }
}

impl<'a> From<&'a ProxyDefaults> for ProxyDefaultsView<'a> {
    fn from(e: &'a ProxyDefaults) -> Self {
        Self {
            kind: &e.kind,
            name: &e.name,
            config: NilMap(&e.config),
            mesh_gateway: (&e.mesh_gateway).into(),
            expose: (&e.expose).into(),
            create_index: e.create_index,
            modify_index: e.modify_index,
        }
    }
}

impl<'a> From<&'a ServiceDefaults> for ServiceDefaultsView<'a> {
    fn from(e: &'a ServiceDefaults) -> Self {
        Self {
            kind: &e.kind,
            name: &e.name,
            protocol: &e.protocol,
            mesh_gateway: (&e.mesh_gateway).into(),
            expose: (&e.expose).into(),
            external_sni: &e.external_sni,
            create_index: e.create_index,
            modify_index: e.modify_index,
        }
    }
}

impl<'a> From<&'a ServiceResolver> for ResolverView<'a> {
    fn from(e: &'a ServiceResolver) -> Self {
        let timeout = Some(e.connect_timeout).filter(|t| !t.is_zero());
        Self {
            connect_timeout: timeout.map(|t| t.to_string()),
            kind: &e.kind,
            name: &e.name,
            default_subset: &e.default_subset,
            subsets: (e.subsets.iter())
                .map(|(name, subset)| (name.as_str(), subset.into()))
                .collect(),
            redirect: e.redirect.as_ref().map(RedirectView::from),
            failover: (e.failover.iter())
                .map(|(name, failover)| (name.as_str(), failover.into()))
                .collect(),
            create_index: e.create_index,
            modify_index: e.modify_index,
        }
    }
}
