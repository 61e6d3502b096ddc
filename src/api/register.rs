//! What a registration must fulfil, whoever sends it.

use crate::api::error::Error;
use crate::model::catalog::META_WAN_FEDERATION;
use crate::model::query::RegisterRequest;
use crate::model::{HealthCheck, NodeService, ServiceKind, Weights};
use std::mem;

/// Checks a catalog registration and fills in what clients may leave out: ids made of names, the node of checks, weights.
///
/// # Errors
/// What is missing or contradictory, in Consul's words.
pub fn normalise(mut request: RegisterRequest) -> Result<RegisterRequest, Error> {
    if request.node.is_empty() {
        return Err(Error::refused("Must provide node"));
    }
    if request.address.is_empty() && !request.skip_node_update {
        let text = "Must provide address if SkipNodeUpdate is not set";
        return Err(Error::refused(text));
    }
    if !request.id.is_empty() && uuid::Uuid::parse_str(request.id.as_str()).is_err() {
        let text = format!("Bad node ID: {:?} is not a UUID", request.id.as_str());
        return Err(Error::refused(text));
    }
    if let Some(service) = &mut request.service {
        if service.id.is_empty() && !service.service.is_empty() {
            service.id = service.service.as_str().into();
        }
        if !service.id.is_empty() && service.service.is_empty() {
            return Err(Error::refused("Must provide service name with ID"));
        }
        service.weights.get_or_insert(Weights::default());
        validate_service(service)?;
    }
    let mut checks = mem::take(&mut request.checks);
    checks.extend(request.check.take());
    for check in &mut checks {
        complete_check(check, &request);
    }
    request.checks = checks;
    Ok(request)
}

fn complete_check(check: &mut HealthCheck, request: &RegisterRequest) {
    if check.check_id.is_empty() && !check.name.is_empty() {
        check.check_id = check.name.as_str().into();
    }
    if check.node.is_empty() {
        check.node = request.node.clone();
    }
}

/// Checks the rules of a service's kind.
///
/// # Errors
/// Every broken rule, in one text.
pub fn validate_service(service: &NodeService) -> Result<(), Error> {
    let problems = match service.kind {
        ServiceKind::ConnectProxy => proxy_problems(service),
        ServiceKind::MeshGateway
        | ServiceKind::TerminatingGateway
        | ServiceKind::IngressGateway => gateway_problems(service),
        ServiceKind::Typical | ServiceKind::Other(_) => Vec::new(),
    };
    Error::multiple(&problems).map_or(Ok(()), Err)
}

fn proxy_problems(service: &NodeService) -> Vec<String> {
    let destination = service.proxy.destination_service_name.as_str().trim();
    let mut problems = Vec::new();
    if destination.is_empty() {
        problems.push("Proxy.DestinationServiceName must be non-empty for Connect proxy services");
    }
    if destination == "*" {
        problems
            .push("Proxy.DestinationServiceName must not be a wildcard for Connect proxy services");
    }
    if service.port == 0 {
        problems.push("Port must be set for a Connect proxy");
    }
    if service.connect.native {
        problems.push("A Proxy cannot also be Connect Native, only typical services");
    }
    problems.into_iter().map(str::to_owned).collect()
}

fn gateway_problems(service: &NodeService) -> Vec<String> {
    let (kind, proxy) = (service.kind.as_str(), &service.proxy);
    let mut problems = Vec::new();
    // An ingress gateway's listeners have their ports in its config entry.
    if service.port == 0 && service.kind != ServiceKind::IngressGateway {
        problems.push(format!("Port must be non-zero for a {kind}"));
    }
    let settings = [
        ("Upstreams", proxy.upstreams.is_empty()),
        (
            "DestinationServiceName",
            proxy.destination_service_name.is_empty(),
        ),
        (
            "DestinationServiceID",
            proxy.destination_service_id.is_empty(),
        ),
        (
            "LocalServiceAddress",
            proxy.local_service_address.is_empty(),
        ),
        ("LocalServicePort", proxy.local_service_port == 0),
    ];
    for (name, unset) in settings {
        if !unset {
            problems.push(format!(
                "The Proxy.{name} configuration is invalid for a {kind}"
            ));
        }
    }
    if service.connect.native {
        problems.push(format!("A {kind} cannot be Connect Native"));
    }
    problems
}

/// The value of the WAN federation mark if it is one that does not count: only `1` does (C016).
pub fn useless_federation_mark(service: &NodeService) -> Option<&str> {
    let value = service.meta.get(META_WAN_FEDERATION)?;
    (value != "1").then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(request: RegisterRequest) -> String {
        normalise(request).unwrap_err().to_string()
    }

    #[test]
    fn a_registration_names_what_is_missing() {
        let mut request = RegisterRequest::default();
        assert_eq!(text(request.clone()), "Must provide node");
        request.node = "n1".into();
        assert_eq!(
            text(request.clone()),
            "Must provide address if SkipNodeUpdate is not set"
        );
        request.address = "10.0.0.1".into();
        request.service = Some(NodeService {
            id: "x".into(),
            ..NodeService::default()
        });
        assert_eq!(text(request.clone()), "Must provide service name with ID");
        request.service = Some(NodeService {
            service: "gw".into(),
            kind: ServiceKind::MeshGateway,
            ..NodeService::default()
        });
        assert_eq!(
            text(request.clone()),
            "1 error occurred:\n\t* Port must be non-zero for a mesh-gateway\n\n"
        );
        request.service = None;
        request.check = Some(HealthCheck {
            name: "ping".into(),
            ..HealthCheck::default()
        });
        let request = normalise(request).unwrap();
        let check = &request.checks[0];
        assert_eq!(
            (check.check_id.as_str(), check.node.as_str()),
            ("ping", "n1")
        );
    }

    #[test]
    fn only_one_marks_a_gateway_for_federation() {
        for (value, useless) in [("1", None), ("true", Some("true")), ("0", Some("0"))] {
            let mut service = NodeService::default();
            service
                .meta
                .insert(META_WAN_FEDERATION.into(), value.into());
            assert_eq!(useless_federation_mark(&service), useless);
        }
    }
}
