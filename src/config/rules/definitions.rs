//! Service and check definitions of configuration files.

use crate::config::duration;
use crate::config::problem::Origin;
use crate::config::problem::Problem;
use crate::config::rules::Check;
use serde_json::Value as Json;

/// Meta key by which a mesh gateway says that it exposes the datacenter's servers; only `1` counts.
const EXPOSE_SERVERS: &str = "consul-wan-federation";

pub(super) fn check(check: &mut Check<'_>) {
    for definition in &check.config.service_definitions {
        service(check, &definition.json, &definition.origin);
    }
    for definition in &check.config.check_definitions {
        let name = text(&definition.json, "name");
        if let Err(why) = check_kind(&definition.json) {
            refuse(
                check,
                &definition.origin,
                "check",
                format!("check {name:?}: {why}"),
            );
        }
        if name.is_empty() {
            refuse(
                check,
                &definition.origin,
                "check",
                "a check needs a name".to_owned(),
            );
        }
    }
    duplicate_ids(check);
    entries(check);
}

fn refuse(check: &mut Check<'_>, origin: &Origin, key: &str, what: String) {
    check.problems.push(Problem::new(origin.clone(), key, what));
}

fn text<'a>(json: &'a Json, field: &str) -> &'a str {
    json.get(field).and_then(Json::as_str).unwrap_or_default()
}

fn service(check: &mut Check<'_>, json: &Json, origin: &Origin) {
    let name = text(json, "name");
    let kind = text(json, "kind");
    let port = json.get("port").and_then(Json::as_i64).unwrap_or(0);
    let mut wrong = Vec::new();
    if name.is_empty() {
        wrong.push("a service needs a name".to_owned());
    }
    match kind {
        "mesh-gateway" | "terminating-gateway" | "ingress-gateway" if port == 0 => {
            wrong.push(format!("Port must be non-zero for a {kind}"));
        }
        "" | "typical" | "mesh-gateway" | "terminating-gateway" | "ingress-gateway" | "connect-proxy" => {}
        _ => wrong.push(format!("{kind:?} is not a kind; use mesh-gateway, connect-proxy, terminating-gateway or ingress-gateway")),
    }
    if !(0..=65535).contains(&port) {
        wrong.push(format!("invalid port: {port}"));
    }
    let checks = json.get("check").into_iter().chain(
        json.get("checks")
            .and_then(Json::as_array)
            .into_iter()
            .flatten(),
    );
    wrong.extend(checks.filter_map(|json| check_kind(json).err()));
    let shown = if name.is_empty() {
        text(json, "id")
    } else {
        name
    };
    for why in wrong {
        refuse(
            check,
            origin,
            "service",
            format!("service {shown:?}: {why}"),
        );
    }
    expose_servers(check, json, origin, shown);
}

/// Any value but `1` is ignored without a word in Consul (case C016).
fn expose_servers(check: &mut Check<'_>, json: &Json, origin: &Origin, name: &str) {
    let value = json
        .get("meta")
        .and_then(|meta| meta.get(EXPOSE_SERVERS))
        .and_then(Json::as_str);
    if let Some(value) = value.filter(|value| *value != "1") {
        let what = format!(
            "service {name:?}: meta {EXPOSE_SERVERS} is {value:?}, which does not expose servers"
        );
        let problem = Problem::new(origin.clone(), "service", what);
        check
            .warnings
            .push(problem.remedy("only \"1\" does; remove it otherwise"));
    }
}

/// Which way a check works, and whether it has what that needs.
fn check_kind(json: &Json) -> Result<(), String> {
    let has = |field: &str| {
        json.get(field)
            .is_some_and(|v| v.as_str() != Some("") && v.as_array().is_none_or(|a| !a.is_empty()))
    };
    let positive = |field: &str| duration::parse(text(json, field)).is_ok_and(|d| !d.is_zero());
    let polled = ["http", "tcp", "grpc", "args", "docker_container_id"]
        .iter()
        .any(|field| has(field));
    let alias = has("alias_node") || has("alias_service");
    if polled && has("ttl") {
        return Err("Interval and TTL cannot both be specified".to_owned());
    }
    if polled && !positive("interval") {
        return Err("Interval must be > 0 for Script, HTTP, or TCP checks".to_owned());
    }
    if has("ttl") && !positive("ttl") {
        return Err("TTL must be > 0 for TTL checks".to_owned());
    }
    if !polled && !alias && !has("ttl") {
        return Err("the check has no kind: give one of ttl, http, tcp, grpc, args, docker_container_id, alias_service".to_owned());
    }
    Ok(())
}

fn duplicate_ids(check: &mut Check<'_>) {
    let mut seen: std::collections::BTreeMap<String, Origin> = std::collections::BTreeMap::new();
    for definition in &check.config.service_definitions {
        let id = match text(&definition.json, "id") {
            "" => text(&definition.json, "name"),
            id => id,
        };
        if let Some(first) = seen.insert(id.to_owned(), definition.origin.clone()) {
            let what = format!("service id {id:?} is defined twice, first at {first}");
            let problem = Problem::new(definition.origin.clone(), "service", what);
            check
                .warnings
                .push(problem.remedy("the later one wins; give each instance its own id"));
        }
    }
}

/// Kinds of configuration entries of Consul 1.8.
const KINDS: &[&str] = &[
    "service-defaults",
    "proxy-defaults",
    "service-router",
    "service-splitter",
    "service-resolver",
    "ingress-gateway",
    "terminating-gateway",
];

fn entries(check: &mut Check<'_>) {
    for (index, definition) in check.config.bootstrap_entries.iter().enumerate() {
        let field = |lower, upper| match text(&definition.json, lower) {
            "" => text(&definition.json, upper),
            value => value,
        };
        let (kind, name) = (field("kind", "Kind"), field("name", "Name"));
        let key = format!("config_entries.bootstrap[{index}]");
        if !KINDS.contains(&kind) {
            let problem = Problem::new(
                definition.origin.clone(),
                &key,
                format!("{key}: invalid config entry kind: {kind}"),
            );
            check
                .problems
                .push(problem.remedy(format!("use one of: {}", KINDS.join(", "))));
        } else if name.is_empty() {
            check.problems.push(Problem::new(
                definition.origin.clone(),
                &key,
                format!("{key}: Name is empty"),
            ));
        }
    }
}
