//! What the integration tests share.

#[allow(dead_code)] // Each test uses its part.
pub(crate) mod peers;
