//! Starts the leader's loops when leadership begins; cancels **and joins** them when it ends.

use crate::app::pools::Pools;
use crate::ca;
use crate::consensus::Consensus;
use crate::consensus::Role;
use crate::federation;
use crate::model::ConfigEntry;
use crate::probe;
use crate::reconcile;
use crate::store::Command;
use crate::store::ConfigOp;
use crate::store::Topic;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tracing::error;
use tracing::info;
use tracing::info_span;
use tracing::warn;

/// Rest before the loops start again after one of them failed, or before they are held up once more: the reason may still
/// be there.
const FAULT_PAUSE: Duration = Duration::from_secs(1);

/// What the leader does, and with what.
pub(super) struct Duties {
    pub(super) consensus: Consensus,
    pub(super) reconcile: reconcile::Context,
    pub(super) pools: Pools,
    /// Config entries to write where there are none.
    pub(super) entries: watch::Receiver<Arc<Vec<ConfigEntry>>>,
    /// `None` when Connect is off.
    pub(super) ca: Option<ca::leader::Context>,
    pub(super) federation: federation::Context,
    pub(super) probe: probe::Settings,
    pub(super) events: broadcast::Sender<probe::ProxyEvent>,
}

/// Follows leadership until `shutdown`.
pub(super) async fn run(duties: Duties, shutdown: CancellationToken) {
    let mut role = duties.consensus.role();
    while let Some(term) = next_term(&mut role, &shutdown).await {
        let span = info_span!("leader", term);
        lead(&duties, term, &mut role, &shutdown)
            .instrument(span)
            .await;
    }
}

/// Waits until this server leads; `None` when it is over, even if this server leads still.
async fn next_term(role: &mut watch::Receiver<Role>, shutdown: &CancellationToken) -> Option<u64> {
    loop {
        if shutdown.is_cancelled() {
            return None;
        }
        if let Role::Leader { term } = *role.borrow_and_update() {
            return Some(term);
        }
        tokio::select! {
            changed = role.changed() => changed.ok()?,
            () = shutdown.cancelled() => return None,
        }
    }
}

async fn lead(
    duties: &Duties,
    term: u64,
    role: &mut watch::Receiver<Role>,
    shutdown: &CancellationToken,
) {
    info!("leadership begins");
    let stop = CancellationToken::new();
    let mut loops = JoinSet::new();
    let mut over = pin!(role.wait_for(|role| *role != Role::Leader { term }));
    let fault = tokio::select! {
        biased; // Loops that end because everything ends are no fault.
        () = shutdown.cancelled() => None,
        _ = &mut over => None,
        () = restored(&duties.consensus) => {
            info!("the state was replaced by a saved one: the leader's loops start again");
            None
        }
        fault = work(duties, &stop, &mut loops) => Some(fault),
    };
    stop.cancel();
    loops.shutdown().await;
    if let Some(fault) = fault {
        error!(fault, "a leader's loop failed; all of them start again");
        tokio::select! {
            _ = over => {}
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(FAULT_PAUSE) => return,
        }
    }
    info!("leadership is over");
}

/// Returns when the whole state was replaced: what the loops know is of the old one.
async fn restored(consensus: &Consensus) {
    let mut watch = consensus.store().watch([Topic::CaConfig]);
    while !watch.abandoned() {
        watch.changed().await;
    }
}

/// Runs the loops until one of them ends, which none should, and says how.
async fn work(
    duties: &Duties,
    stop: &CancellationToken,
    loops: &mut JoinSet<&'static str>,
) -> String {
    caught_up(&duties.consensus).await;
    let mut entries = duties.entries.clone();
    let missing = entries.borrow_and_update().clone();
    write_missing(&duties.consensus, &missing).await;
    let node = duties.reconcile.own.borrow().name.clone();
    duties.pools.announce_leader(&node).await;
    start(duties, stop, loops);
    loop {
        let ended = tokio::select! {
            ended = loops.join_next() => ended,
            Ok(()) = entries.changed() => {
                let missing = entries.borrow_and_update().clone();
                write_missing(&duties.consensus, &missing).await;
                continue;
            }
        };
        return match ended {
            Some(Ok(name)) => format!("{name} ended by itself"),
            Some(Err(fault)) => fault.to_string(),
            None => "none was started".to_owned(),
        };
    }
}

/// Waits until all that earlier leaders committed is applied here. The loops decide by what the state lacks, and the CA
/// would make a second root if it looked too early.
async fn caught_up(consensus: &Consensus) {
    while let Err(error) = consensus.barrier().await {
        warn!(%error, retry_in = ?FAULT_PAUSE, "the state may lag, the leader's loops wait");
        tokio::time::sleep(FAULT_PAUSE).await;
    }
}

/// Writes the entries that do not exist yet; one that does stays as it is.
async fn write_missing(consensus: &Consensus, entries: &[ConfigEntry]) {
    for entry in entries {
        let (kind, name) = (entry.kind(), entry.name());
        let state = consensus.store().latest();
        if state.config_entry(kind, name).is_some() {
            continue;
        }
        let missing = ConfigOp::UpsertCas(entry.clone().with_indexes(0, 0));
        match consensus.propose(Command::Config(missing)).await {
            Ok(_) => info!(
                kind = kind.as_str(),
                name, "config entry of the configuration written"
            ),
            Err(error) => warn!(kind = kind.as_str(), name, %error, "config entry not written"),
        }
    }
}

fn start(duties: &Duties, stop: &CancellationToken, loops: &mut JoinSet<&'static str>) {
    let mut run = |name, task: futures_util::future::BoxFuture<'static, ()>| {
        let task = async move {
            task.await;
            name
        };
        loops.spawn(task.instrument(info_span!("loop", name)));
    };
    let consensus = duties.consensus.clone();
    let members = reconcile::run_leader(duties.reconcile.clone());
    run("reconcile", Box::pin(members));
    run(
        "federation",
        Box::pin(federation::run_leader(duties.federation.clone())),
    );
    if let Some(ca) = duties.ca.clone() {
        run("ca", Box::pin(ca::leader::run(ca)));
    }
    let probe = probe::Context {
        store: consensus.store().clone(),
        writer: consensus,
        events: duties.events.subscribe(),
        settings: duties.probe,
        cancel: stop.clone(),
    };
    run("probe", Box::pin(probe::run_leader(probe)));
}
