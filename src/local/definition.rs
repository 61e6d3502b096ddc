//! Definitions of services and checks, from HTTP bodies and configuration files alike.
//!
//! Keys are found whatever their case, with or without underscores: `TaggedAddresses`, `tagged_addresses` and
//! `taggedaddresses` are one. A key that nobody knows is refused. Error texts are Consul's where it has one.

mod check;
mod decode;
mod service;
mod validate;

pub use check::CheckDefinition;
pub use decode::DecodeError;
pub use service::{ServiceDefinition, Sidecar};
pub use validate::{service_meta, service_rules, useless_federation_mark};

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DefinitionError {
    /// It has another form than a definition.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It says something that cannot be.
    #[error("{0}")]
    Invalid(String),
}

impl DefinitionError {
    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

#[cfg(test)]
mod tests;
