//! A local service of the mesh with its instances and the subsets of its resolver.

use crate::model::config_entry::ResolverSubset;
use crate::model::filter::Filter;
use crate::model::{CheckServiceNode, ConfigEntry, ConfigKind, ServiceResolver};
use crate::proxycfg::endpoint::Endpoint;
use crate::proxycfg::sni;
use crate::store::State;
use serde_json::Value;
use std::sync::Arc;

/// What the gateways know of one local service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MeshService {
    /// The resolver's connect timeout, if it has one.
    pub connect_timeout_ms: Option<u64>,
    /// The service itself, then its subsets by name. Empty if the service's name cannot be asked for.
    pub targets: Vec<Target>,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// Something that is asked for by name: a service or a subset.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// `<service>` or `<subset>.<service>`, lower case.
    pub name: Arc<str>,
    /// Its instances in order of node and id.
    pub endpoints: Vec<Endpoint>,
}

impl MeshService {
    /// The service with this (lower-case) name; `None` without a Connect-capable instance.
    pub fn of(state: &State, key: &str) -> Option<Self> {
        let instances = state.connect_check_service_nodes(key);
        if instances.is_empty() {
            return None;
        }
        let mut service = Self::default();
        let Some(name) = sni::usable(key) else {
            service.warnings.push(format!(
                "service {key:?} cannot be reached through gateways: its name has characters that a TLS server name \
                 must not have"
            ));
            return Some(service);
        };
        let default = ServiceResolver::default();
        let resolver = resolver(state, key, &instances).unwrap_or(&default);
        let timeout = resolver.connect_timeout.to_std().as_millis();
        let timeout = u64::try_from(timeout).unwrap_or(u64::MAX);
        service.connect_timeout_ms = (timeout > 0).then_some(timeout);
        let candidates = Candidates::new(&instances, resolver);
        service.add_default(&candidates, resolver, &name);
        for (subset, rule) in &resolver.subsets {
            service.add_subset(state, &candidates, (&name, subset, rule));
        }
        Some(service)
    }

    fn add_default(&mut self, of: &Candidates<'_>, resolver: &ServiceResolver, name: &Arc<str>) {
        let everything = ResolverSubset::default();
        let chosen = match resolver.default_subset.as_str() {
            "" => &everything,
            subset => resolver.subsets.get(subset).unwrap_or_else(|| {
                self.warnings.push(format!(
                    "service-resolver {name:?}: DefaultSubset {subset:?} is none of its subsets, so all instances are \
                     used"
                ));
                &everything
            }),
        };
        let endpoints = self.select(of, chosen, name);
        self.targets.push(Target {
            name: name.clone(),
            endpoints,
        });
    }

    fn add_subset(
        &mut self,
        state: &State,
        of: &Candidates<'_>,
        (name, subset, rule): (&str, &str, &ResolverSubset),
    ) {
        let usable = sni::usable(subset).filter(|s| !s.contains('.'));
        let Some(subset) = usable else {
            self.warnings.push(format!(
                "service-resolver {name:?}: subset {subset:?} is left out: use letters, digits and '-' in its name"
            ));
            return;
        };
        let full: Arc<str> = Arc::from(format!("{subset}.{name}"));
        if self.targets.iter().any(|t| t.name == full)
            || !state.connect_service_nodes(&full).is_empty()
        {
            self.warnings.push(format!(
                "service-resolver {name:?}: subset {subset:?} is left out: {full:?} is also the name of another service \
                 or subset; rename one of them"
            ));
            return;
        }
        let endpoints = self.select(of, rule, name);
        self.targets.push(Target {
            name: full,
            endpoints,
        });
    }

    fn select(&mut self, of: &Candidates<'_>, rule: &ResolverSubset, name: &str) -> Vec<Endpoint> {
        let filter = match rule.filter.as_str() {
            "" => None,
            text => match Filter::parse(text) {
                Ok(filter) => Some(filter),
                Err(error) => {
                    self.warn(format!(
                        "service-resolver {name:?}: filter {text:?} selects nothing: {error}"
                    ));
                    return Vec::new();
                }
            },
        };
        let mut endpoints = Vec::new();
        for (at, instance) in of.instances.iter().enumerate() {
            let fits = |f: &Filter| of.values.get(at).is_some_and(|value| f.matches(value));
            if !filter.as_ref().is_none_or(fits) {
                continue;
            }
            match Endpoint::of(instance, false, rule.only_passing) {
                Ok(endpoint) => endpoints.push(endpoint),
                Err(unusable) => self.warn(unusable.to_string()),
            }
        }
        endpoints
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// The instances, and as filters see them if there is a filter.
struct Candidates<'a> {
    instances: &'a [CheckServiceNode],
    values: Vec<Value>,
}

impl<'a> Candidates<'a> {
    fn new(instances: &'a [CheckServiceNode], resolver: &ServiceResolver) -> Self {
        let filtered = resolver.subsets.values().any(|s| !s.filter.is_empty());
        let seen = instances.iter().filter(|_| filtered);
        let value = |i: &CheckServiceNode| serde_json::to_value(i).unwrap_or_default();
        Self {
            instances,
            values: seen.map(value).collect(),
        }
    }
}

/// The resolver under the lower-case name, else under the name as the instances spell it.
fn resolver<'a>(
    state: &'a State,
    key: &str,
    instances: &[CheckServiceNode],
) -> Option<&'a ServiceResolver> {
    let spelled = instances
        .iter()
        .filter_map(|i| i.service.as_ref()?.connect_name());
    let mut names = std::iter::once(key).chain(spelled.map(|name| name.as_str()));
    let entry = names.find_map(|name| state.config_entry(ConfigKind::ServiceResolver, name))?;
    match &**entry {
        ConfigEntry::ServiceResolver(resolver) => Some(resolver),
        _ => None,
    }
}
