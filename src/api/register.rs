//! What a registration must fulfil, whoever sends it.

use crate::api::error::Error;
use crate::local::DefinitionError;
use crate::local::definition::{Sidecar, service_rules};
use crate::model::query::RegisterRequest;
use crate::model::{HealthCheck, Weights};
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
        let broken = |error: DefinitionError| Error::refused(error.to_string());
        service_rules(service, Sidecar::None).map_err(broken)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{NodeService, ServiceKind};

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
}
