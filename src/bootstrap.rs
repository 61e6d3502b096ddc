//! Envoy bootstrap configuration for `connect envoy`.
