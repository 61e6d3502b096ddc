//! Entry for fuzzing the bodies of agent registrations.

use crate::http::decode;
use crate::local::checks::Limits;
use crate::local::{CheckDefinition, ServiceDefinition};

/// A body, read as a service and as a check, through all rules.
pub fn fuzz_agent_body(data: &[u8]) {
    let Ok(value) = decode::value(data) else {
        return;
    };
    if let Ok(mut service) = ServiceDefinition::parse(&value) {
        let _ = service.validate(Limits::default());
        service.complete();
    }
    if let Ok(check) = CheckDefinition::parse(&value) {
        let _ = check.validate(Limits::default());
    }
}
