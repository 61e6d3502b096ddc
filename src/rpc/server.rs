//! Accepts connections on the RPC port, within limits, until told to stop.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::hooks::Edition;
use crate::net::Counter;
use crate::net::Tls;
use crate::rpc::Handler;
use crate::rpc::budget::{Budget, Budgets};
use crate::rpc::limits::Limits;
use crate::rpc::mux::Accepted;
use crate::rpc::mux::ConnectionError;
use crate::rpc::mux::Mux;
use crate::rpc::mux::Plugs;
use crate::telemetry::Quiet;

/// Rest after a failed accept, which mostly means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
    let (counter, quiet) = (Counter::default(), Arc::new(Quiet::default()));
    let mut budgets = Budgets::default();
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = shutdown.cancelled() => break,
        };
        match accepted {
            Ok((tcp, peer)) => {
                metrics::counter!("consul.rpc.accept_conn").increment(1);
                let limits = config.limits.load();
                let address = peer.ip().to_canonical();
                let budget = budgets.of(address, limits.held(address));
                if let Some(accepted) = admit((tcp, peer, budget), (&counter, &quiet), &limits) {
                    let span = tracing::debug_span!("rpc", %peer);
                    let served = connection(mux.clone(), accepted, quiet.clone());
                    connections.spawn(served.instrument(span));
                }
            }
            Err(error) => {
                let own = IpAddr::from(Ipv4Addr::UNSPECIFIED);
                if let Some(unsaid) = quiet.speak(now(), own, "accept") {
                    tracing::warn!(%error, unsaid, "cannot accept RPC connections; are there too many open files?");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    connections.shutdown().await;
}

/// Lets a connection in unless its address has enough of them; it is closed without a word then, as in Consul.
fn admit(
    (tcp, peer, budget): (TcpStream, SocketAddr, Budget),
    (counter, quiet): (&Counter, &Quiet),
    limits: &Limits,
) -> Option<Accepted> {
    let address = peer.ip().to_canonical();
    let (limit, name) = limits.of(address);
    let Some(place) = counter.enter(address, limit) else {
        metrics::counter!("consul.rpc.refused_conn").increment(1);
        if let Some(unsaid) = quiet.speak(now(), address, name) {
            tracing::error!(%peer, limit, unsaid, "RPC connection refused: the address has as many as {name} allows");
        }
        return None;
    };
    let handshake = limits.handshake_timeout;
    Some(Accepted {
        tcp,
        peer,
        place,
        budget,
        handshake: (!handshake.is_zero()).then_some(handshake),
    })
}

async fn connection<H: Handler>(mux: Arc<Mux<H>>, accepted: Accepted, quiet: Arc<Quiet>) {
    let peer = accepted.peer;
    let Err(error) = mux.serve(accepted).await else {
        return;
    };
    metrics::counter!("consul.rpc.conn_error").increment(1);
    match error {
        ConnectionError::Session(_) | ConnectionError::Yamux(_) | ConnectionError::Io(_) => {
            tracing::debug!(%error, "RPC connection closed");
        }
        _ => {
            if let Some(unsaid) = quiet.speak(now(), peer.ip(), &error.to_string()) {
                tracing::warn!(%peer, %error, unsaid, "RPC connection refused");
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Instant {
    Instant::now()
}
