//! The loop that runs checks, lets time pass and keeps the catalog in step. It decides nothing: [`LocalState`] does.
//!
//! [`LocalState`]: crate::local::state::LocalState

use crate::local::agent::{Local, now};
use crate::local::checks::{Report, Runner, stagger};
use crate::local::state::{Due, Run, SyncOp};
use crate::local::writer::{WriteError, Writer};
use crate::store::{Key, Store, Topic};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Probes that run at the same time.
const RUNS_AT_ONCE: usize = 256;

/// Writes that are under way at the same time; consensus folds them into few log entries.
const WRITES_AT_ONCE: usize = 64;

/// Least time between two comparisons because somebody else wrote to this node's rows. It doubles as long as there is
/// something to set right: two servers that claim the same node must not write against each other without pause.
const COMPARE_PAUSE: Duration = Duration::from_secs(1);

/// How long reports may wait to be kept.
const SAVE_PAUSE: Duration = Duration::from_secs(1);

/// Keeps the catalog in step with `local` until `shutdown`.
pub async fn run(local: Local, writer: impl Writer, store: Store, shutdown: CancellationToken) {
    let node = Key::of(local.identity().node.shared());
    let mut watch = store.watch([Topic::Node(node)]);
    let mut sync = Sync::new(local, writer, store);
    loop {
        let wake = tokio::time::Instant::from_std(sync.next_wake());
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = sync.local.inner.changed.notified() => {}
            () = watch.changed() => sync.catalog_changed(),
            Some(done) = sync.runs.join_next(), if !sync.runs.is_empty() => {
                if let Ok((run, report)) = done {
                    sync.finished(&run, report);
                }
            }
            Some(done) = sync.push.join_next(), if !sync.push.is_empty() => {
                if let Ok(results) = done {
                    sync.pushed(results);
                }
            }
            () = &mut sync.ready, if sync.hold_until.is_some() => sync.hold_until = None,
            () = tokio::time::sleep_until(wake) => {}
        }
        sync.turn().await;
    }
    sync.local.save_statuses().await;
}

struct Sync<W> {
    local: Local,
    writer: W,
    store: Store,
    runner: Runner,
    runs: JoinSet<(Run, Report)>,
    /// At most one batch of writes, so that writes about the same thing keep their order.
    push: JoinSet<Vec<(SyncOp, Result<(), WriteError>)>>,
    compare_at: Instant,
    compared_at: Instant,
    pause: Duration,
    /// After a failed write nothing is written before this.
    hold_until: Option<Instant>,
    /// Ends the hold early. Made before a batch starts, so that nothing that happens meanwhile is missed.
    ready: BoxFuture<'static, ()>,
    save_at: Option<Instant>,
}

impl<W: Writer> Sync<W> {
    fn new(local: Local, writer: W, store: Store) -> Self {
        let now = now();
        Self {
            ready: writer.ready(),
            local,
            writer,
            store,
            runner: Runner::new(RUNS_AT_ONCE),
            runs: JoinSet::new(),
            push: JoinSet::new(),
            compare_at: now,
            compared_at: now,
            pause: COMPARE_PAUSE,
            hold_until: None,
            save_at: None,
        }
    }

    fn next_wake(&self) -> Instant {
        let timers = self.local.inner.state.lock().next_deadline();
        [timers, self.hold_until, self.save_at]
            .into_iter()
            .flatten()
            .fold(self.compare_at, Instant::min)
    }

    fn catalog_changed(&mut self) {
        let soon = now().max(self.compared_at + self.pause);
        self.compare_at = self.compare_at.min(soon);
    }

    fn finished(&mut self, run: &Run, report: Report) {
        let mut state = self.local.inner.state.lock();
        state.finished(run, report, now(), &mut rand::rng());
    }

    async fn turn(&mut self) {
        let now = now();
        let due = self.local.inner.state.lock().due(now);
        self.act(due).await;
        if now >= self.compare_at {
            self.compare(now);
        }
        if self.hold_until.is_some_and(|until| now >= until) {
            self.hold_until = None;
        }
        if self.hold_until.is_none() && self.push.is_empty() {
            self.start_push();
        }
        match self.save_at {
            Some(at) if now >= at => {
                self.save_at = None;
                self.local.save_statuses().await;
            }
            None if self.local.has_unsaved() => self.save_at = Some(now + SAVE_PAUSE),
            _ => {}
        }
    }

    fn compare(&mut self, now: Instant) {
        let catalog = self.store.latest();
        let differs = {
            let mut state = self.local.inner.state.lock();
            state.compare(&catalog);
            state.has_changes()
        };
        let nodes = catalog.nodes().count();
        let interval = scaled(self.local.inner.config.sync_interval, nodes);
        self.pause = match differs {
            true => (self.pause * 2).min(interval),
            false => COMPARE_PAUSE,
        };
        self.compared_at = now;
        self.compare_at = now + interval + stagger(interval, &mut rand::rng());
    }

    async fn act(&mut self, due: Due) {
        for run in due.runs {
            let runner = self.runner.clone();
            self.runs.spawn(async move {
                let report = match run.probe() {
                    Some((probe, timeout)) => runner.run(probe, timeout).await,
                    None => Report::default(),
                };
                (run, report)
            });
        }
        for service in due.expired_services {
            tracing::warn!(%service, "critical for too long: the service is deregistered");
            if let Err(error) = self.local.deregister_service(&service).await {
                tracing::warn!(%service, %error, "the service is not deregistered");
            }
        }
    }

    fn start_push(&mut self) {
        let ops = {
            let mut state = self.local.inner.state.lock();
            if !state.has_changes() {
                return;
            }
            state.take_changes()
        };
        self.ready = self.writer.ready();
        let (writer, identity) = (self.writer.clone(), self.local.identity().clone());
        self.push.spawn(async move {
            let write = |op: SyncOp| {
                let (writer, command) = (writer.clone(), op.command(&identity));
                async move { (op, writer.write(command).await.map(|_| ())) }
            };
            // Removals come first: an id may have changed its case.
            let removes =
                |op: &SyncOp| matches!(op, SyncOp::RemoveService(_) | SyncOp::RemoveCheck(_));
            let (first, then): (Vec<_>, Vec<_>) = ops.into_iter().partition(removes);
            let mut results = Vec::with_capacity(first.len() + then.len());
            for ops in [first, then] {
                let writes = futures_util::stream::iter(ops).map(write);
                let mut writes = writes.buffer_unordered(WRITES_AT_ONCE);
                while let Some(result) = writes.next().await {
                    results.push(result);
                }
            }
            results
        });
    }

    fn pushed(&mut self, results: Vec<(SyncOp, Result<(), WriteError>)>) {
        let mut state = self.local.inner.state.lock();
        let mut failed = None;
        for (op, result) in results {
            match result {
                Ok(()) => {}
                // Trying at once would bring the same answer; the next comparison tries again.
                Err(error @ WriteError::Refused(_)) => {
                    tracing::warn!(%op, %error, "the catalog refuses a local registration");
                }
                Err(error @ WriteError::Unavailable(_)) => {
                    state.not_written(&op);
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            let retry = self.local.inner.config.retry_interval;
            let wait = retry + stagger(retry, &mut rand::rng());
            tracing::warn!(%error, ?wait, "local state is not in the catalog yet");
            self.hold_until = Some(now() + wait);
        }
    }
}

/// With more than 128 nodes comparisons get rarer, as in Consul: once more for every doubling.
fn scaled(interval: Duration, nodes: usize) -> Duration {
    let doublings = nodes.saturating_sub(1).checked_ilog2().unwrap_or(0);
    interval * (doublings.saturating_sub(5)).max(1)
}

#[cfg(test)]
mod tests;
