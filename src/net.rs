//! TLS configuration, ALPN names, listeners and byte streams.
//!
//! This is where bytes get in and out: [`Tls`] is what the configured files mean as rustls configurations, and
//! can be replaced while the server runs; [`Stream`] is a TCP connection with or without TLS; [`listen`] opens
//! a port. What a connection is for is decided above, in `rpc`.

pub mod alpn;
pub mod identity;

pub use identity::PeerIdentity;
