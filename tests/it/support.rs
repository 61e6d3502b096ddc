//! What the integration tests share.

#[allow(dead_code)] // Each test uses its part.
pub(crate) mod agent;
pub(crate) mod certs;
pub(crate) mod gateways;
#[allow(dead_code)] // Each test uses its part.
pub(crate) mod peers;
#[allow(dead_code)] // Each test uses its part.
pub(crate) mod xds;
