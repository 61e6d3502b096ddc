//! One session per server, shared by all who call it.
//!
//! ```text
//!  call ─┐                      ┌─ Slot of a Destination ──────────────────┐
//!  call ─┼─> enter ─> first one dials, the others wait for the same dial   │─> Session (yamux) ─> streams, reused
//!  call ─┘                      └─ counts its users; idle for long: closed ┘
//! ```
//!
//! A call is tried a second time only when the session it got turned out dead before the whole question was sent: then
//! the server cannot have begun with it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::future::Shared;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio::time::sleep_until;
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;

use crate::model::Datacenter;
use crate::model::NodeName;
use crate::net::Tls;
use crate::rpc::ClientError;
use crate::rpc::MAX_STREAMS;
use crate::rpc::Session;
use crate::rpc::client::shutdown;
use crate::rpc::dial::DIAL_TIMEOUT;
use crate::rpc::dial::Security;
use crate::rpc::dial::Target;

/// How long a session without calls is kept.
const IDLE: Duration = Duration::from_secs(120);

/// Calls that may be under way to one server; further ones wait. Below what the multiplexer allows.
const MAX_CALLS: usize = MAX_STREAMS - 96;

/// A server to call. Two datacenters may use the same private address, so it takes all three.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The server's datacenter.
    pub datacenter: Datacenter,
    /// The server's short node name.
    pub node: NodeName,
    /// The server's RPC address in its own datacenter.
    pub address: SocketAddr,
}

/// Knows the way to a server.
pub trait Dial: Send + Sync + 'static {
    /// Where to connect for `to`, and how. Asked anew for every dial.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when there is no way just now.
    fn way(&self, to: &Destination) -> Result<Target, ClientError>;
}

/// The way to servers that are reached directly: those of the own datacenter.
#[derive(Debug, Clone)]
pub struct Lan(
    /// Says whether TLS is on.
    pub Arc<Tls>,
);

impl Dial for Lan {
    fn way(&self, to: &Destination) -> Result<Target, ClientError> {
        Ok(Target {
            address: to.address,
            datacenter: to.datacenter.to_string(),
            node: to.node.to_string(),
            // With a certificate of our own we show it, whether or not verify_outgoing says so: the leader takes some calls
            // from servers alone.
            security: match self.0.dials_with_tls() || self.0.is_mutual() {
                true => Security::TypeByte,
                false => Security::Plain,
            },
            multiplexed: true,
        })
    }
}

/// Sessions to servers. Cloning it shares them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    tls: Arc<Tls>,
    dial: Arc<dyn Dial>,
    idle: Duration,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_destination: HashMap<Destination, Arc<Slot>>,
    /// Whether a task waits for idle sessions to grow old.
    reaping: bool,
}

/// What all callers who wait for one dial get; the text is that of [`ClientError::Connect`].
type Dialled = Shared<BoxFuture<'static, Result<Session, Arc<str>>>>;

struct Slot {
    session: Dialled,
    calls: Semaphore,
    /// Answers that came, of whatever kind: they show that the session lives.
    answers: AtomicU64,
    gone: CancellationToken,
    usage: Mutex<Usage>,
}

struct Usage {
    users: usize,
    idle_since: Instant,
}

impl Slot {
    /// Whether it is of no use to further callers.
    fn is_over(&self) -> bool {
        let session = self.session.peek();
        self.gone.is_cancelled()
            || session.is_some_and(|dialled| !dialled.as_ref().is_ok_and(Session::is_open))
    }
}

/// One call's hold on a slot; dropping it may make the session idle.
struct User {
    pool: Weak<Inner>,
    slot: Arc<Slot>,
}

impl Drop for User {
    fn drop(&mut self) {
        let mut usage = self.slot.usage.lock();
        usage.users -= 1;
        if usage.users > 0 {
            return;
        }
        usage.idle_since = Instant::now();
        drop(usage);
        if let Some(pool) = self.pool.upgrade() {
            pool.reap_later();
        }
    }
}

impl Pool {
    /// A pool without sessions. As in Consul one without calls ends after two minutes.
    pub fn new(tls: Arc<Tls>, dial: Arc<dyn Dial>) -> Self {
        Self::with_idle_time(tls, dial, IDLE)
    }

    /// A pool whose sessions end after this time without calls.
    pub fn with_idle_time(tls: Arc<Tls>, dial: Arc<dyn Dial>, idle: Duration) -> Self {
        Self {
            inner: Arc::new(Inner {
                tls,
                dial,
                idle,
                slots: Mutex::default(),
            }),
        }
    }

    /// The TLS settings that sessions are made with.
    pub fn tls(&self) -> &Tls {
        &self.inner.tls
    }

    /// The way to a server, for a connection of its own.
    ///
    /// # Errors
    /// As [`Dial::way`].
    pub fn way(&self, to: &Destination) -> Result<Target, ClientError> {
        self.inner.dial.way(to)
    }

    /// Calls `method` of a server with a msgpack `body` and gives the msgpack answer. When the future is dropped, the
    /// server learns that nobody waits any more.
    ///
    /// # Errors
    /// See [`ClientError`]. After `Connect` and `Ended` the server has not begun with the call.
    pub async fn call(
        &self,
        to: &Destination,
        method: &str,
        body: &[u8],
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let deadline = Instant::now() + limit;
        let mut second = false;
        loop {
            let user = self.inner.enter(to);
            let slot = user.slot.clone();
            let before = slot.answers.load(Ordering::Relaxed);
            let called = tokio::select! {
                called = timeout_at(deadline, slot.call(method, body)) => called,
                () = slot.gone.cancelled() => Ok(Err(ClientError::Broken(shutdown()))),
            };
            let called = called.unwrap_or(Err(ClientError::Timeout {
                address: to.address,
                timeout: limit,
            }));
            match &called {
                Err(ClientError::Ended(_)) if !second => {
                    self.inner.forget(to, &slot);
                    second = true;
                    continue;
                }
                // A server that has answered nobody meanwhile may be gone without a word.
                Err(ClientError::Timeout { .. })
                    if slot.answers.load(Ordering::Relaxed) == before =>
                {
                    self.inner.forget(to, &slot);
                }
                Err(ClientError::Connect(_) | ClientError::Ended(_) | ClientError::Broken(_)) => {
                    self.inner.forget(to, &slot);
                }
                _ => {}
            }
            return called;
        }
    }

    /// Ends the session to a server, for example because it left. Calls under way fail at once.
    pub fn close(&self, to: &Destination) {
        let slot = self.inner.slots.lock().by_destination.remove(to);
        if let Some(slot) = slot {
            slot.gone.cancel();
        }
    }

    /// How many sessions there are. For metrics and tests.
    pub fn sessions(&self) -> usize {
        self.inner.slots.lock().by_destination.len()
    }
}

impl Slot {
    async fn call(&self, method: &str, body: &[u8]) -> Result<Bytes, ClientError> {
        let session = self.session.clone().await;
        let session = session.map_err(|text| ClientError::Connect(text.to_string()))?;
        let place = self.calls.acquire().await;
        let _place = place.map_err(|_| ClientError::Ended(shutdown()))?;
        let called = session.call_in_lane(method, body).await;
        if matches!(called, Ok(_) | Err(ClientError::Remote(_))) {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        called
    }
}

impl Inner {
    /// The session to a server, begun if there is none.
    fn enter(self: &Arc<Self>, to: &Destination) -> User {
        let mut slots = self.slots.lock();
        let known = slots.by_destination.get(to).filter(|slot| !slot.is_over());
        let slot = match known {
            Some(slot) => slot.clone(),
            None => {
                let slot = Arc::new(self.begin(to));
                slots.by_destination.insert(to.clone(), slot.clone());
                slot
            }
        };
        slot.usage.lock().users += 1;
        User {
            pool: Arc::downgrade(self),
            slot,
        }
    }

    /// Dials in a task of its own: callers who give up do not stop it for the others.
    fn begin(&self, to: &Destination) -> Slot {
        let (done, dialled) = oneshot::channel();
        let (way, tls) = (self.dial.way(to), self.tls.clone());
        tokio::spawn(async move {
            let dialled = match way {
                Ok(target) => Session::connect(&target, &tls, DIAL_TIMEOUT).await,
                Err(error) => Err(error),
            };
            metrics::counter!("consul.rpc.pool.dial").increment(1);
            let _ = done.send(dialled.map_err(|error| match error {
                ClientError::Connect(text) => Arc::from(text),
                other => Arc::from(other.to_string()),
            }));
        });
        let session = async { dialled.await.unwrap_or_else(|_| Err("canceled".into())) };
        Slot {
            session: session.boxed().shared(),
            calls: Semaphore::new(MAX_CALLS),
            answers: AtomicU64::new(0),
            gone: CancellationToken::new(),
            usage: Mutex::new(Usage {
                users: 0,
                idle_since: Instant::now(),
            }),
        }
    }

    /// Has the next call dial anew. Calls under way go on.
    fn forget(&self, to: &Destination, slot: &Arc<Slot>) {
        let mut slots = self.slots.lock();
        let known = slots.by_destination.get(to);
        if known.is_some_and(|known| Arc::ptr_eq(known, slot)) {
            slots.by_destination.remove(to);
        }
    }

    /// Sees to it that idle sessions end when they are old.
    fn reap_later(self: Arc<Self>) {
        // Without a runtime everything ends anyway.
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if !std::mem::replace(&mut self.slots.lock().reaping, true) {
            runtime.spawn(reap(Arc::downgrade(&self)));
        }
    }

    /// Ends what was idle for long. The next time to look, if something is idle still.
    fn reap(&self) -> Option<Instant> {
        let (mut slots, now) = (self.slots.lock(), Instant::now());
        let mut next: Option<Instant> = None;
        slots.by_destination.retain(|_, slot| {
            let usage = slot.usage.lock();
            let end = usage.idle_since + self.idle;
            let idle = usage.users == 0;
            if idle && end > now {
                next = Some(next.map_or(end, |next| next.min(end)));
            }
            !idle || end > now
        });
        slots.reaping = next.is_some();
        next
    }
}

async fn reap(pool: Weak<Inner>) {
    while let Some(next) = pool.upgrade().and_then(|pool| pool.reap()) {
        sleep_until(next).await;
    }
}
