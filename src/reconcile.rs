//! Leader loops that make the members of the pool true elsewhere: in the catalog and in Raft.
//!
//! ```text
//!   members ──┬─> catalog::plan(state, members) ──> nodes, serfHealth, the service consul ──> consensus
//!             └─> servers::Pool::steps(members, peers) ──> add, promote, remove ──> Raft membership
//! ```
//!
//! Both plans are pure and hold only what differs. The loops wake when members change, when somebody changes the rows of
//! nodes, and once a minute; they rest after each round, so that two who disagree about a row cannot keep them busy.

mod catalog;
mod own;
mod servers;

pub use own::OwnServer;
pub use servers::Autopilot;

use crate::consensus::{Consensus, ProposeError};
use crate::gossip::{Gossip, Member, MemberStatus};
use crate::model::{NodeId, NodeName};
use crate::reconcile::catalog::View;
use crate::reconcile::servers::{Pool, Step};
use crate::store::{Command, Key, Topic};
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

/// How often everything is looked at, changed or not.
const FULL: Duration = Duration::from_secs(60);

/// How long a pool has time to find its members again before one that is missing counts as gone.
const SETTLE: Duration = FULL;

/// Rest after a round, which also gathers what happens at the same time.
const REST: Duration = Duration::from_millis(200);

/// Rest after a round in which a write failed.
const RETRY: Duration = Duration::from_secs(1);

/// Nodes that are written at the same time. Consensus puts those into one entry of the log.
const AT_ONCE: usize = 64;

/// What the loops work with.
#[derive(Clone)]
pub struct Context {
    /// Where they write.
    pub consensus: Consensus,
    /// What the catalog shows of this server.
    pub own: watch::Receiver<OwnServer>,
    /// The datacenter's pool.
    pub lan: Gossip,
    /// Care for dead and new servers.
    pub autopilot: Autopilot,
}

/// Runs while this server leads.
pub async fn run_leader(context: Context) {
    tokio::join!(keep_catalog(context.clone()), keep_servers(context));
}

/// Keeps the addresses and metadata of this server's own node true, on every server: the leader knows the addresses of
/// others from gossip alone. Waits until the leader has registered the node.
pub async fn keep_own_node(consensus: Consensus, mut own: watch::Receiver<OwnServer>) {
    let node = Topic::Node(Key::of(own.borrow().name.shared()));
    let mut changes = consensus.store().watch([node]);
    loop {
        let wanted = own.borrow_and_update().node();
        let state = consensus.store().latest();
        let stale = state.node(wanted.node.as_str()).is_some_and(|node| {
            node.id == wanted.id
                && (node.tagged_addresses != wanted.tagged_addresses
                    || node.meta != wanted.node_meta)
        });
        if stale && let Err(error) = consensus.propose(Command::Register(Box::new(wanted))).await {
            debug!(%error, retry_in = ?RETRY, "this server's own node is not written");
            sleep(RETRY).await;
            continue;
        }
        sleep(REST).await;
        tokio::select! {
            () = changes.changed() => {}
            Ok(()) = own.changed() => {}
        }
    }
}

/// Names of members that were seen since this server leads.
#[derive(Default)]
struct Seen(BTreeSet<Key>);

impl Seen {
    fn note(&mut self, members: &[Member]) {
        let keys = members.iter().map(|member| Key::of(member.name.shared()));
        self.0.extend(keys);
    }
}

async fn keep_catalog(mut context: Context) {
    let begun = Instant::now();
    let mut changed_members = context.lan.watch();
    let mut seen = Seen::default();
    loop {
        let own = context.own.borrow_and_update().registration();
        let members = changed_members.borrow_and_update().clone();
        seen.note(&members);
        let store = context.consensus.store();
        let mut changes = store.watch(topics(&members));
        let plan = catalog::plan(&View {
            state: &store.latest(),
            members: &members,
            own: &own,
            seen: &seen.0,
            settled: begun.elapsed() >= SETTLE,
        });
        let written = write(&context.consensus, plan).await;
        sleep(if written { REST } else { RETRY }).await;
        if !written {
            continue;
        }
        tokio::select! {
            () = changes.changed() => {}
            Ok(()) = changed_members.changed() => {}
            Ok(()) = context.own.changed() => {}
            () = sleep(FULL) => {}
        }
    }
}

/// Nodes that come and go, and everything on servers: clients and gateways depend on what the catalog says of them.
fn topics(members: &[Member]) -> Vec<Topic> {
    let servers = members
        .iter()
        .filter(|m| m.tags.get("role") == Some("consul"));
    let nodes = servers.map(|server| Topic::Node(Key::of(server.name.shared())));
    nodes.chain([Topic::Nodes]).collect()
}

/// Carries a plan out; answers whether nothing is to be tried again soon.
async fn write(consensus: &Consensus, plan: Vec<Vec<Command>>) -> bool {
    let nodes = futures_util::stream::iter(plan);
    let done = nodes.map(|commands| async move {
        for command in commands {
            let what = describe(&command);
            match consensus.propose(command).await {
                Ok(_) => info!("{what}"),
                Err(error @ (ProposeError::Refused(_) | ProposeError::TooLarge { .. })) => {
                    warn!(%error, "refused: {what}");
                }
                Err(error) => {
                    warn!(%error, retry_in = ?RETRY, "not written: {what}");
                    return false;
                }
            }
        }
        true
    });
    done.buffer_unordered(AT_ONCE)
        .fold(true, async |all, one| all && one)
        .await
}

fn describe(command: &Command) -> String {
    match command {
        Command::Register(request) => {
            let status = request
                .check
                .as_ref()
                .map_or("", |check| check.status.as_str());
            format!("member {} is {status} in the catalog", request.node)
        }
        Command::Deregister {
            node, service_id, ..
        } if service_id.is_empty() => {
            format!("member {node} is gone from the catalog")
        }
        Command::Deregister { node, .. } => format!("member {node} is no server in the catalog"),
        _ => "catalog".to_owned(),
    }
}

/// What the loop over servers remembers.
#[derive(Default)]
struct Memory {
    seen: Seen,
    /// Since when each server is there, by id.
    stable: BTreeMap<NodeId, Instant>,
    /// Whether a server got its vote since this one leads: then dead ones may go.
    grown: bool,
    /// What was complained about last.
    rivals: Vec<NodeName>,
}

async fn keep_servers(context: Context) {
    let mut memory = Memory::default();
    let mut changed_members = context.lan.watch();
    loop {
        let members = changed_members.borrow_and_update().clone();
        memory.note(&members, Instant::now());
        let wake = round(&context, &mut memory, &members).await;
        sleep(REST).await;
        tokio::select! {
            Ok(()) = changed_members.changed() => {}
            () = sleep_until(wake) => {}
        }
    }
}

impl Memory {
    fn note(&mut self, members: &[Member], now: Instant) {
        self.seen.note(members);
        let alive = members.iter().filter(|m| m.status == MemberStatus::Alive);
        let ids: BTreeSet<NodeId> = alive
            .filter_map(|member| member.tags.get("id").map(NodeId::from))
            .collect();
        self.stable.retain(|id, _| ids.contains(id));
        for id in ids {
            self.stable.entry(id).or_insert(now);
        }
    }
}

/// Goes one round, and answers when the next is due even if nothing happens.
async fn round(context: &Context, memory: &mut Memory, members: &[Member]) -> Instant {
    let own = context.own.borrow().clone();
    let peers = context.consensus.peers();
    let seen = memory.seen.0.clone();
    let pool = Pool {
        datacenter: &own.datacenter,
        own: &own.id,
        members,
        peers: &peers,
        seen: &seen,
    };
    let rivals = pool.rivals();
    if rivals != memory.rivals {
        if !rivals.is_empty() {
            warn!(
                ?rivals,
                "more than one server is in bootstrap mode: none is added; leave out bootstrap on all but one"
            );
        }
        memory.rivals = rivals;
    }
    let mut next = Instant::now() + FULL;
    for step in pool.steps() {
        if let Step::Promote(peer) = &step
            && !pool.is_caught_up(peer, &context.autopilot)
        {
            debug!(%peer, "waits until it has the log");
            next = next.min(Instant::now() + RETRY);
            continue;
        }
        next = next.min(take(context, memory, step).await);
    }
    if memory.grown {
        for peer in pool.dead(&context.autopilot) {
            let reason = "it is dead, and a new server has taken its place";
            // The pool forgets it as well, so that its catalog rows go; one that only Raft knows is no member.
            let _ = context.lan.force_leave(&peer.node, false).await;
            next = next.min(take(context, memory, Step::Remove { peer, reason }).await);
        }
    }
    next
}

/// Takes one step; answers when to look again.
async fn take(context: &Context, memory: &mut Memory, step: Step) -> Instant {
    let now = Instant::now();
    let consensus = &context.consensus;
    let (peer, done) = match step {
        Step::Remove { peer, reason } => {
            let done = consensus.remove_server(&peer.id).await;
            if done.is_ok() {
                info!(%peer, reason, "removed from Raft");
            }
            (peer, done)
        }
        Step::Add(peer) => {
            let done = consensus.add_learner(peer.clone()).await;
            if done.is_ok() {
                info!(%peer, "added to Raft, without a vote yet");
                return now; // The next round promotes it.
            }
            (peer, done)
        }
        Step::Promote(peer) => {
            let since = memory.stable.get(&peer.id).copied().unwrap_or(now);
            let due = since + context.autopilot.stabilization;
            if due > now {
                debug!(%peer, "waits until it was there for long enough");
                return due;
            }
            let done = consensus.add_server(peer.clone()).await;
            if done.is_ok() {
                info!(%peer, "votes in Raft");
                memory.grown = true;
                return now; // Now dead ones may go.
            }
            (peer, done)
        }
    };
    match done {
        Ok(()) => now + FULL,
        Err(error) => {
            warn!(%peer, %error, retry_in = ?RETRY, "the Raft membership is not changed");
            now + RETRY
        }
    }
}

#[cfg(test)]
mod tests;
