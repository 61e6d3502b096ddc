//! Bytes to calls: first-byte and ALPN dispatch, multiplexing, net/rpc framing, client.
//!
//! A connection on the RPC port passes through these parts; each knows only the next:
//!
//! ```text
//! listener -> server (accept, limits) -> mux (type byte, TLS, ALPN) -> yamux -> session (net/rpc) -> Handler
//!                                         \-> Incoming: raft, snapshots, gossip of other datacenters
//! ```
//!
//! [`crate::codec`] is the msgpack dialect. The calling side is `dial` (a connection), `client` (a session of many calls)
//! and `pool` (a session per server, shared by all who call it). `route` decides what a byte or a
//! name means, without any I/O. Nothing here knows a method by name (but for the two that a peer without a
//! certificate may call), nor what a body means.

mod budget;
pub mod client;
pub mod dial;
pub mod error;
mod limits;
mod mux;
pub mod pool;
mod route;
mod server;
mod session;
mod wire;

pub use client::ClientError;
pub use client::Session;
pub use dial::Channel;
pub use dial::DialError;
pub use dial::Security;
pub use dial::Target;
pub use error::RpcError;
pub use limits::Limits;
pub use mux::Incoming;
pub use mux::Plugs;
pub use pool::Destination;
pub use pool::Dial;
pub use pool::Lan;
pub use pool::Pool;
pub use route::Protocol;
pub use server::ServerConfig;
pub use server::serve;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use crate::net::PeerIdentity;

/// Largest msgpack value a peer may send in one request or reply, in bytes.
pub const MAX_BODY: usize = 64 * 1024 * 1024;

/// Bytes of requests that one address may have under way, in sum: four of the largest.
pub const MAX_HELD_PER_CLIENT: usize = 4 * MAX_BODY;

/// As [`MAX_HELD_PER_CLIENT`], for a local mesh gateway: all other datacenters come through it.
pub const MAX_HELD_PER_GATEWAY: usize = 16 * MAX_BODY;

/// Yamux streams that may be open on one connection. A client agent has one per blocking query.
const MAX_STREAMS: usize = 4096;

/// What the caller's connection tells about it.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// Address of the other end of the TCP connection: a mesh gateway's for callers in other datacenters.
    pub peer: SocketAddr,
    /// Names in the verified certificate of the peer; `None` without TLS or without a certificate.
    pub peer_identity: Option<Arc<PeerIdentity>>,
    /// How the connection is protected.
    pub transport: Transport,
    /// Whether the peer may speak as a server of this datacenter: it has such a certificate, or nobody has one because
    /// this server is set up without TLS.
    pub is_local_server: bool,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// No TLS.
    Plain,
    /// TLS; the peer's certificate, if it has one, was verified.
    Tls,
    /// TLS that never asks for a certificate (type byte 7): two bootstrap methods only.
    InsecureTls,
}

/// Answers the calls that arrive on the RPC port.
pub trait Handler: Clone + Send + Sync + 'static {
    /// Answers one call; `body` and the reply are one msgpack value each (see [`crate::codec`]).
    ///
    /// The future is dropped when the caller's connection or stream ends.
    ///
    /// # Errors
    /// The error's text is what the caller gets as net/rpc error; see [`RpcError`] for what it does to the stream.
    fn call(
        &self,
        ctx: CallContext,
        method: &str,
        body: Bytes,
    ) -> impl Future<Output = Result<Bytes, RpcError>> + Send;
}

/// The yamux settings of both sides.
fn yamux_config() -> yamux::Config {
    /// What all streams of a connection may buffer: the protocol's 256 KiB each, and as much again for streams
    /// that are fast over long distances.
    const WINDOW: usize = 2 * MAX_STREAMS * yamux::DEFAULT_CREDIT as usize;
    let mut config = yamux::Config::default();
    config.set_max_connection_receive_window(Some(WINDOW));
    config.set_max_num_streams(MAX_STREAMS);
    config
}
