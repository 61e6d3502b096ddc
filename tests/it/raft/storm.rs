//! Writers and readers while leaders are killed, replaced and cut off.
//!
//! `CROSSWAY_SOAK=1` runs for minutes instead of seconds.

use crate::support::linear::{Answer, Event, Op, check};
use crate::support::raft::{Pass, Servers, get, set, until};
use crossway::consensus::{Consensus, Freshness, ProposeError};
use crossway::model::KvEntry;
use crossway::store::{Command, KvOp, Outcome};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

fn soak() -> bool {
    std::env::var("CROSSWAY_SOAK").is_ok_and(|value| value == "1")
}

/// The servers that run just now.
type Board = Arc<Mutex<Vec<Consensus>>>;

fn show(board: &Board, servers: &Servers) {
    *board.lock() = servers.all().cloned().collect();
}

fn leader_of(board: &Board) -> Option<Consensus> {
    let board = board.lock();
    let mut leading = board
        .iter()
        .filter(|server| server.role().borrow().is_leader());
    leading.next().cloned()
}

/// Whether a refused write may take effect all the same.
fn may_happen(error: &ProposeError) -> bool {
    matches!(
        error,
        ProposeError::Unknown
            | ProposeError::Storage(_)
            | ProposeError::Shutdown
            | ProposeError::NoQuorum
    )
}

/// Waits until something changed, for a moment: no server leads.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_leaders_lose_no_acknowledged_write_and_leave_nothing_behind() {
    let mut servers = Servers::start(3, false).await;
    servers.leader().await;
    let (board, stop) = (Board::default(), Arc::new(AtomicBool::new(false)));
    show(&board, &servers);
    // One change of each kind first: what lives from then on lives for good.
    let leader = servers.leader().await;
    servers.at(leader).transfer_leadership(None).await.unwrap();
    servers.leader().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();

    let count = Arc::<AtomicU64>::default();
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let (board, stop, count) = (board.clone(), stop.clone(), count.clone());
        writers.spawn(async move {
            let (mut acknowledged, mut at) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                at += 1;
                let key = format!("{writer}-{at}");
                match leader_of(&board) {
                    Some(leader) if leader.propose(set(&key, "")).await.is_ok() => {
                        acknowledged.push(key);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => pause().await,
                }
            }
            acknowledged
        });
    }
    let start = Instant::now();
    for round in 0..100 {
        let leader = servers.leader().await;
        let written = || count.load(Ordering::Relaxed);
        let enough = written() + 10;
        until("each leader writes", || written() >= enough).await;
        if round % 10 == 9 {
            servers.kill(leader).await;
            show(&board, &servers);
            servers.leader().await;
            servers.run(leader).await;
            show(&board, &servers);
        } else if let Err(error) = servers.at(leader).transfer_leadership(None).await {
            println!("round {round}: {error}");
        }
    }
    let leader = servers.leader().await;
    println!(
        "100 leaders in {:?}, now in term {}",
        start.elapsed(),
        servers.at(leader).stats().term
    );
    assert!(
        servers.at(leader).stats().term > 95,
        "most of them did change"
    );
    stop.store(true, Ordering::Relaxed);
    let acknowledged: Vec<String> = writers.join_all().await.into_iter().flatten().collect();
    println!("{} acknowledged writes", acknowledged.len());
    assert!(acknowledged.len() >= 1000);
    for server in servers.all() {
        until("every acknowledged write on every server", || {
            acknowledged.iter().all(|key| get(server, key).is_some())
        })
        .await;
    }
    let slack = 6; // Connections that only votes use come and go.
    until("as many tasks as before", || tasks() <= before + slack).await;
    servers.end().await;
}

/// A client of the linearizability test.
struct Client {
    id: usize,
    board: Board,
    clock: Instant,
    values: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

fn read(server: &Consensus, key: &str) -> (Option<u64>, u64) {
    let (_, entry) = server.store().latest().kv_get(key);
    entry.map_or((None, 0), |entry| {
        let text = std::str::from_utf8(&entry.value).unwrap();
        (Some(text.parse().unwrap()), entry.modify_index)
    })
}

impl Client {
    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap()
    }

    async fn run(self) -> Vec<(String, Event)> {
        let mut history = Vec::new();
        while !self.stop.load(Ordering::Relaxed) {
            let Some(leader) = leader_of(&self.board) else {
                pause().await;
                continue;
            };
            let key = format!("key {}", rand::random_range(0..8));
            let asked = self.now();
            let done = match rand::random_range(0..10) {
                0..4 => self.get(&leader, &key).await,
                4..7 => self.put(&leader, &key).await,
                7 => self.delete(&leader, &key).await,
                _ => self.cas(&leader, &key).await,
            };
            match done {
                Some((op, answer)) => {
                    let event = Event {
                        client: self.id,
                        op,
                        answer,
                        asked,
                        answered: self.now(),
                    };
                    history.push((key, event));
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                None => pause().await,
            }
        }
        history
    }

    async fn get(&self, leader: &Consensus, key: &str) -> Option<(Op, Answer)> {
        leader.catch_up(Freshness::Quorum).await.ok()?;
        Some((Op::Get, Answer::Value(read(leader, key).0)))
    }

    /// `None` when it certainly did not happen.
    async fn write(&self, leader: &Consensus, op: KvOp) -> Option<Result<Outcome, ()>> {
        match leader.propose(Command::Kv(op)).await {
            Ok(written) => Some(Ok(written.outcome)),
            Err(error) => may_happen(&error).then_some(Err(())),
        }
    }

    fn entry(key: &str, value: u64, modify_index: u64) -> KvEntry {
        KvEntry {
            key: key.into(),
            value: value.to_string().into_bytes(),
            modify_index,
            ..KvEntry::default()
        }
    }

    async fn put(&self, leader: &Consensus, key: &str) -> Option<(Op, Answer)> {
        let value = self.values.fetch_add(1, Ordering::Relaxed);
        let written = self
            .write(leader, KvOp::Set(Self::entry(key, value, 0)))
            .await?;
        Some((
            Op::Put(value),
            written.map_or(Answer::Unknown, |_| Answer::Done),
        ))
    }

    async fn delete(&self, leader: &Consensus, key: &str) -> Option<(Op, Answer)> {
        let written = self.write(leader, KvOp::Delete(key.into())).await?;
        Some((
            Op::Delete,
            written.map_or(Answer::Unknown, |_| Answer::Done),
        ))
    }

    /// Values are never written twice, so an index stands for a value.
    async fn cas(&self, leader: &Consensus, key: &str) -> Option<(Op, Answer)> {
        let (expected, index) = read(leader, key);
        let value = self.values.fetch_add(1, Ordering::Relaxed);
        let written = self
            .write(leader, KvOp::Cas(Self::entry(key, value, index)))
            .await?;
        let answer = match written {
            Ok(outcome) => Answer::Swapped(outcome == Outcome::Bool(true)),
            Err(()) => Answer::Unknown,
        };
        Some((Op::Cas(expected, value), answer))
    }
}

/// One thing that goes wrong, and is right again a moment later.
async fn trouble(servers: &mut Servers, board: &Board) {
    let moment = Duration::from_millis(rand::random_range(100..1500));
    let victim = rand::random_range(0..3);
    let leading = |servers: &Servers| (0..3).find(|at| servers.at(*at).role().borrow().is_leader());
    let leader = leading(servers).unwrap_or(victim);
    match rand::random_range(0..6) {
        0 | 1 => {
            servers.kill(leader).await;
            show(board, servers);
            tokio::time::sleep(moment).await;
            servers.run(leader).await;
            show(board, servers);
        }
        2 => {
            servers.set_links(leader, Pass::Swallow);
            tokio::time::sleep(moment).await;
            servers.set_links(leader, Pass::All);
        }
        3 => {
            servers.set_links(victim, Pass::Nothing);
            tokio::time::sleep(moment).await;
            servers.set_links(victim, Pass::All);
        }
        4 => {
            servers.set_link(leader, (leader + 1) % 3, Pass::Nothing);
            tokio::time::sleep(moment).await;
            servers.set_link(leader, (leader + 1) % 3, Pass::All);
        }
        _ => {
            let _ = servers.at(leader).transfer_leadership(None).await; // There may be no leader.
        }
    }
    tokio::time::sleep(Duration::from_millis(rand::random_range(0..600))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_are_linearizable_while_leaders_die_and_links_break() {
    let mut servers = Servers::start(3, false).await;
    servers.snapshot_threshold = 200; // Snapshots and purged logs belong to it.
    let (board, stop) = (Board::default(), Arc::new(AtomicBool::new(false)));
    show(&board, &servers);
    let (values, clock) = (Arc::<AtomicU64>::default(), Instant::now());
    let mut clients = JoinSet::new();
    for id in 0..6 {
        let client = Client {
            id,
            board: board.clone(),
            clock,
            values: values.clone(),
            stop: stop.clone(),
        };
        clients.spawn(client.run());
    }
    let length = Duration::from_secs(if soak() { 300 } else { 12 });
    let mut troubles = 0;
    while clock.elapsed() < length {
        trouble(&mut servers, &board).await;
        troubles += 1;
    }
    servers.leader().await;
    stop.store(true, Ordering::Relaxed);
    let mut history = BTreeMap::<String, Vec<Event>>::new();
    for (key, event) in clients.join_all().await.into_iter().flatten() {
        history.entry(key).or_default().push(event);
    }
    let all = || history.values().flatten();
    let unknown = all()
        .filter(|event| event.answer == Answer::Unknown)
        .count();
    println!(
        "{} operations, {unknown} of unknown outcome, {troubles} troubles",
        all().count()
    );
    assert!(all().count() - unknown > 200, "the servers did work");
    if let Err(why) = check(&history) {
        panic!("{why}");
    }
    servers.end().await;
}
