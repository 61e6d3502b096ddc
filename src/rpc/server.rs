//! Accepts connections on the RPC port, within limits, until told to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::hooks::Edition;
use crate::net::Tls;
use crate::rpc::Handler;
use crate::rpc::limits::Counter;
use crate::rpc::limits::Limits;
use crate::rpc::mux::Accepted;
use crate::rpc::mux::ConnectionError;
use crate::rpc::mux::Mux;
use crate::rpc::mux::Plugs;

/// Rest after a failed accept, which mostly means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// At most one line about refused connections in this time: whoever makes too many makes very many.
const QUIET_TIME: Duration = Duration::from_secs(10);

/// Keeps a message from being repeated all the time.
#[derive(Debug, Default)]
struct Quiet {
    last: Mutex<Option<(Instant, u64)>>,
}

impl Quiet {
    /// Whether to say it now, and how often it was not said since the last time.
    fn speak(&self) -> Option<u64> {
        let mut last = self.last.lock();
        let now = Instant::now();
        match &mut *last {
            Some((spoken, unsaid)) if now.duration_since(*spoken) < QUIET_TIME => {
                *unsaid += 1;
                None
            }
            other => other
                .replace((now, 0))
                .map_or(Some(0), |(_, unsaid)| Some(unsaid)),
        }
    }
}

/// What the RPC port needs besides a listener.
#[derive(Debug)]
pub struct ServerConfig {
    /// The TLS configurations in force.
    pub tls: Arc<Tls>,
    /// What bounds a client; whoever learns new limits or gateways stores them here.
    pub limits: Arc<ArcSwap<Limits>>,
    /// Who takes connections that are not RPC.
    pub plugs: Plugs,
}

/// Serves the RPC port until `shutdown`; then all connections are closed and calls under way dropped.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    config: ServerConfig,
    handler: H,
    hooks: Arc<dyn Edition>,
    shutdown: CancellationToken,
) {
    let mux = Arc::new(Mux {
        tls: config.tls,
        plugs: config.plugs,
        edition: hooks,
        handler,
    });
    let (counter, quiet) = (Counter::default(), Quiet::default());
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((tcp, peer)) => {
                metrics::counter!("rpc.accept_conn").increment(1);
                let limits = config.limits.load();
                if let Some(accepted) = admit(tcp, peer, (&counter, &quiet), &limits) {
                    let span = tracing::debug_span!("rpc", %peer);
                    connections.spawn(connection(mux.clone(), accepted).instrument(span));
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept RPC connections; are there too many open files?");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.shutdown().await;
}

/// Lets a connection in unless its address has enough of them; it is closed without a word then, as in Consul.
fn admit(
    tcp: TcpStream,
    peer: SocketAddr,
    (counter, quiet): (&Counter, &Quiet),
    limits: &Limits,
) -> Option<Accepted> {
    let address = peer.ip().to_canonical();
    let (limit, name) = limits.of(address);
    let Some(place) = counter.enter(address, limit) else {
        metrics::counter!("rpc.refused_conn").increment(1);
        if let Some(unsaid) = quiet.speak() {
            tracing::error!(%peer, limit, unsaid, "RPC connection refused: the address has as many as {name} allows");
        }
        return None;
    };
    let handshake = limits.handshake_timeout;
    Some(Accepted {
        tcp,
        peer,
        place,
        handshake: (!handshake.is_zero()).then_some(handshake),
    })
}

async fn connection<H: Handler>(mux: Arc<Mux<H>>, accepted: Accepted) {
    let peer = accepted.peer;
    let Err(error) = mux.serve(accepted).await else {
        return;
    };
    metrics::counter!("rpc.conn_error").increment(1);
    match error {
        ConnectionError::Session(_) | ConnectionError::Yamux(_) | ConnectionError::Io(_) => {
            tracing::debug!(%peer, %error, "RPC connection closed");
        }
        _ => tracing::warn!(%peer, %error, "RPC connection refused"),
    }
}
