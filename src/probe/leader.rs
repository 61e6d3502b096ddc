//! The leader's task: waits for changes, streams and deadlines, and does what [`Prober`] decides.

use crate::local::checks::{Report, Runner};
use crate::local::writer::Writer;
use crate::probe::ProxyEvent;
use crate::probe::prober::{Due, Prober, Run, Settings, Write};
use crate::store::{CheckOp, Command, Outcome, State, Store, Topic, Watch};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Probes that run at the same time.
const RUNS_AT_ONCE: usize = 256;

/// How long the loop sleeps when nothing is planned; any change wakes it.
const IDLE: Duration = Duration::from_secs(3600);

/// What the task works with.
pub struct Context<W> {
    /// Writes to the catalog.
    pub writer: W,
    /// The catalog.
    pub store: Store,
    /// Streams of proxies that open and end.
    pub events: broadcast::Receiver<ProxyEvent>,
    /// How checks are treated.
    pub settings: Settings,
    /// Ends the task.
    pub cancel: CancellationToken,
}

/// Runs the checks of nodes without agents for as long as this server leads. When it returns, nothing of it runs any
/// more.
pub async fn run_leader<W: Writer>(context: Context<W>) {
    let mut events = Some(context.events);
    let mut task = Task::new(context.writer, context.store, context.settings);
    loop {
        let wake = tokio::time::Instant::from_std(task.next_wake());
        tokio::select! {
            () = context.cancel.cancelled() => break,
            () = task.watch.changed() => task.catalog_changed(),
            event = next_event(&mut events) => task.event(event),
            Some(Ok((run, report))) = task.runs.join_next(), if !task.runs.is_empty() => {
                task.finished(&run, report);
            }
            Some(Ok((write, done))) = task.writes.join_next(), if !task.writes.is_empty() => {
                task.written(&write, done);
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        task.turn();
    }
    task.runs.shutdown().await;
    task.writes.shutdown().await;
}

/// The next event; `None` when some were missed. Never returns once the sender is gone.
async fn next_event(events: &mut Option<broadcast::Receiver<ProxyEvent>>) -> Option<ProxyEvent> {
    if let Some(receiver) = events {
        match receiver.recv().await {
            Ok(event) => return Some(event),
            Err(RecvError::Lagged(_)) => return None,
            Err(RecvError::Closed) => *events = None,
        }
    }
    std::future::pending().await
}

struct Task<W> {
    writer: W,
    store: Store,
    watch: Watch,
    seen: Arc<State>,
    prober: Prober,
    runner: Runner,
    runs: JoinSet<(Run, Report)>,
    writes: JoinSet<(Write, bool)>,
}

impl<W: Writer> Task<W> {
    fn new(writer: W, store: Store, settings: Settings) -> Self {
        let watch = store.watch([Topic::Checks]);
        let seen = store.latest();
        let mut prober = Prober::new(settings);
        prober.look_at_all(&seen, now());
        tracing::info!(
            checks = prober.len(),
            "the leader runs the checks of nodes without agents"
        );
        let mut task = Self {
            writer,
            store,
            watch,
            seen,
            prober,
            runner: Runner::new(RUNS_AT_ONCE),
            runs: JoinSet::new(),
            writes: JoinSet::new(),
        };
        task.turn();
        task
    }

    fn next_wake(&self) -> Instant {
        self.prober.next_deadline().unwrap_or_else(|| now() + IDLE)
    }

    fn catalog_changed(&mut self) {
        let state = self.store.latest();
        if self.watch.abandoned() {
            self.watch = self.store.watch([Topic::Checks]);
            self.prober.look_at_all(&state, now());
        } else {
            for (node, check) in state.changed_checks(&self.seen) {
                self.prober.look_at(&state, &node, &check, now());
            }
        }
        self.seen = state;
        metrics::gauge!("crossway.probe.checks").set(self.prober.len() as f64);
    }

    fn event(&mut self, event: Option<ProxyEvent>) {
        match event {
            Some(event) => self.prober.event(&event, now()),
            // Intervals make up for events that were missed.
            None => {
                tracing::warn!("streams of proxies came and went faster than their checks were run")
            }
        }
    }

    fn finished(&mut self, run: &Run, report: Report) {
        metrics::counter!("crossway.probe.runs").increment(1);
        let write = self.prober.finished(run, report, now(), &mut rand::rng());
        self.start_writes(write);
    }

    fn written(&mut self, write: &Write, done: bool) {
        let state = self.store.latest();
        self.prober.written(write, done, &state, now());
    }

    fn turn(&mut self) {
        let Due { runs, writes } = self.prober.due(now());
        for run in runs {
            let runner = self.runner.clone();
            self.runs.spawn(async move {
                let report = match run.probe() {
                    Some((probe, timeout)) => runner.run(probe, timeout).await,
                    None => Report::default(),
                };
                (run, report)
            });
        }
        self.start_writes(writes);
    }

    fn start_writes(&mut self, writes: impl IntoIterator<Item = Write>) {
        for write in writes {
            let writer = self.writer.clone();
            self.writes.spawn(async move {
                let done = match writer.write(write.command.clone()).await {
                    Ok(Outcome::Bool(true)) => {
                        tell(&write.command);
                        true
                    }
                    // The check is gone or changed: there is nothing to write, and the catalog says what is.
                    Ok(_) => true,
                    Err(error) => {
                        tracing::warn!(%error, "a check's result is not in the catalog");
                        false
                    }
                };
                (write, done)
            });
        }
    }
}

/// Says what was written, without what the check said: that is in the catalog.
fn tell(command: &Command) {
    match command {
        Command::Check(CheckOp::Result {
            node,
            check_id,
            status,
            ..
        }) => {
            tracing::info!(%node, check = %check_id, %status, "a check without agent has a new result")
        }
        Command::Check(CheckOp::Reap { node, check_id, .. }) => {
            tracing::info!(%node, check = %check_id, "critical for too long: the service is deregistered");
        }
        _ => {}
    }
}

/// The shell's clock.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
