//! What a config entry must fulfil.

use crate::api::error::Error;
use crate::model::catalog::{ExposeConfig, MeshGatewayConfig};
use crate::model::config_entry::{ResolverFailover, ResolverRedirect};
use crate::model::filter::Filter;
use crate::model::{ConfigEntry, ConfigKind, ProxyDefaults, ServiceDefaults, ServiceResolver};

/// The only name of a proxy-defaults entry.
const GLOBAL: &str = "global";

/// The longest name of a subset: it becomes a DNS label.
const MAX_SUBSET_NAME: usize = 63;

/// Brings an entry to the form it is stored in and checks its rules.
///
/// # Errors
/// The first broken rule, in Consul's words.
pub fn normalise(mut entry: ConfigEntry) -> Result<ConfigEntry, Error> {
    let kind = entry.kind().as_str().to_owned();
    match &mut entry {
        ConfigEntry::ProxyDefaults(e) => {
            e.kind = kind;
            proxy_defaults(e)
        }
        ConfigEntry::ServiceDefaults(e) => {
            e.kind = kind;
            service_defaults(e)
        }
        ConfigEntry::ServiceResolver(e) => {
            e.kind = kind;
            resolver(e)
        }
    }
    .map_err(Error::Refused)?;
    Ok(entry)
}

fn proxy_defaults(entry: &mut ProxyDefaults) -> Result<(), String> {
    if entry.name != GLOBAL {
        return Err(format!(
            "invalid name ({:?}), only {GLOBAL:?} is supported",
            entry.name
        ));
    }
    gateway_mode(&entry.mesh_gateway)?;
    expose(&mut entry.expose);
    Ok(())
}

fn service_defaults(entry: &mut ServiceDefaults) -> Result<(), String> {
    if entry.name.is_empty() {
        return Err("Name is required".into());
    }
    entry.protocol = entry.protocol.to_lowercase();
    gateway_mode(&entry.mesh_gateway)?;
    expose(&mut entry.expose);
    Ok(())
}

fn gateway_mode(config: &MeshGatewayConfig) -> Result<(), String> {
    match config.mode.as_str() {
        "" | "none" | "local" | "remote" => Ok(()),
        other => Err(format!(
            "Invalid Mesh Gateway Mode: {other:?}: use none, local or remote"
        )),
    }
}

fn expose(config: &mut ExposeConfig) {
    for path in &mut config.paths {
        if path.protocol.is_empty() {
            path.protocol = "http".into();
        }
    }
}

fn resolver(entry: &ServiceResolver) -> Result<(), String> {
    if entry.name.is_empty() {
        return Err("Name is required".into());
    }
    for (name, subset) in &entry.subsets {
        subset_name(name)?;
        if !subset.filter.is_empty() {
            Filter::parse(&subset.filter).map_err(|error| {
                format!("Filter for subset {name:?} is not a valid expression: {error}")
            })?;
        }
    }
    if !is_subset(entry, &entry.default_subset) {
        return Err(format!(
            "DefaultSubset {:?} is not a valid subset",
            entry.default_subset
        ));
    }
    if let Some(redirect) = &entry.redirect {
        if !entry.failover.is_empty() {
            return Err("Redirect and Failover cannot both be set".into());
        }
        redirect_rules(entry, redirect)?;
    }
    for (subset, failover) in &entry.failover {
        failover_rules(entry, subset, failover)?;
    }
    if entry.connect_timeout.0 < 0 {
        return Err(format!(
            "Bad ConnectTimeout '{}', must be >= 0",
            entry.connect_timeout
        ));
    }
    Ok(())
}

fn is_subset(entry: &ServiceResolver, name: &str) -> bool {
    name.is_empty() || entry.subsets.contains_key(name)
}

fn subset_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("Subset defined with empty name".into());
    }
    if name.len() > MAX_SUBSET_NAME {
        return Err(format!(
            "Subset {name:?} is invalid: must be {MAX_SUBSET_NAME} characters or less"
        ));
    }
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let valid =
        name.chars().all(|c| word(c) || c == '-') && name.starts_with(word) && name.ends_with(word);
    if !valid {
        return Err(format!(
            "Subset {name:?} is invalid: must start and end with a lower case alphanumeric character and contain only \
             lower case alphanumeric characters or hyphens"
        ));
    }
    Ok(())
}

fn redirect_rules(entry: &ServiceResolver, redirect: &ResolverRedirect) -> Result<(), String> {
    if *redirect == ResolverRedirect::default() {
        return Err("Redirect is empty".into());
    }
    if redirect.service.is_empty() {
        if !redirect.service_subset.is_empty() {
            return Err("Redirect.ServiceSubset defined without Redirect.Service".into());
        }
        if !redirect.namespace.is_empty() {
            return Err("Redirect.Namespace defined without Redirect.Service".into());
        }
    } else if redirect.service == entry.name && !is_subset(entry, &redirect.service_subset) {
        return Err(format!(
            "Redirect.ServiceSubset {:?} is not a valid subset of {:?}",
            redirect.service_subset, redirect.service
        ));
    }
    Ok(())
}

fn failover_rules(
    entry: &ServiceResolver,
    subset: &str,
    failover: &ResolverFailover,
) -> Result<(), String> {
    if subset != "*" && (subset.is_empty() || !is_subset(entry, subset)) {
        return Err(format!("Bad Failover[{subset:?}]: not a valid subset"));
    }
    if *failover == ResolverFailover::default() {
        return Err(format!(
            "Bad Failover[{subset:?}] one of Service, ServiceSubset, Namespace, or Datacenters is required"
        ));
    }
    let own = failover.service.is_empty() || failover.service == entry.name;
    if own && !is_subset(entry, &failover.service_subset) {
        return Err(format!(
            "Bad Failover[{subset:?}].ServiceSubset {:?} is not a valid subset of {:?}",
            failover.service_subset, failover.service
        ));
    }
    if failover.datacenters.iter().any(String::is_empty) {
        return Err(format!(
            "Bad Failover[{subset:?}].Datacenters: found empty datacenter"
        ));
    }
    Ok(())
}

/// Every kind has rules here; a new one must be added above.
const _: () = assert!(ConfigKind::ALL.len() == 3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::GoDuration;
    use crate::model::config_entry::ResolverSubset;

    fn problem(entry: ServiceResolver) -> String {
        let entry = ServiceResolver {
            name: "web".into(),
            ..entry
        };
        normalise(ConfigEntry::ServiceResolver(entry))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn resolver_rules_speak_as_consul_does() {
        let subsets = || [("v1".to_owned(), ResolverSubset::default())].into();
        let base = ServiceResolver::default;
        let failover = |name: &str, f: ResolverFailover| ServiceResolver {
            subsets: subsets(),
            failover: [(name.to_owned(), f)].into(),
            ..base()
        };
        let table = [
            (
                ServiceResolver {
                    default_subset: "nope".into(),
                    ..base()
                },
                "DefaultSubset \"nope\" is not a valid subset",
            ),
            (
                ServiceResolver {
                    subsets: [(
                        "v1".to_owned(),
                        ResolverSubset {
                            filter: "Service.Meta.version ==".into(),
                            ..ResolverSubset::default()
                        },
                    )]
                    .into(),
                    ..base()
                },
                "Filter for subset \"v1\" is not a valid expression",
            ),
            (
                ServiceResolver {
                    redirect: Some(ResolverRedirect::default()),
                    ..base()
                },
                "Redirect is empty",
            ),
            (
                ServiceResolver {
                    connect_timeout: GoDuration(-1_000_000_000),
                    ..base()
                },
                "Bad ConnectTimeout '-1s', must be >= 0",
            ),
            (
                failover("v2", ResolverFailover::default()),
                "Bad Failover[\"v2\"]: not a valid subset",
            ),
            (
                failover(
                    "*",
                    ResolverFailover {
                        datacenters: vec![String::new()],
                        ..ResolverFailover::default()
                    },
                ),
                "Bad Failover[\"*\"].Datacenters: found empty datacenter",
            ),
        ];
        for (entry, text) in table {
            let problem = problem(entry);
            assert!(problem.starts_with(text), "{problem:?} is not {text:?}");
        }
    }

    #[test]
    fn proxy_defaults_have_one_name() {
        let entry = ProxyDefaults {
            name: "x".into(),
            ..ProxyDefaults::default()
        };
        let error = normalise(ConfigEntry::ProxyDefaults(entry)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid name (\"x\"), only \"global\" is supported"
        );
    }
}
