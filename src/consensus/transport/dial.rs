//! Connects to a peer's RPC port for raft.
//!
//! With certificates on both sides this is native TLS with the ALPN name `consul/raft`, not type byte 3: the port then
//! demands our certificate within the handshake, ours verifies the name `server.<datacenter>.<domain>` whatever
//! `verify_server_hostname` says, and nothing is left to agree on behind it. Without TLS it is type byte 1.

use crate::consensus::transport::TransportError;
use crate::consensus::transport::wire::{Greeting, WireError, read_answer};
use crate::net::{Stream, Tls, TlsError, alpn, describe_handshake, server_name};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long TCP, TLS and the greeting may take together. Longer than a lost SYN takes to be sent again.
const LIMIT: Duration = Duration::from_secs(3);
/// Type byte of raft on the RPC port.
const TYPE_BYTE: u8 = 1;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("its address cannot be looked up: {0}")]
    Lookup(io::Error),
    #[error("its address has no IP address")]
    NoAddress,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("TLS handshake as {name}: {reason}")]
    Handshake { name: String, reason: String },
    #[error("it does not speak {} (no such ALPN protocol)", alpn::RAFT)]
    Alpn,
    #[error(
        "it closed the connection instead of greeting; is it a server of Consul, or does our certificate lack the name server.<datacenter>.<domain>?"
    )]
    Closed,
    #[error("{0}")]
    Wire(WireError),
    #[error("no connection within {LIMIT:?}")]
    Slow,
}

/// Dials one address.
#[derive(Clone)]
pub(crate) struct Dialler {
    address: String,
    tls: Arc<Tls>,
    me: Greeting,
}

impl Dialler {
    pub(crate) fn new(address: String, tls: Arc<Tls>, me: Greeting) -> Self {
        Self { address, tls, me }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Connects, greets and is greeted.
    pub(crate) async fn dial(&self) -> Result<Stream, TransportError> {
        let dialled = timeout(LIMIT, self.connect()).await;
        dialled
            .unwrap_or(Err(DialError::Slow))
            .map_err(|error| TransportError(format!("{}: {error}", self.address)))
    }

    async fn connect(&self) -> Result<Stream, DialError> {
        let found = lookup_host(&self.address).await;
        let address = found.map_err(DialError::Lookup)?.next();
        let mut tcp = Stream::connect(address.ok_or(DialError::NoAddress)?).await?;
        let mut stream = if self.tls.is_mutual() {
            let name = server_name("", &self.tls.datacenter(), &self.tls.domain());
            let client = self.tls.named_client(&name, alpn::RAFT)?;
            let connected = Stream::connect_tls(tcp, client).await;
            let stream = connected.map_err(|error| DialError::Handshake {
                name,
                reason: describe_handshake(&error),
            })?;
            if stream.alpn() != Some(alpn::RAFT.as_bytes()) {
                return Err(DialError::Alpn);
            }
            stream
        } else {
            tcp.write_all(&[TYPE_BYTE]).await?;
            Stream::plain(tcp)
        };
        stream.write_all(&self.me.encode()).await?;
        stream.flush().await?;
        read_answer(&mut stream)
            .await
            .map_err(|error| match error {
                WireError::Io(_) => DialError::Closed,
                other => DialError::Wire(other),
            })?;
        Ok(stream)
    }
}
