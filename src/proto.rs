//! Generated protobuf code and the few aliases for it.
//!
//! Envoy's messages come from the `envoy-types` package; `proto/` holds our own API. Mind that `envoy-types` has its
//! own `google.protobuf` types, which are not those of `prost-types`.

pub use envoy_types::pb::envoy;
pub use envoy_types::pb::google;

/// Our own messages and services.
pub mod crossway {
    /// The read-only API for operators, version 1.
    #[allow(missing_docs, clippy::all, clippy::pedantic)] // Generated from proto/crossway/v1.
    pub mod v1 {
        tonic::include_proto!("crossway.v1");
    }
}

/// The encoded `FileDescriptorSet` of every Envoy message, filters and extensions included, without comments.
pub const ENVOY_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.bin"));

/// The encoded `FileDescriptorSet` of our own services, with comments.
pub const CROSSWAY_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/crossway.bin"));
