//! TLS configuration, ALPN names, listeners and byte streams.
//!
//! This is where bytes get in and out: [`Tls`] is what the configured files mean as rustls configurations, and
//! can be replaced while the server runs; [`Stream`] is a TCP connection with or without TLS; [`listen`] opens
//! a port; [`ClientLimit`] bounds how many connections one address may have. What a connection is for is decided above, in `rpc`.

pub mod alpn;
mod build;
mod counter;
mod error;
pub mod identity;
mod listener;
mod load;
mod reading;
mod settings;
mod stream;
mod tls;
mod verify;

pub use counter::ClientLimit;
pub use counter::Counter;
pub use counter::Place;
pub use error::TlsError;
pub use error::describe_handshake;
pub use identity::PeerIdentity;
pub use listener::ListenError;
pub use listener::listen;
pub use listener::listen_packets;
pub use reading::{ReadBy, Reading};
pub use settings::TlsSettings;
pub use settings::TlsVersion;
pub use stream::Guard;
pub use stream::Stream;
pub use tls::Tls;
pub use tls::TlsClient;
pub use verify::AnyCertificate;

/// Makes aws-lc-rs the cryptography of every part that asks rustls for the process default. Can be called
/// more than once.
pub fn install_crypto_provider() {
    // An error only says that there is a default already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// The name that a server's certificate must have to be reached as `node` of `datacenter`, and the SNI that
/// mesh gateways route on. `domain` may end with a dot; no node, or `*`, means any server of the datacenter.
pub fn server_name(node: &str, datacenter: &str, domain: &str) -> String {
    let domain = domain.trim_matches('.');
    match node {
        "" | "*" => format!("server.{datacenter}.{domain}"),
        node => format!("{node}.server.{datacenter}.{domain}"),
    }
}
