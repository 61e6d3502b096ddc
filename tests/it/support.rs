//! What the integration tests share.

pub(crate) mod certs;
pub(crate) mod gateways;
#[allow(dead_code)] // Each test uses its part.
pub(crate) mod peers;
#[allow(dead_code)] // Each test uses its part.
pub(crate) mod xds;
