//! `/v1/agent`: services and checks of this server, and the server itself.

mod checks;
mod control;
mod health;
mod myself;
mod services;

use crate::api::agent::AgentError;
use crate::http::error::HttpError;
use crate::http::table::{Route, route};

/// The endpoints.
pub static ROUTES: &[Route] = &[
    route!(Get, "/v1/agent/self", myself::myself),
    route!(Get, "/v1/agent/members", myself::members),
    route!(Put, "/v1/agent/join/", control::join),
    route!(Put, "/v1/agent/leave", control::leave),
    route!(Put, "/v1/agent/force-leave/", control::force_leave),
    route!(Put, "/v1/agent/reload", control::reload),
    route!(Get, "/v1/agent/version", myself::version),
    route!(Get, "/v1/agent/metrics", myself::metrics),
    route!(Get, "/v1/agent/services", services::all),
    route!(Get, "/v1/agent/service/", services::one),
    route!(Put, "/v1/agent/service/register", services::register),
    route!(Put, "/v1/agent/service/deregister/", services::deregister),
    route!(Get, "/v1/agent/checks", checks::all),
    route!(Put, "/v1/agent/check/register", checks::register),
    route!(Put, "/v1/agent/check/deregister/", checks::deregister),
    route!(Put, "/v1/agent/check/pass/", checks::pass),
    route!(Put, "/v1/agent/check/warn/", checks::warn),
    route!(Put, "/v1/agent/check/fail/", checks::fail),
    route!(Put, "/v1/agent/check/update/", checks::update),
    route!(Get, "/v1/agent/health/service/id/", health::by_id),
    route!(Get, "/v1/agent/health/service/name/", health::by_name),
    route!(Get, "/v1/agent/connect/ca/roots", myself::roots),
    route!(Get, "/v1/agent/connect/ca/leaf/", myself::leaf),
];

impl From<AgentError> for HttpError {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Decode(text) => Self::bad(format!("Request decode failed: {text}")),
            AgentError::Invalid(text) => Self::bad(text),
            AgentError::Failed(text) => Self::internal(text),
        }
    }
}
