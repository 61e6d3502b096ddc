//! Rules for services, shared by agent and catalog registrations.

use crate::local::definition::DefinitionError;
use crate::local::definition::service::Sidecar;
use crate::model::catalog::{META_WAN_FEDERATION, StringMap};
use crate::model::{NodeService, ServiceKind, Weights, multierror};
use std::collections::BTreeSet;

const META_PAIRS: usize = 64;
const META_KEY: usize = 128;
const META_VALUE: usize = 512;

pub(super) fn weights(weights: Weights) -> Result<(), DefinitionError> {
    let problem = if weights.passing < 1 {
        "Passing must be greater than 0"
    } else if weights.warning < 0 {
        "Warning must be greater or equal than 0"
    } else if weights.passing > 65_535 || weights.warning > 65_535 {
        "DNS Weight must be between 0 and 65535"
    } else {
        return Ok(());
    };
    Err(DefinitionError::invalid(format!(
        "Invalid Weights: {problem}"
    )))
}

/// Rules for a service's metadata: sizes, characters, and the reserved prefix, which one key of mesh gateways may have.
///
/// # Errors
/// Consul's text about the first pair, in key order, that breaks a rule.
pub fn service_meta(kind: &ServiceKind, meta: &StringMap) -> Result<(), DefinitionError> {
    if meta.len() > META_PAIRS {
        return Err(DefinitionError::invalid(format!(
            "Node metadata cannot contain more than {META_PAIRS} key/value pairs"
        )));
    }
    for (key, value) in meta {
        let allowed = key == META_WAN_FEDERATION && *kind == ServiceKind::MeshGateway;
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let problem = if key.is_empty() {
            "Key cannot be blank".to_owned()
        } else if !key.chars().all(word) {
            "Key contains invalid characters".to_owned()
        } else if key.len() > META_KEY {
            format!("Key is too long (limit: {META_KEY} characters)")
        } else if key.starts_with("consul-") && !allowed {
            "Key prefix 'consul-' is reserved for internal use".to_owned()
        } else if value.len() > META_VALUE {
            format!("Value is too long (limit: {META_VALUE} characters)")
        } else {
            continue;
        };
        return Err(DefinitionError::invalid(format!(
            "Couldn't load metadata pair ('{key}', '{value}'): {problem}"
        )));
    }
    Ok(())
}

/// Rules for what an instance of each kind may say.
///
/// # Errors
/// All rules broken, listed as Consul lists them.
pub fn service_rules(service: &NodeService, sidecar: Sidecar) -> Result<(), DefinitionError> {
    let mut problems = Vec::new();
    match &service.kind {
        ServiceKind::ConnectProxy => connect_proxy(service, &mut problems),
        ServiceKind::MeshGateway
        | ServiceKind::TerminatingGateway
        | ServiceKind::IngressGateway => gateway(service, sidecar, &mut problems),
        ServiceKind::Typical | ServiceKind::Other(_) => {}
    }
    if sidecar == Sidecar::Nested {
        problems.push("A SidecarService cannot have a nested SidecarService".to_owned());
    }
    multierror(&problems).map_or(Ok(()), |text| Err(DefinitionError::invalid(text)))
}

/// The value of the WAN federation mark if it is one that does not count: only `1` does (C016). Others are kept, as in
/// Consul, but hardly meant.
pub fn useless_federation_mark(service: &NodeService) -> Option<&str> {
    let value = service.meta.get(META_WAN_FEDERATION)?;
    (value != "1").then_some(value)
}

fn gateway(service: &NodeService, sidecar: Sidecar, problems: &mut Vec<String>) {
    let kind = service.kind.as_str();
    let mut add = |broken: bool, text: String| {
        if broken {
            problems.push(text);
        }
    };
    let needs_port = service.kind != ServiceKind::IngressGateway;
    add(
        needs_port && service.port == 0,
        format!("Port must be non-zero for a {kind}"),
    );
    add(
        sidecar != Sidecar::None,
        format!("A {kind} cannot have a sidecar service defined"),
    );
    let proxy = &service.proxy;
    let fields = [
        (
            "DestinationServiceName",
            !proxy.destination_service_name.is_empty(),
        ),
        (
            "DestinationServiceID",
            !proxy.destination_service_id.is_empty(),
        ),
        (
            "LocalServiceAddress",
            !proxy.local_service_address.is_empty(),
        ),
        ("LocalServicePort", proxy.local_service_port != 0),
        ("Upstreams", !proxy.upstreams.is_empty()),
    ];
    for (field, given) in fields {
        let text = format!("The Proxy.{field} configuration is invalid for a {kind}");
        add(given, text);
    }
    add(
        service.connect.native,
        format!("A {kind} cannot be Connect Native"),
    );
}

fn connect_proxy(service: &NodeService, problems: &mut Vec<String>) {
    let mut add = |broken: bool, text: &str| {
        if broken {
            problems.push(text.to_owned());
        }
    };
    let destination = service.proxy.destination_service_name.as_str().trim();
    add(
        destination.is_empty(),
        "Proxy.DestinationServiceName must be non-empty for Connect proxy services",
    );
    add(
        destination == "*",
        "Proxy.DestinationServiceName must not be a wildcard for Connect proxy services",
    );
    add(service.port == 0, "Port must be set for a Connect proxy");
    add(
        service.connect.native,
        "A Proxy cannot also be Connect Native, only typical services",
    );
    let (mut binds, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for upstream in &service.proxy.upstreams {
        if upstream.destination_name.is_empty() {
            add(true, "upstream destination name cannot be empty");
            continue;
        }
        if upstream.local_bind_port == 0 {
            add(true, "upstream local bind port cannot be zero");
            continue;
        }
        let address = match upstream.local_bind_address.as_str() {
            "" => "127.0.0.1",
            given => given,
        };
        let bind = format!("{address}:{}", upstream.local_bind_port);
        let target = format!(
            "[type={:?}, name={:?}, namespace={:?}, datacenter={:?}]",
            upstream.destination_type,
            upstream.destination_name,
            upstream.destination_namespace,
            upstream.datacenter
        );
        if !binds.insert(bind.clone()) {
            let text = format!(
                "upstreams cannot contain duplicates by local bind address and port; {bind:?} is specified twice"
            );
            add(true, &text);
        }
        if !targets.insert(target.clone()) {
            add(
                true,
                &format!("upstreams cannot contain duplicates of {target}"),
            );
        }
    }
}
