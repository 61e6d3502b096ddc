//! The shell of one stream: reads requests, asks the source, and writes what the session says. Decides nothing.
//!
//! The driver is a future that lives *inside* the response body: HTTP/2 polls the body when the client can take more,
//! and the body polls the driver. So a stream needs no task, no channel and no buffer of its own, a slow client slows
//! nobody else, and a broken connection drops everything at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use prost::Message;
use tonic::Status;
use tracing::{Instrument, debug, info, trace, warn};

use crate::xds::life::{End, ID_LIMIT, Life, Phase, Verdict};
use crate::xds::registry::{LiveStream, Now, StreamGuard, StreamState};
use crate::xds::resources::{ProxyResources, ResourceType};
use crate::xds::server::Shared;
use crate::xds::session::{Note, Outbox, Protocol, Request, Session};
use crate::xds::source::{EnvoyNode, Source, Watch};
use crate::xds::stream::body::{Inbound, Queue};
use crate::xds::wire::Node;

pub(crate) use body::StreamBody;

mod body;

/// Node metadata beyond this many bytes is not kept for display.
const METADATA_LIMIT: usize = 16 * 1024;

/// Characters of a refused id that are logged.
const SHOWN_ID: usize = 64;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    /// The form of the protocol.
    pub(crate) protocol: Protocol,
    /// The one type of a single-type service.
    pub(crate) only: Option<ResourceType>,
    /// A fetch: one request, one response.
    pub(crate) once: bool,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shell of a stream reads the clock"
)]
pub(crate) fn now() -> Now {
    Now {
        instant: Instant::now(),
        wall: SystemTime::now(),
    }
}

fn node_of(request: &mut Request) -> Option<Node> {
    match request {
        Request::Sotw(request) => request.node.take(),
        Request::Delta(request) => request.node.take(),
    }
}

fn ended(end: &End) -> Status {
    let text = end.to_string();
    match end {
        End::NotRegistered { .. } | End::Deregistered { .. } => Status::not_found(text),
        End::NoId
        | End::LongId { .. }
        | End::TooOld(_)
        | End::Ambiguous { .. }
        | End::NotAProxy { .. } => Status::invalid_argument(text),
    }
}

/// Serves one stream to its end.
async fn drive<S: Source>(
    shared: Arc<Shared<S>>,
    purpose: Purpose,
    peer: Option<SocketAddr>,
    mut inbound: Inbound,
    queue: Queue,
) -> Status {
    let first = tokio::select! {
        first = inbound.next() => first,
        () = shared.shutdown.cancelled() => return shutting_down(),
        () = tokio::time::sleep(shared.settings.first_message) => {
            return Status::deadline_exceeded("no request arrived on the stream");
        }
    };
    let mut first = match first {
        Ok(Some(first)) => first,
        Ok(None) => return Status::ok(""),
        Err(status) => return status,
    };
    let mut node = node_of(&mut first).unwrap_or_default();
    let envoy = EnvoyNode::from(&node);
    let opened = now();
    let life = match Life::new(envoy.clone(), shared.settings.patience, opened.instant) {
        Ok(life) => life,
        Err(end) => {
            let id: String = envoy.id.chars().take(SHOWN_ID).collect();
            info!(id, peer = ?peer, %end, "xDS stream refused");
            return ended(&end);
        }
    };
    bound(&mut node);
    let guard = shared.registry.open(|id| LiveStream {
        id,
        peer,
        protocol: purpose.protocol,
        opened,
        node,
        state: Mutex::new(StreamState {
            session: Session::new(purpose.protocol, purpose.only),
            phase: life.phase().clone(),
        }),
    });
    let span = tracing::info_span!(
        "xds",
        stream = guard.stream().id,
        id = envoy.id,
        node = envoy.node_name.as_deref().unwrap_or_default(),
        protocol = purpose.protocol.label(),
    );
    let watch = shared.source.watch(&envoy);
    let driver = Driver {
        guard,
        life,
        watch,
        queue,
        purpose,
        sent: 0,
        offered: false,
        label: envoy.id,
    };
    let serve = async {
        debug!(peer = ?peer, version = ?envoy.version, "stream opened");
        let status = driver.run(&shared, first, inbound).await;
        info!(code = ?status.code(), reason = status.message(), "stream ended");
        status
    };
    serve.instrument(span).await
}

/// Drops the parts of a node that are too large to be kept with the stream.
fn bound(node: &mut Node) {
    let metadata = node.metadata.as_ref().map_or(0, Message::encoded_len);
    if metadata > METADATA_LIMIT {
        node.metadata = None;
    }
    for text in [&mut node.cluster, &mut node.user_agent_name] {
        if text.len() > ID_LIMIT {
            text.clear();
        }
    }
}

fn shutting_down() -> Status {
    Status::unavailable("this server is shutting down")
}

/// One stream of a known kind of client.
struct Driver<W> {
    guard: StreamGuard,
    life: Life,
    watch: W,
    queue: Queue,
    purpose: Purpose,
    sent: u64,
    /// Whether something was offered before: the first offer says nothing about how fast a change is pushed.
    offered: bool,
    label: String,
}

impl<W: Watch> Driver<W> {
    async fn run<S: Source<Watch = W>>(
        mut self,
        shared: &Shared<S>,
        first: Request,
        mut inbound: Inbound,
    ) -> Status {
        let mut quiet_until = None;
        let mut half_closed = false;
        let opening = self.look().and_then(|_| self.request(first));
        if let Err(status) = opening {
            return status;
        }
        loop {
            if self.sent > 0 && (half_closed || self.purpose.once) {
                return Status::ok("");
            }
            let timer = self.next_timer();
            let step = tokio::select! {
                biased;
                () = shared.shutdown.cancelled() => Err(shutting_down()),
                request = inbound.next(), if !half_closed => match request {
                    Ok(Some(request)) => self.request(request),
                    Ok(None) => {
                        half_closed = true;
                        Ok(())
                    }
                    Err(status) => Err(status),
                },
                () = sleep_until(timer) => self.tick(),
                () = changed(&mut self.watch, quiet_until) => self.look().map(|offered| {
                    // The first change after a quiet time goes out at once; those that follow are folded.
                    if offered {
                        quiet_until = Some(now().instant + shared.settings.hold_off);
                    }
                }),
            };
            if let Err(status) = step {
                return status;
            }
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        let deadline = self.life.phase().deadline();
        let retry = self.guard.stream().state.lock().session.next_tick();
        deadline.into_iter().chain(retry).min()
    }

    fn request(&mut self, mut request: Request) -> Result<(), Status> {
        node_of(&mut request);
        trace!(?request, "request");
        let stream = Arc::clone(self.guard.stream());
        let outbox = stream
            .state
            .lock()
            .session
            .on_request(now().instant, request);
        let outbox = outbox.map_err(|violation| Status::invalid_argument(violation.to_string()))?;
        self.deliver(outbox);
        Ok(())
    }

    /// Asks the source; tells whether there was something to offer.
    fn look(&mut self) -> Result<bool, Status> {
        let current = self.watch.current();
        let before = self.life.phase().clone();
        let verdict = self.life.on_current(now().instant, current);
        self.entered(&before);
        match verdict {
            Verdict::Wait => Ok(false),
            Verdict::End(end) => Err(ended(&end)),
            Verdict::Offer(resources) => {
                let stream = Arc::clone(self.guard.stream());
                let outbox = stream.state.lock().session.offer(&resources);
                if std::mem::replace(&mut self.offered, true) {
                    record_push(&resources, &outbox);
                }
                self.deliver(outbox);
                Ok(true)
            }
        }
    }

    fn entered(&mut self, before: &Phase) {
        let phase = self.life.phase().clone();
        if phase == *before {
            return;
        }
        match &phase {
            Phase::Running(key, None) => {
                info!(proxy = %key, "proxy is served");
                self.guard.belongs_to(key);
            }
            Phase::Running(key, Some(why)) => {
                warn!(proxy = %key, why, "the present state is incomplete, the last one stays");
            }
            Phase::NotReady(key, why) => {
                info!(proxy = %key, why, "proxy waits");
                self.guard.belongs_to(key);
            }
            Phase::Deregistered(key, _) => info!(proxy = %key, "proxy was deregistered"),
            Phase::Unregistered(_) => {}
        }
        self.guard.stream().state.lock().phase = phase;
        self.guard.changed();
    }

    fn tick(&mut self) -> Result<(), Status> {
        let now = now().instant;
        if let Some(end) = self.life.due(now) {
            return Err(ended(&end));
        }
        let stream = Arc::clone(self.guard.stream());
        let outbox = stream.state.lock().session.tick(now);
        self.deliver(outbox);
        Ok(())
    }

    fn deliver(&mut self, outbox: Outbox) {
        for note in &outbox.notes {
            self.note(note);
        }
        let mut queue = self.queue.lock();
        for response in outbox.responses {
            let kind = response.kind.label();
            let (resources, removed) = (response.resources, response.removed);
            debug!(
                kind,
                nonce = response.nonce,
                resources,
                removed,
                bytes = response.len(),
                "push"
            );
            metrics::counter!("crossway.xds.pushes_total", "type" => kind).increment(1);
            metrics::counter!("crossway.xds.push_bytes_total", "type" => kind)
                .increment(response.len() as u64);
            queue.extend(response.pieces);
            self.sent += 1;
        }
    }

    fn note(&self, note: &Note) {
        match note {
            Note::Accepted(kind) => debug!(kind = kind.label(), "ACK"),
            Note::Stale(kind) => debug!(kind = kind.label(), "stale answer"),
            Note::UnknownType(url) => debug!(url, "a type that is not served"),
            Note::Refused {
                kind,
                culprits,
                detail,
                repeated,
            } => {
                let kind = kind.label();
                if *repeated {
                    debug!(kind, detail = &**detail, "NACK, again");
                } else {
                    let names: Vec<_> = culprits.iter().map(|(name, _)| &**name).collect();
                    warn!(kind, resources = ?names, detail = &**detail, "NACK: Envoy refused resources");
                }
                let node = self.life.phase().key().map(|key| key.node.to_string());
                metrics::counter!(
                    "crossway.xds.nacks_total",
                    "type" => kind,
                    "node" => node.unwrap_or_default(),
                    "proxy" => self.label.clone()
                )
                .increment(1);
            }
        }
        self.guard.changed();
    }
}

fn record_push(resources: &ProxyResources, outbox: &Outbox) {
    if let Some(applied) = resources.applied_at
        && !outbox.responses.is_empty()
    {
        let took = now().instant.saturating_duration_since(applied);
        metrics::histogram!("crossway.xds.apply_to_push_seconds").record(took.as_secs_f64());
    }
}

/// Waits for a change, but not before the hold-off is over.
async fn changed(watch: &mut impl Watch, quiet_until: Option<Instant>) {
    if let Some(until) = quiet_until
        && until > now().instant
    {
        sleep_until(Some(until)).await;
    }
    watch.changed().await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => {
            // Rounded up: a timer that fires a little early would find nothing to do and be set again.
            let at = at + Duration::from_millis(1);
            tokio::time::sleep_until(at.into()).await;
        }
        None => std::future::pending().await,
    }
}
