//! What happens on streams: those that others open, and those that we open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time;

use crate::gossip::Target;
use crate::gossip::agent::exchange;
use crate::gossip::agent::exchange::Budget;
use crate::gossip::agent::exchange::Protection;
use crate::gossip::agent::exchange::StreamError;
use crate::gossip::agent::exchange::within;
use crate::gossip::agent::shared::Shared;
use crate::gossip::serf::Exchange;
use crate::gossip::transport::Transport;
use crate::gossip::wire::StreamMessage;
use crate::gossip::wire::message::Ping;
use crate::hooks::BoxedStream;
use crate::net::Counter;
use crate::net::Place;

/// Streams of others that are served at once, and how many of them one address may have.
const MAX_STREAMS: (usize, usize) = (1024, 256);
/// Exchanges of all states at once, as in memberlist.
const MAX_PUSH_PULLS: usize = 128;
/// How long a peer may take to hear why it was refused.
const LINGER: Duration = Duration::from_secs(1);

/// Bounds what others can make us do.
#[derive(Debug)]
pub(super) struct Limits {
    budget: Budget,
    streams: Arc<Semaphore>,
    addresses: Counter,
    push_pulls: Arc<Semaphore>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            budget: Budget::default(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS.0)),
            addresses: Counter::default(),
            push_pulls: Arc::new(Semaphore::new(MAX_PUSH_PULLS)),
        }
    }
}

/// A stream that was let in; dropping it makes room for others.
pub(super) struct Admitted {
    stream: BoxedStream,
    from: SocketAddr,
    _place: (tokio::sync::OwnedSemaphorePermit, Place),
}

impl Limits {
    /// Lets a stream in unless there are too many.
    pub(super) fn admit(&self, from: SocketAddr, stream: BoxedStream) -> Option<Admitted> {
        let permit = self.streams.clone().try_acquire_owned().ok()?;
        let place = self.addresses.enter(from.ip(), MAX_STREAMS.1)?;
        Some(Admitted {
            stream,
            from,
            _place: (permit, place),
        })
    }
}

/// Serves a stream that somebody opened, within the time that a stream may take.
pub(super) async fn serve(shared: Arc<Shared>, mut admitted: Admitted) {
    let (from, stream) = (admitted.from, &mut admitted.stream);
    let protection = shared.protection.load_full();
    let exchange = exchange_with(&shared, &protection, stream);
    let Err(error) = within(shared.stream_timeout, exchange).await else {
        return;
    };
    if matches!(error, StreamError::Wire(_) | StreamError::Busy) {
        // The peer's operator learns why. Whether that arrives is the peer's problem.
        let _ = time::timeout(LINGER, refuse(stream, &protection, &error)).await;
    }
    match error {
        StreamError::Closed => {
            tracing::debug!(%from, "a gossip stream was closed without a message")
        }
        error => shared.complain(from.ip(), "a gossip stream failed", &error),
    }
}

async fn refuse(stream: &mut BoxedStream, protection: &Protection, why: &StreamError) {
    let refusal = StreamMessage::Refused(why.to_string());
    let _ = exchange::write(stream, protection, &refusal).await;
    let _ = stream.shutdown().await;
    // Closing a stream that has bytes nobody read would take back what was just written.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await.is_ok_and(|len| len > 0) {}
}

async fn exchange_with(
    shared: &Shared,
    protection: &Protection,
    stream: &mut BoxedStream,
) -> Result<(), StreamError> {
    match exchange::read(stream, protection, &shared.limits.budget).await? {
        StreamMessage::User(message) => {
            shared.tell(|core, now, rng| core.handle_stream_user(now, &message, rng));
        }
        StreamMessage::Ping(ping) => {
            let ack = shared.look(|core| core.answer_stream_ping(&ping));
            let ack = ack.ok_or(StreamError::OtherNode(ping.node))?;
            exchange::write(stream, protection, &StreamMessage::Ack(ack)).await?;
        }
        StreamMessage::PushPull(theirs) => {
            let permit = shared.limits.push_pulls.try_acquire();
            let _permit = permit.map_err(|_| StreamError::Busy)?;
            let exchange = Exchange::asked(&theirs);
            // They hear all that we know even if they may not be in our pool: then they see for themselves why not.
            let ours = shared.look(|core| core.local_state(exchange));
            exchange::write(stream, protection, &StreamMessage::PushPull(ours)).await?;
            shared.tell(|core, now, rng| core.merge_remote_state(now, exchange, &theirs, rng))?;
        }
        StreamMessage::Ack(_) | StreamMessage::Refused(_) => return Err(StreamError::Unexpected),
    }
    Ok(())
}

/// Joins somebody's pool.
pub(super) async fn join(
    shared: &Shared,
    transport: &dyn Transport,
    to: &Target,
) -> Result<(), StreamError> {
    if shared.require_node_names && to.name.is_empty() {
        return Err(StreamError::NoName);
    }
    push_pull(shared, transport, to, Exchange::Join { ignore_old: true }).await?;
    shared.tell(|core, now, rng| core.joined(now, rng));
    Ok(())
}

/// Joins the first of these members that is there: they were known before a restart.
pub(super) async fn rejoin(shared: &Shared, transport: &dyn Transport, to: Vec<Target>) {
    for target in &to {
        match push_pull(shared, transport, target, Exchange::Meet).await {
            Ok(()) => {
                shared.tell(|core, now, rng| core.joined(now, rng));
                tracing::info!(%target, "gossip: joined again, from the snapshot");
                return;
            }
            Err(error) => tracing::debug!(%target, %error, "gossip: cannot join again"),
        }
    }
    tracing::warn!(
        members = to.len(),
        "gossip: none of the members of before can be joined"
    );
}

/// Exchanges all states with a peer.
pub(super) async fn push_pull(
    shared: &Shared,
    transport: &dyn Transport,
    to: &Target,
    exchange: Exchange,
) -> Result<(), StreamError> {
    let limit = shared.stream_timeout;
    let theirs = within(limit, async {
        let mut stream = transport.dial(to, limit).await?;
        let ours = shared.look(|core| core.local_state(exchange));
        match ask(shared, &mut stream, &StreamMessage::PushPull(ours)).await? {
            StreamMessage::PushPull(theirs) => Ok(theirs),
            _ => Err(StreamError::Unexpected),
        }
    });
    let theirs = theirs.await?;
    shared.tell(|core, now, rng| core.merge_remote_state(now, exchange, &theirs, rng))?;
    Ok(())
}

/// Asks a peer whether it is there, and tells whether it said so in time.
pub(super) async fn ping(
    shared: &Shared,
    transport: &dyn Transport,
    to: &Target,
    ping: Ping,
    limit: Duration,
) -> bool {
    let seq_no = ping.seq_no;
    let answer = within(limit, async {
        let mut stream = transport.dial(to, limit).await?;
        ask(shared, &mut stream, &StreamMessage::Ping(ping)).await
    });
    match answer.await {
        Ok(StreamMessage::Ack(ack)) => ack.seq_no == seq_no,
        Ok(_) => false,
        Err(error) => {
            tracing::debug!(%to, %error, "gossip: no answer over a stream either");
            false
        }
    }
}

async fn ask(
    shared: &Shared,
    stream: &mut BoxedStream,
    message: &StreamMessage,
) -> Result<StreamMessage, StreamError> {
    let protection = shared.protection.load_full();
    exchange::ask(stream, &protection, &shared.limits.budget, message).await
}
