//! Which Envoys this control plane is made for.

/// The oldest Envoy that understands everything we send (major, minor, patch): 1.34 brought the cluster extension for DNS
/// names. Newer ones are never refused.
pub const MINIMUM_ENVOY: (u32, u32, u32) = (1, 34, 0);
