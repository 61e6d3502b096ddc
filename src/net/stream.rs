//! A TCP connection with or without TLS.

use std::any::Any;
use std::io;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::task::Poll;
use std::time::Duration;

use rustls::ServerConfig;
use socket2::SockRef;
use socket2::TcpKeepalive;
use tokio::io::AsyncRead;
use tokio::io::AsyncWrite;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::TlsConnector;
use tokio_rustls::client;
use tokio_rustls::server;

use crate::net::PeerIdentity;
use crate::net::TlsClient;

/// How long a connection is idle before the system asks whether the peer is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Something that lives as long as a stream.
pub type Guard = Box<dyn Any + Send + Sync>;

/// A TCP connection with or without TLS. A peer that ends TLS without `close_notify` is taken to have ended its
/// stream, because Go programs do that.
pub struct Stream {
    io: Io,
    kept: Option<Guard>,
}

enum Io {
    Plain(TcpStream),
    Server(Box<server::TlsStream<TcpStream>>),
    Client(Box<client::TlsStream<TcpStream>>),
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.io {
            Io::Plain(_) => "plain",
            Io::Server(_) => "TLS server",
            Io::Client(_) => "TLS client",
        };
        f.debug_tuple("Stream").field(&kind).finish()
    }
}

impl Stream {
    /// A connection without TLS.
    pub fn plain(tcp: TcpStream) -> Self {
        Self::new(Io::Plain(tcp))
    }

    fn new(io: Io) -> Self {
        Self { io, kept: None }
    }

    /// Makes a TCP connection with no delay and keep-alive.
    ///
    /// # Errors
    /// As the system says; give the future a deadline.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        let tcp = TcpStream::connect(address).await?;
        Self::tune(&tcp)?;
        Ok(tcp)
    }

    /// Switches off delay and switches on keep-alive, on both sides of every connection.
    ///
    /// # Errors
    /// When the connection is closed already.
    pub fn tune(tcp: &TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 3);
        SockRef::from(tcp).set_tcp_keepalive(&keepalive)
    }

    /// Does the server's side of the TLS handshake; give the future a deadline.
    ///
    /// # Errors
    /// See [`crate::net::describe_handshake`] for words.
    pub async fn accept_tls(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<Self> {
        let stream = TlsAcceptor::from(config).accept(tcp).await?;
        Ok(Self::new(Io::Server(Box::new(stream))))
    }

    /// Does the client's side of the TLS handshake; give the future a deadline.
    ///
    /// # Errors
    /// See [`crate::net::describe_handshake`] for words.
    pub async fn connect_tls(tcp: TcpStream, client: TlsClient) -> io::Result<Self> {
        let connector = TlsConnector::from(client.config);
        let stream = connector.connect(client.name, tcp).await?;
        Ok(Self::new(Io::Client(Box::new(stream))))
    }

    /// Keeps `guard` alive as long as the stream: a place among the allowed connections, say.
    pub fn keep(&mut self, guard: Guard) {
        self.kept = Some(guard);
    }

    /// The negotiated ALPN name.
    pub fn alpn(&self) -> Option<&[u8]> {
        match &self.io {
            Io::Plain(_) => None,
            Io::Server(tls) => tls.get_ref().1.alpn_protocol(),
            Io::Client(tls) => tls.get_ref().1.alpn_protocol(),
        }
    }

    /// Whether bytes are encrypted on the wire.
    pub fn is_tls(&self) -> bool {
        !matches!(self.io, Io::Plain(_))
    }

    /// The names in the peer's verified certificate, if it presented one.
    pub fn peer_identity(&self) -> Option<PeerIdentity> {
        let certificates = match &self.io {
            Io::Plain(_) => None,
            Io::Server(tls) => tls.get_ref().1.peer_certificates(),
            Io::Client(tls) => tls.get_ref().1.peer_certificates(),
        };
        let leaf = certificates?.first()?;
        Some(PeerIdentity::from_der(leaf))
    }

    /// The TCP connection and what was kept with it, if there is no TLS on it.
    ///
    /// # Errors
    /// The stream as it was, when it has TLS.
    pub fn into_plain(self) -> Result<(TcpStream, Option<Guard>), Self> {
        match self.io {
            Io::Plain(tcp) => Ok((tcp, self.kept)),
            io => Err(Self {
                io,
                kept: self.kept,
            }),
        }
    }
}

/// Calls a method of the inner stream, whichever it is.
macro_rules! inner {
    ($self:ident, $method:ident $(, $arg:expr)*) => {
        match &mut $self.get_mut().io {
            Io::Plain(s) => Pin::new(s).$method($($arg),*),
            Io::Server(s) => Pin::new(s.as_mut()).$method($($arg),*),
            Io::Client(s) => Pin::new(s.as_mut()).$method($($arg),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match inner!(self, poll_read, cx, buf) {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, poll_write, cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, poll_shutdown, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, poll_write_vectored, cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(s) => s.is_write_vectored(),
            Io::Server(s) => s.is_write_vectored(),
            Io::Client(s) => s.is_write_vectored(),
        }
    }
}
