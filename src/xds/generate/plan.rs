//! Which clusters there are to be, before anything is encoded.

use crate::proxycfg::{Endpoint, GatewayOptions, MeshService, Remote, Target, View, sni};
use std::borrow::Cow;

/// What a cluster leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Gateways of another datacenter.
    Remote,
    /// Servers of this datacenter.
    Server,
    /// Instances of a local service.
    Service,
}

/// A cluster with its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan<'a> {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) connect_timeout_ms: u64,
    pub(super) endpoints: Cow<'a, [Endpoint]>,
}

impl Plan<'_> {
    /// Whether the cluster must resolve names, so that its endpoints travel inside it: EDS takes addresses only.
    pub(super) fn is_resolved(&self) -> bool {
        self.endpoints.iter().any(Endpoint::is_name)
    }

    pub(super) fn same_cluster(&self, other: &Self) -> bool {
        let inputs = |p: &Self| (p.role, p.connect_timeout_ms, p.is_resolved());
        inputs(self) == inputs(other) && (!self.is_resolved() || self.endpoints == other.endpoints)
    }

    pub(super) fn same_endpoints(&self, other: &Self) -> bool {
        self.is_resolved() == other.is_resolved() && self.endpoints == other.endpoints
    }
}

/// The clusters of another datacenter.
pub(super) fn remote<'a>(
    view: &View,
    options: &GatewayOptions,
    datacenter: &str,
    remote: &'a Remote,
) -> Vec<Plan<'a>> {
    let plan = |name, endpoints: &'a [Endpoint]| Plan {
        name,
        role: Role::Remote,
        connect_timeout_ms: options.connect_timeout_ms,
        endpoints: Cow::Borrowed(endpoints),
    };
    let internal = view.trust_domain.as_ref().map(|trust_domain| {
        let name = sni::datacenter(datacenter, trust_domain);
        plan(name, &remote.gateways)
    });
    let servers = options.federation.then(|| {
        let name = sni::any_server(datacenter, &view.place.domain);
        plan(name, &remote.to_servers)
    });
    internal.into_iter().chain(servers).collect()
}

/// The clusters of the local servers; none unless they are exposed.
pub(super) fn servers<'a>(view: &'a View, options: &GatewayOptions) -> Vec<Plan<'a>> {
    if !options.federation {
        return Vec::new();
    }
    let (dc, domain) = (&view.place.datacenter, &view.place.domain);
    let plan = |name, endpoints: Cow<'a, [Endpoint]>| Plan {
        name,
        role: Role::Server,
        connect_timeout_ms: options.connect_timeout_ms,
        endpoints,
    };
    let pool = Cow::Borrowed(view.servers.pool.as_slice());
    let any = plan(sni::any_server(dc, domain), pool);
    let each = view.servers.list.iter().map(|server| {
        let endpoints = Cow::Borrowed(std::slice::from_ref(&server.endpoint));
        plan(sni::server(&server.name, dc, domain), endpoints)
    });
    std::iter::once(any).chain(each).collect()
}

/// The clusters of a local service and its subsets; none until the trust domain is known.
pub(super) fn service<'a>(
    view: &View,
    options: &GatewayOptions,
    service: &'a MeshService,
) -> Vec<Plan<'a>> {
    let Some(trust_domain) = &view.trust_domain else {
        return Vec::new();
    };
    let timeout = service.connect_timeout_ms;
    let plan = |target: &'a Target| Plan {
        name: sni::service(&target.name, &view.place.datacenter, trust_domain),
        role: Role::Service,
        connect_timeout_ms: timeout.unwrap_or(options.connect_timeout_ms),
        endpoints: Cow::Borrowed(&target.endpoints),
    };
    service.targets.iter().map(plan).collect()
}
