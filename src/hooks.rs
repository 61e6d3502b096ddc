//! The seam for other editions: one trait whose default methods do nothing.
//!
//! The composition root passes one `Edition` to the parts that ask it something; nothing else knows that
//! other editions exist. The open edition is [`Open`].

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream an edition can take over: a plain or an already decrypted TLS connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A stream handed to an edition.
pub type BoxedStream = Box<dyn ByteStream>;

/// A task that serves one connection until it ends.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How a connection on the RPC port named its protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A type byte that the RPC port does not know, already read from the stream.
    TypeByte(u8),
    /// A name negotiated with ALPN (RFC 7301) that the RPC port does not serve itself.
    Alpn(String),
    /// Type byte 6 or ALPN `consul/rpc-gossip`: gossip of network areas.
    Gossip,
}

/// What an edition may add. Every method has a default that adds nothing.
pub trait Edition: Send + Sync + 'static {
    /// ALPN names to offer on the RPC port besides the built-in ones.
    fn alpn_protocols(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes over a connection of a protocol that the server does not know, always with the decrypted stream.
    ///
    /// # Errors
    /// Gives the stream back when the edition does not serve `kind`; the server then closes it.
    fn connection(
        &self,
        kind: ConnectionKind,
        stream: BoxedStream,
    ) -> Result<Serving, BoxedStream> {
        let _ = kind;
        Err(stream)
    }

    /// Adds or changes gossip tags before they are advertised, in every pool.
    fn tags(&self, tags: &mut BTreeMap<String, String>) {
        let _ = tags;
    }

    /// Names of gossip pools besides LAN and WAN; tag changes must reach them too.
    fn extra_pools(&self) -> Vec<String> {
        Vec::new()
    }

    /// New tags for one of the [`extra_pools`](Self::extra_pools).
    fn advertise(&self, pool: &str, tags: &BTreeMap<String, String>) {
        let _ = (pool, tags);
    }

    /// This server became the leader of its datacenter.
    fn leadership_started(&self) {}

    /// This server is the leader no more; called after its leader tasks ended.
    fn leadership_ended(&self) {}

    /// Looks at an RPC request (msgpack `body`) before it is served.
    ///
    /// # Errors
    /// The text that the caller gets instead of an answer.
    fn validate_request(&self, method: &str, body: &[u8]) -> Result<(), String> {
        let _ = (method, body);
        Ok(())
    }
}

/// The open edition: adds nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Edition for Open {}
