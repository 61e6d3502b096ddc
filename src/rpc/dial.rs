//! Making a connection to a server: TCP, TLS when it is on, and the byte or ALPN name that says what is spoken.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::net::Stream;
use crate::net::Tls;
use crate::net::TlsClient;
use crate::net::TlsError;
use crate::net::alpn;
use crate::net::describe_handshake;
use crate::net::server_name;

/// How long TCP and TLS may take.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A server to call and how to reach it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Where to connect: the server itself, or a mesh gateway on the way to it.
    pub address: SocketAddr,
    /// The server's datacenter.
    pub datacenter: String,
    /// The server's short node name; empty or `*` for any server of the datacenter.
    pub node: String,
    /// How the connection is protected.
    pub security: Security,
    /// Many calls side by side over yamux, or one after the other on a single stream.
    pub multiplexed: bool,
}

/// How a connection to a server is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// Not at all.
    Plain,
    /// Type byte 3, then TLS: inside a datacenter.
    TypeByte,
    /// Native TLS with ALPN: through mesh gateways. The SNI is the server's name, or the one given here.
    Native {
        /// Overrides `<node>.server.<datacenter>.<domain>`.
        sni: Option<String>,
    },
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// One net/rpc stream.
    Single,
    /// net/rpc streams over yamux.
    Multi,
    /// Raft.
    Raft,
    /// One snapshot, to be saved or restored.
    Snapshot,
}

impl Channel {
    /// The type byte, for connections that have one.
    fn byte(self) -> u8 {
        match self {
            Self::Single => 0,
            Self::Raft => 1,
            Self::Multi => 4,
            Self::Snapshot => 5,
        }
    }

    /// The ALPN name, for connections of native TLS.
    fn alpn(self) -> &'static str {
        match self {
            Self::Single => alpn::RPC_SINGLE,
            Self::Raft => alpn::RAFT,
            Self::Multi => alpn::RPC_MULTI,
            Self::Snapshot => alpn::RPC_SNAPSHOT,
        }
    }
}

/// Why a connection could not be made; nothing was asked of the server.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The system says so.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// TLS is not set up for it here.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The two ends do not agree on TLS.
    #[error("TLS handshake as {name}: {reason}")]
    Handshake {
        /// The name that the server's certificate should have.
        name: String,
        /// What was wrong.
        reason: String,
    },
    /// The server knows nothing of the protocol.
    #[error("the server does not speak {0} (no such ALPN protocol)")]
    Alpn(&'static str),
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
}

/// Connects to `target`; `limit` is for TCP, TLS and all.
///
/// # Errors
/// See [`DialError`].
pub async fn dial(
    target: &Target,
    channel: Channel,
    tls: &Tls,
    limit: Duration,
) -> Result<Stream, DialError> {
    let dialled = timeout(limit, dial_now(target, channel, tls)).await;
    dialled.unwrap_or(Err(DialError::Timeout(limit)))
}

async fn dial_now(target: &Target, channel: Channel, tls: &Tls) -> Result<Stream, DialError> {
    let mut tcp = Stream::connect(target.address).await?;
    let byte = channel.byte();
    match &target.security {
        Security::Plain => {
            tcp.write_all(&[byte]).await?;
            Ok(Stream::plain(tcp))
        }
        Security::TypeByte => {
            let client = tls.lan_client(&target.datacenter, target.address.ip())?;
            tcp.write_all(&[3]).await?;
            let mut stream = handshake(tcp, client).await?;
            stream.write_all(&[byte]).await?;
            stream.flush().await?;
            Ok(stream)
        }
        Security::Native { sni } => {
            let wanted = channel.alpn();
            let own = || server_name(&target.node, &target.datacenter, &tls.domain());
            let name = sni.clone().unwrap_or_else(own);
            let stream = handshake(tcp, tls.tool_client(&name, wanted)?).await?;
            match stream.alpn() {
                Some(name) if name == wanted.as_bytes() => Ok(stream),
                _ => Err(DialError::Alpn(wanted)),
            }
        }
    }
}

async fn handshake(tcp: TcpStream, client: TlsClient) -> Result<Stream, DialError> {
    let name = client.name.to_str().into_owned();
    let connected = Stream::connect_tls(tcp, client).await;
    connected.map_err(|error| DialError::Handshake {
        name,
        reason: describe_handshake(&error),
    })
}
