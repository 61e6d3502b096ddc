//! Opens the ports and accepts gRPC connections.

use crate::config::settings::Addresses;
use crate::config::settings::ListenAddr;
use crate::gossip::{Inbox, UdpTcp};
use crate::net;
use crate::net::ClientLimit;
use crate::net::Place;
use crate::net::Stream;
use crate::net::Tls;
use crate::telemetry::Quiet;
use futures_util::future::BoxFuture;
use futures_util::stream;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use tracing::warn;

/// Longest TLS handshake on the gRPC port.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Rest after a failed accept, which mostly means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepted connections that may wait for the gRPC server.
const WAITING: usize = 1024;

/// Everything this server listens on.
pub(super) struct Ports {
    /// Gossip of the datacenter.
    pub(super) serf_lan: (UdpTcp, Inbox),
    pub(super) edges: Edges,
}

/// Where clients and other servers are served.
pub(super) struct Edges {
    pub(super) rpc: TcpListener,
    pub(super) http: Vec<TcpListener>,
    pub(super) https: Vec<TcpListener>,
    pub(super) grpc: Vec<TcpListener>,
    pub(super) grpc_tls: Vec<TcpListener>,
}

impl Edges {
    /// # Errors
    /// If a port is open that needs a certificate and there is none.
    pub(super) fn check_certificates(&self, tls: &Tls) -> anyhow::Result<()> {
        for (key, open, can) in [
            (
                "ports.https",
                !self.https.is_empty(),
                tls.https_server().is_some(),
            ),
            (
                "ports.grpc_tls",
                !self.grpc_tls.is_empty(),
                tls.grpc_server().is_some(),
            ),
        ] {
            anyhow::ensure!(
                can || !open,
                "{key}: needs a certificate; set cert_file and key_file, or {key} = -1"
            );
        }
        Ok(())
    }
}

/// Opens all ports, so that one in use ends the start before anything else has begun.
pub(super) fn bind(addresses: &Addresses) -> anyhow::Result<Ports> {
    let edges = Edges {
        rpc: net::listen(addresses.rpc_bind, "ports.server")?,
        http: listen_all(&addresses.http, "ports.http")?,
        https: listen_all(&addresses.https, "ports.https")?,
        grpc: listen_all(&addresses.grpc, "ports.grpc")?,
        grpc_tls: listen_all(&addresses.grpc_tls, "ports.grpc_tls")?,
    };
    let serf_lan = UdpTcp::bind(addresses.serf_lan_bind, "ports.serf_lan")?;
    Ok(Ports { serf_lan, edges })
}

fn listen_all(addresses: &[ListenAddr], key: &'static str) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        match address {
            ListenAddr::Tcp(address) => listeners.push(net::listen(*address, key)?),
            ListenAddr::Unix(path) => {
                warn!(key, path = %path.display(), "Unix sockets are not served yet; use a TCP address");
            }
        }
    }
    Ok(listeners)
}

/// The listeners of the gRPC ports.
pub(super) struct Grpc {
    plain: Vec<TcpListener>,
    tls: Vec<TcpListener>,
}

impl Grpc {
    pub(super) fn new(plain: Vec<TcpListener>, tls: Vec<TcpListener>) -> Self {
        Self { plain, tls }
    }

    /// Connections of all listeners, those with TLS after their handshake. A slow handshake holds up nobody else. `spawn`
    /// gets the task of each listener.
    pub(super) fn accept(
        self,
        tls: &Arc<Tls>,
        limit: &ClientLimit,
        stop: &CancellationToken,
        spawn: &mut dyn FnMut(BoxFuture<'static, ()>),
    ) -> impl stream::Stream<Item = (Stream, SocketAddr)> + use<> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let quiet = Arc::new(Quiet::default());
        let plain = self.plain.into_iter().map(|listener| (listener, None));
        let tls = self
            .tls
            .into_iter()
            .map(|listener| (listener, Some(tls.clone())));
        for (listener, tls) in plain.chain(tls) {
            let door = Door {
                tls,
                limit: limit.clone(),
                quiet: quiet.clone(),
            };
            spawn(Box::pin(accept(
                listener,
                Arc::new(door),
                sender.clone(),
                stop.clone(),
            )));
        }
        tokio_stream::wrappers::ReceiverStream::new(receiver)
    }
}

/// What a connection passes on its way in.
struct Door {
    tls: Option<Arc<Tls>>,
    limit: ClientLimit,
    quiet: Arc<Quiet>,
}

async fn accept(
    listener: TcpListener,
    door: Arc<Door>,
    ready: mpsc::Sender<(Stream, SocketAddr)>,
    stop: CancellationToken,
) {
    let mut handshakes = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = handshakes.join_next() => continue,
            () = stop.cancelled() => break,
        };
        match accepted {
            Ok((tcp, peer)) => {
                let Some(place) = door.admit(peer) else {
                    continue;
                };
                let (door, ready) = (door.clone(), ready.clone());
                handshakes.spawn(async move {
                    if let Some(mut stream) = door.open(tcp, peer).await {
                        stream.keep(Box::new(place));
                        let _ = ready.send((stream, peer)).await; // Nobody takes it when the server stops.
                    }
                });
            }
            Err(error) => {
                let own = IpAddr::from(Ipv4Addr::UNSPECIFIED);
                if let Some(unsaid) = door.quiet.speak(now(), own, "accept") {
                    warn!(%error, unsaid, "cannot accept gRPC connections; are there too many open files?");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Door {
    /// A place for one more connection; without one it is closed without a word, as on the RPC port.
    fn admit(&self, peer: SocketAddr) -> Option<Place> {
        let address = peer.ip().to_canonical();
        let place = self.limit.admit(address);
        if place.is_none() {
            metrics::counter!("crossway.xds.refused_connections").increment(1);
            if let Some(unsaid) = self.quiet.speak(now(), address, "limit") {
                warn!(
                    client = %address,
                    unsaid,
                    "gRPC connection refused: the address has as many as limits.grpc_max_conns_per_client allows"
                );
            }
        }
        place
    }

    async fn open(&self, tcp: TcpStream, peer: SocketAddr) -> Option<Stream> {
        if let Err(error) = Stream::tune(&tcp) {
            debug!(%peer, %error, "socket options could not be set");
        }
        let Some(tls) = &self.tls else {
            return Some(Stream::plain(tcp));
        };
        let handshake = Stream::accept_tls(tcp, tls.grpc_server()?);
        let error = match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                debug!(%peer, "gRPC: the client closed the connection before TLS was set up");
                return None; // A port probe, or a health check of a load balancer.
            }
            Ok(Err(error)) => net::describe_handshake(&error),
            Err(_) => format!("it was not done within {HANDSHAKE:?}"),
        };
        if let Some(unsaid) = self.quiet.speak(now(), peer.ip(), &error) {
            warn!(%peer, error, unsaid, "gRPC connection refused: TLS handshake failed");
        }
        None
    }
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Instant {
    Instant::now()
}
