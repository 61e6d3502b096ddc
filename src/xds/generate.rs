//! What gateways are to do, as Envoy resources.
//!
//! ```text
//!   View + GatewayOptions --> SharedSets   clusters and endpoints: the same for all gateways with these options
//!   Topology + binds      --> ResourceSet  listeners: of one gateway
//! ```
//!
//! [`SharedSets::evolve`] encodes only what differs between two views: when one instance of one of a hundred services
//! changes, one load assignment is encoded. Equal input gives equal bytes, on every server and after a restart.
//!
//! | cluster | endpoints | panics | limits |
//! |---|---|---|---|
//! | `<dc>.internal.<trust domain>`, other datacenters | their gateways, WAN | yes | raised |
//! | `server.<dc>.<domain>`, other datacenters | their gateways, WAN | yes | raised |
//! | `server.<local>.<domain>` | all local servers, LAN | yes | raised |
//! | `<node>.server.<local>.<domain>` | that server, LAN | yes | raised |
//! | `[<subset>.]<service>.default.<local>.internal.<trust domain>` | its instances, LAN | no | Envoy's |
//!
//! "Panics": when most endpoints are unhealthy, Envoy uses all of them. That is better than nothing on the way to
//! gateways and servers; a service that failed its checks must not get requests. "Limits": everything that goes to
//! another datacenter or to a server goes through one cluster, so Envoy's default of 1024 connections is too small.

mod clusters;
mod endpoints;
mod listeners;
mod plan;

use crate::proxycfg::{Gateway, GatewayOptions, View};
use crate::xds::generate::plan::Plan;
use crate::xds::resources::{ProxyResources, ResourceSet};
use imbl::ordmap::DiffItem;

pub use listeners::listeners;

/// How many resources one generation encoded, and how many it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Resources that were encoded for it.
    pub encoded: usize,
    /// Resources that it shares with the generation before.
    pub reused: usize,
}

/// The clusters and endpoints of all gateways with equal options.
#[derive(Clone, Debug, Default)]
pub struct SharedSets {
    /// CDS.
    pub clusters: ResourceSet,
    /// EDS; clusters whose endpoints have names to resolve have none here.
    pub endpoints: ResourceSet,
    /// What it cost.
    pub work: Work,
}

impl SharedSets {
    /// The resources of a view.
    pub fn build(view: &View, options: &GatewayOptions) -> Self {
        let mut sets = Self::default();
        for (name, remote) in &view.remotes {
            let plans = plan::remote(view, options, name, remote);
            sets.put(&[], &plans, options);
        }
        sets.put(&[], &plan::servers(view, options), options);
        for service in view.services.values() {
            sets.put(&[], &plan::service(view, options, service), options);
        }
        sets.count();
        sets
    }

    /// The resources of `view`, sharing with these, which are those of `older`, all that did not change.
    #[must_use]
    pub fn evolve(&self, older: &View, view: &View, options: &GatewayOptions) -> Self {
        if older.place != view.place || older.trust_domain != view.trust_domain {
            // Every name changes: all of them in one push (C091).
            return Self::build(view, options);
        }
        let mut sets = Self {
            work: Work::default(),
            ..self.clone()
        };
        let mut groups = vec![(plan::servers(older, options), plan::servers(view, options))];
        groups.extend(older.remotes.diff(&view.remotes).map(|item| {
            sides(item, |(name, remote)| {
                plan::remote(view, options, name, remote)
            })
        }));
        groups.extend(
            older
                .services
                .diff(&view.services)
                .map(|item| sides(item, |(_, service)| plan::service(view, options, service))),
        );
        // All that goes goes first: a name may pass from one group to another, as from a subset to a service.
        for (old, new) in &groups {
            sets.remove(old, new);
        }
        for (old, new) in &groups {
            sets.put(old, new, options);
        }
        sets.count();
        sets
    }

    /// Removes the clusters of `old` that are not in `new`.
    fn remove(&mut self, old: &[Plan<'_>], new: &[Plan<'_>]) {
        for gone in old.iter().filter(|p| find(new, &p.name).is_none()) {
            self.clusters.remove(&gone.name);
            self.endpoints.remove(&gone.name);
        }
    }

    /// Puts the clusters of `new` in the place of those of `old`, encoding what differs.
    fn put(&mut self, old: &[Plan<'_>], new: &[Plan<'_>], options: &GatewayOptions) {
        for plan in new {
            let before = find(old, &plan.name);
            if !before.is_some_and(|before| before.same_cluster(plan)) {
                self.clusters.put(clusters::cluster(plan, options));
                self.work.encoded += 1;
            }
            if plan.is_resolved() {
                self.endpoints.remove(&plan.name);
            } else if !before.is_some_and(|before| before.same_endpoints(plan)) {
                self.endpoints.put(endpoints::assignment(plan));
                self.work.encoded += 1;
            }
        }
    }

    fn count(&mut self) {
        let all = self.clusters.len() + self.endpoints.len();
        self.work.reused = all.saturating_sub(self.work.encoded);
    }
}

fn find<'p, 'a>(plans: &'p [Plan<'a>], name: &str) -> Option<&'p Plan<'a>> {
    plans.iter().find(|plan| plan.name == name)
}

/// What was there before and after, each made by `of`.
fn sides<'a, K, V, T>(
    item: DiffItem<'a, 'a, K, V>,
    of: impl Fn((&'a K, &'a V)) -> Vec<T>,
) -> (Vec<T>, Vec<T>) {
    match item {
        DiffItem::Add(key, value) => (Vec::new(), of((key, value))),
        DiffItem::Update { old, new } => (of(old), of(new)),
        DiffItem::Remove(key, value) => (of((key, value)), Vec::new()),
    }
}

/// All resources of one gateway, sharing nothing: for tests and tools.
pub fn everything(view: &View, gateway: &Gateway) -> ProxyResources {
    let sets = SharedSets::build(view, &gateway.options);
    ProxyResources {
        clusters: sets.clusters,
        endpoints: sets.endpoints,
        listeners: listeners(&view.topology, gateway.options.federation, &gateway.binds),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
