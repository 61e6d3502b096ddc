//! From a new TCP connection to the protocol on it: type byte, TLS, ALPN.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::compat::FuturesAsyncReadCompatExt;
use tokio_util::compat::TokioAsyncReadCompatExt;

use crate::hooks::ConnectionKind;
use crate::hooks::Edition;
use crate::net::Place;
use crate::net::Stream;
use crate::net::Tls;
use crate::net::describe_handshake;
use crate::rpc::CallContext;
use crate::rpc::Handler;
use crate::rpc::Transport;
use crate::rpc::budget::Budget;
use crate::rpc::route;
use crate::rpc::route::ByteRules;
use crate::rpc::route::MAX_TYPE_BYTE;
use crate::rpc::route::Protocol;
use crate::rpc::route::Refusal;
use crate::rpc::route::Route;
use crate::rpc::session;
use crate::rpc::session::Caller;
use crate::rpc::session::SessionError;
use crate::rpc::yamux_config;

/// A connection for another module, ready to be spoken on.
#[derive(Debug)]
pub struct Incoming {
    /// The decrypted stream.
    pub stream: Stream,
    /// Who is at the other end.
    pub context: CallContext,
}

/// The modules that take connections of their own protocols. A connection nobody takes is closed.
#[derive(Debug, Default)]
pub struct Plugs {
    senders: HashMap<Protocol, mpsc::Sender<Incoming>>,
}

impl Plugs {
    /// Registers for the connections of `protocol`; at most `waiting` connections wait to be received.
    pub fn plug(&mut self, protocol: Protocol, waiting: usize) -> mpsc::Receiver<Incoming> {
        let (sender, receiver) = mpsc::channel(waiting.max(1));
        self.senders.insert(protocol, sender);
        receiver
    }
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    #[error("no first byte within limits.rpc_handshake_timeout")]
    NoFirstByte,
    #[error("no TLS handshake within limits.rpc_handshake_timeout")]
    SlowHandshake,
    #[error("TLS handshake failed: {0}")]
    Handshake(String),
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("unrecognized RPC byte: {0}")]
    UnknownByte(u8),
    #[error("unrecognized ALPN protocol: {0:?}")]
    UnknownAlpn(String),
    #[error("nobody here serves {0:?} connections")]
    NotPlugged(Protocol),
    #[error("{0}")]
    Session(#[from] SessionError),
    #[error("multiplexing: {0}")]
    Yamux(#[from] yamux::ConnectionError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// What all connections share.
pub(super) struct Mux<H> {
    pub(super) tls: Arc<Tls>,
    pub(super) plugs: Plugs,
    pub(super) edition: Arc<dyn Edition>,
    pub(super) handler: H,
}

/// A TCP connection that was let in.
pub(super) struct Accepted {
    pub(super) tcp: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: Place,
    pub(super) budget: Budget,
    /// For the first byte and for each TLS handshake.
    pub(super) handshake: Option<Duration>,
}

/// A stream on which the protocol is about to be decided.
struct Opened {
    stream: Stream,
    context: CallContext,
    budget: Budget,
    handshake: Option<Duration>,
}

async fn deadline<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => timeout(limit, future).await.ok(),
        None => Some(future.await),
    }
}

impl<H: Handler> Mux<H> {
    /// Serves one connection to its end.
    pub(super) async fn serve(&self, accepted: Accepted) -> Result<(), ConnectionError> {
        let Accepted {
            tcp,
            peer,
            place,
            budget,
            handshake,
        } = accepted;
        Stream::tune(&tcp)?;
        let mut first = [0];
        let peeked = deadline(handshake, tcp.peek(&mut first)).await;
        if peeked.ok_or(ConnectionError::NoFirstByte)?? == 0 {
            return Ok(()); // A port probe, or a health check of a load balancer.
        }
        let [byte] = first;
        let native = self.tls.native_server().filter(|_| byte > MAX_TYPE_BYTE);
        let is_native = native.is_some();
        let (mut stream, transport) = match native {
            Some(config) => (tls(tcp, config, handshake).await?, Transport::Tls),
            None => (Stream::plain(tcp), Transport::Plain),
        };
        stream.keep(Box::new(place));
        let opened = opened(stream, (peer, transport), budget, handshake);
        if is_native {
            self.by_alpn(opened).await
        } else {
            self.by_byte(opened).await
        }
    }

    async fn by_alpn(&self, opened: Opened) -> Result<(), ConnectionError> {
        let name = opened.stream.alpn().map(String::from_utf8_lossy);
        let name = name.map(|name| name.into_owned());
        match route::by_alpn(name.as_deref()) {
            Route::Unknown => {
                let name = name.unwrap_or_default();
                let kind = ConnectionKind::Alpn(name.clone());
                self.edition(kind, opened, ConnectionError::UnknownAlpn(name))
                    .await
            }
            route => self.dispatch(route, opened).await,
        }
    }

    async fn by_byte(&self, mut opened: Opened) -> Result<(), ConnectionError> {
        let read = deadline(opened.handshake, opened.stream.read_u8()).await;
        let byte = match read.ok_or(ConnectionError::NoFirstByte)? {
            Ok(byte) => byte,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let rules = ByteRules {
            inside_tls: opened.stream.is_tls(),
            can_tls: self.tls.upgrade_server().is_some(),
            verify_incoming: self.tls.verifies_incoming_rpc(),
        };
        match route::by_byte(byte, rules) {
            Route::UpgradeTls => self.upgrade(opened).await,
            Route::InsecureTls => self.insecure(opened).await,
            Route::Unknown => {
                let kind = ConnectionKind::TypeByte(byte);
                self.edition(kind, opened, ConnectionError::UnknownByte(byte))
                    .await
            }
            route => self.dispatch(route, opened).await,
        }
    }

    /// Type byte 3: TLS, then another type byte.
    async fn upgrade(&self, opened: Opened) -> Result<(), ConnectionError> {
        let config = self.tls.upgrade_server().ok_or(Refusal::NoTls)?;
        let opened = encrypt(opened, config, Transport::Tls).await?;
        Box::pin(self.by_byte(opened)).await
    }

    /// Type byte 7: TLS without a client certificate, then one session of two methods.
    async fn insecure(&self, opened: Opened) -> Result<(), ConnectionError> {
        let config = self.tls.insecure_server().ok_or(Refusal::NoTls)?;
        let opened = encrypt(opened, config, Transport::InsecureTls).await?;
        self.dispatch(Route::Single, opened).await
    }

    async fn dispatch(&self, route: Route, opened: Opened) -> Result<(), ConnectionError> {
        match route {
            Route::Single => {
                let caller = self.caller(opened.context);
                Ok(session::serve(opened.stream, caller, opened.budget).await?)
            }
            Route::Multi => self.multiplexed(opened).await,
            Route::Plug(protocol) => self.plug(protocol, opened).await,
            Route::AreaGossip => {
                let error = ConnectionError::UnknownByte(6);
                self.edition(ConnectionKind::Gossip, opened, error).await
            }
            Route::Refuse(refusal) => Err(refusal.into()),
            Route::UpgradeTls | Route::InsecureTls | Route::Unknown => Ok(()),
        }
    }

    fn caller(&self, mut context: CallContext) -> Caller<H> {
        context.is_local_server = self.admit(Protocol::Raft, &context).is_ok();
        Caller {
            handler: self.handler.clone(),
            edition: self.edition.clone(),
            context,
        }
    }

    /// Whether the peer may speak `protocol`.
    fn admit(&self, protocol: Protocol, peer: &CallContext) -> Result<(), Refusal> {
        let (datacenter, domain) = (self.tls.datacenter(), self.tls.domain());
        let own = (self.tls.is_mutual()).then_some((datacenter.as_str(), domain.as_str()));
        route::admit(protocol, peer.peer_identity.as_deref(), own)
    }

    /// Serves a yamux session: each stream is a net/rpc session of its own.
    async fn multiplexed(&self, opened: Opened) -> Result<(), ConnectionError> {
        let caller = self.caller(opened.context);
        let stream = opened.stream.compat();
        let mut connection = yamux::Connection::new(stream, yamux_config(), yamux::Mode::Server);
        let mut sessions = JoinSet::new();
        loop {
            tokio::select! {
                next = poll_fn(|cx| connection.poll_next_inbound(cx)) => {
                    let Some(stream) = next.transpose()? else {
                        return Ok(());
                    };
                    let budget = opened.budget.clone();
                    sessions.spawn(session::serve(stream.compat(), caller.clone(), budget));
                }
                Some(ended) = sessions.join_next() => {
                    if let Ok(Err(error)) = ended {
                        tracing::debug!(peer = %caller.context.peer, %error, "RPC stream closed");
                    }
                }
            }
        }
    }

    /// Hands the connection to the module that speaks `protocol`, and is done with it.
    async fn plug(&self, protocol: Protocol, opened: Opened) -> Result<(), ConnectionError> {
        self.admit(protocol, &opened.context)?;
        let sender = self.plugs.senders.get(&protocol);
        let sender = sender.ok_or(ConnectionError::NotPlugged(protocol))?;
        let incoming = Incoming {
            stream: opened.stream,
            context: opened.context,
        };
        match deadline(opened.handshake, sender.send(incoming)).await {
            Some(Ok(())) => Ok(()),
            _ => Err(ConnectionError::NotPlugged(protocol)),
        }
    }

    /// Offers the connection to the edition; `error` if it does not want it.
    async fn edition(
        &self,
        kind: ConnectionKind,
        opened: Opened,
        error: ConnectionError,
    ) -> Result<(), ConnectionError> {
        match self.edition.connection(kind, Box::new(opened.stream)) {
            Ok(serving) => {
                serving.await;
                Ok(())
            }
            Err(_unserved) => Err(error),
        }
    }
}

fn opened(
    stream: Stream,
    (peer, transport): (SocketAddr, Transport),
    budget: Budget,
    handshake: Option<Duration>,
) -> Opened {
    let context = CallContext {
        peer,
        peer_identity: stream.peer_identity().map(Arc::new),
        transport,
        is_local_server: false, // Told when the protocol is known.
    };
    Opened {
        stream,
        context,
        budget,
        handshake,
    }
}

/// Does the TLS handshake on a plain connection.
async fn encrypt(
    opened: Opened,
    config: Arc<rustls::ServerConfig>,
    transport: Transport,
) -> Result<Opened, ConnectionError> {
    let (peer, handshake, budget) = (opened.context.peer, opened.handshake, opened.budget);
    let (tcp, kept) = opened.stream.into_plain().map_err(|_| Refusal::InnerTls)?;
    let mut stream = tls(tcp, config, handshake).await?;
    if let Some(kept) = kept {
        stream.keep(kept);
    }
    Ok(self::opened(stream, (peer, transport), budget, handshake))
}

async fn tls(
    tcp: TcpStream,
    config: Arc<rustls::ServerConfig>,
    handshake: Option<Duration>,
) -> Result<Stream, ConnectionError> {
    let accepted = deadline(handshake, Stream::accept_tls(tcp, config)).await;
    let accepted = accepted.ok_or(ConnectionError::SlowHandshake)?;
    accepted.map_err(|error| ConnectionError::Handshake(describe_handshake(&error)))
}
