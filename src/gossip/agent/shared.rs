//! What the agent's task, its streams and its handles share: the core, behind a lock that nobody holds for long.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rand::rngs::ThreadRng;
use tokio::sync::Notify;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::gossip::agent::exchange::Protection;
use crate::gossip::agent::streams::Limits;
use crate::gossip::serf::KeyReport;
use crate::gossip::serf::QueryId;
use crate::gossip::serf::Serf;
use crate::gossip::swim::Token;
use crate::model::NodeName;
use crate::telemetry::Quiet;

/// What all parts of an agent share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: NodeName,
    core: Mutex<Serf>,
    /// Wakes the task, which does what the core wants done.
    pub(super) wake: Notify,
    pub(super) protection: ArcSwap<Protection>,
    pub(super) limits: Limits,
    /// How long anything on a stream may take.
    pub(super) stream_timeout: Duration,
    pub(super) require_node_names: bool,
    pub(super) waiting: Mutex<Waiting>,
    quiet: Quiet,
    /// Asks the task to end.
    pub(super) stop: CancellationToken,
    /// The agent has left its pool.
    pub(super) left: CancellationToken,
    /// The task has ended.
    pub(super) stopped: CancellationToken,
}

/// Callers that wait for the end of what they asked for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    last: u64,
    pub(super) commands: HashMap<Token, oneshot::Sender<()>>,
    pub(super) reports: HashMap<QueryId, oneshot::Sender<KeyReport>>,
}

impl Waiting {
    /// A new token, and what tells that its command is done.
    pub(super) fn command(&mut self) -> (Token, oneshot::Receiver<()>) {
        self.last += 1;
        let token = Token(self.last);
        let (done, wait) = oneshot::channel();
        self.commands.insert(token, done);
        (token, wait)
    }
}

impl Shared {
    pub(super) fn new(core: Serf, protection: Protection) -> Self {
        let config = core.swim().config();
        Self {
            name: config.name.clone(),
            stream_timeout: config.timing.tcp_timeout,
            require_node_names: config.require_node_names,
            core: Mutex::new(core),
            wake: Notify::new(),
            protection: ArcSwap::from_pointee(protection),
            limits: Limits::default(),
            waiting: Mutex::default(),
            quiet: Quiet::default(),
            stop: CancellationToken::new(),
            left: CancellationToken::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Tells the core something, and the task to do what follows from that.
    pub(super) fn tell<T>(&self, say: impl FnOnce(&mut Serf, Instant, &mut ThreadRng) -> T) -> T {
        let answer = self.work(say);
        self.wake.notify_one();
        answer
    }

    /// Tells the core something from within the task, which does what follows anyway.
    pub(super) fn work<T>(&self, work: impl FnOnce(&mut Serf, Instant, &mut ThreadRng) -> T) -> T {
        work(&mut self.core.lock(), now(), &mut rand::rng())
    }

    /// Looks something up in the core.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Serf) -> T) -> T {
        at(&self.core.lock())
    }

    /// Logs what a peer did wrong, once in a while for each peer.
    pub(super) fn complain(&self, peer: IpAddr, what: &str, error: &dyn std::fmt::Display) {
        let error = error.to_string();
        if let Some(unsaid) = self.quiet.speak(now(), peer, &error) {
            tracing::warn!(%peer, %error, unsaid, "{what}");
        }
    }
}

/// The clock that the core lives by. Tests may pause it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
