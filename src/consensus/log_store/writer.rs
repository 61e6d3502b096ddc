//! The thread that writes: everything that waits becomes one transaction, one fsync.
//!
//! On a full disk it keeps what it was asked to write and tries again until there is space; meanwhile the fault is
//! published, so that proposers get an error at once. Any other failure ends it, and with it Raft on this server.

use crate::consensus::disk::{Change, Disk, io_error, is_full};
use crate::consensus::error::Error;
use crate::consensus::log_store::{Fault, Shared};
use crate::consensus::types::{LogId, Types};
use openraft::storage::LogFlushed;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often a full disk is tried again. Nothing tells when space comes back.
const RETRY: Duration = Duration::from_millis(250);
/// How long the committed mark may stay in memory when nothing else is written.
const IDLE: Duration = Duration::from_millis(500);

pub(crate) enum Op {
    /// Openraft waits for this one through its callback.
    Append(Change, LogFlushed<Types>),
    Change(Change, oneshot::Sender<io::Result<()>>),
    Stop,
}

enum Done {
    Append(LogFlushed<Types>),
    Change(oneshot::Sender<io::Result<()>>),
}

impl Done {
    fn tell(self, result: io::Result<()>) {
        match self {
            Self::Append(done) => done.log_io_completed(result),
            Self::Change(done) => {
                let _ = done.send(result); // The asker may be gone.
            }
        }
    }
}

/// A handle on the thread.
pub(crate) struct Writer {
    ops: mpsc::Sender<Op>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(crate) fn start(disk: Arc<Disk>, shared: Arc<Shared>) -> Self {
        let (ops, waiting) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let give_up = stop.clone();
        let thread = std::thread::Builder::new()
            .name("raft-log".to_owned())
            .spawn(move || {
                Loop {
                    disk,
                    shared,
                    waiting,
                    stopping: false,
                    give_up,
                }
                .run();
            });
        let thread = thread
            .inspect_err(|error| tracing::error!(%error, "cannot start the log writer"))
            .ok();
        Self {
            ops,
            stop,
            thread: Mutex::new(thread),
        }
    }

    pub(crate) fn give_up(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Asks for a write. If the thread ended, the dropped callback tells the asker.
    pub(crate) fn send(&self, op: Op) {
        let _ = self.ops.send(op);
    }

    /// Waits until everything asked for is written, or for one more try if the disk is full.
    pub(crate) fn stop(&self) {
        self.give_up();
        self.send(Op::Stop);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Loop {
    disk: Arc<Disk>,
    shared: Arc<Shared>,
    waiting: mpsc::Receiver<Op>,
    stopping: bool,
    /// Set with a stop: a full disk is waited for no longer.
    give_up: Arc<AtomicBool>,
}

impl Loop {
    fn run(mut self) {
        let mut saved = *self.shared.committed.lock();
        let mut idle = true;
        while !self.stopping {
            let Ok(first) = self.next(idle) else {
                return;
            };
            idle = first.is_none();
            let (changes, done) = self.collect(first);
            let committed = *self.shared.committed.lock();
            if changes.is_empty() && committed == saved {
                continue;
            }
            match self.write(&changes, committed) {
                Ok(()) => {
                    saved = committed;
                    self.note_durable(&changes);
                    done.into_iter().for_each(|done| done.tell(Ok(())));
                }
                Err(error) => return fail(done, &error),
            }
        }
    }

    /// The next request, or `None` when a short while passed without one. Once idle it waits as long as it takes.
    fn next(&self, idle: bool) -> Result<Option<Op>, mpsc::RecvError> {
        if idle {
            return self.waiting.recv().map(Some);
        }
        match self.waiting.recv_timeout(IDLE) {
            Ok(op) => Ok(Some(op)),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(mpsc::RecvError),
        }
    }

    /// What waits, in order, up to a stop.
    fn collect(&mut self, first: Option<Op>) -> (Vec<Change>, Vec<Done>) {
        let (mut changes, mut done) = (Vec::new(), Vec::new());
        let mut next = first;
        while let Some(op) = next {
            match op {
                Op::Append(change, callback) => {
                    changes.push(change);
                    done.push(Done::Append(callback));
                }
                Op::Change(change, answer) => {
                    changes.push(change);
                    done.push(Done::Change(answer));
                }
                Op::Stop => {
                    self.stopping = true;
                    break;
                }
            }
            next = self.waiting.try_recv().ok();
        }
        (changes, done)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell around the disk measures how long it takes"
    )]
    fn write(&mut self, changes: &[Change], committed: Option<LogId>) -> io::Result<()> {
        let start = std::time::Instant::now();
        let mut result = self.disk.write(changes, committed).map_err(io_error);
        while let Err(error) = &result {
            self.publish(error);
            if !is_full(error) || self.give_up.load(Ordering::Acquire) {
                break;
            }
            std::thread::sleep(RETRY);
            result = self.try_again(changes, committed);
        }
        if result.is_ok() {
            let took = start.elapsed();
            metrics::histogram!("consul.raft.fsync").record(took.as_secs_f64() * 1e3);
            self.shared.fsync_took(took);
            self.clear();
        }
        result
    }

    fn try_again(&self, changes: &[Change], committed: Option<LogId>) -> io::Result<()> {
        self.disk.reopen().map_err(|error| match error {
            Error::Io { reason, .. } => reason,
            // A file that cannot even be repaired for want of space must not be called damaged.
            other => io::Error::new(io::ErrorKind::StorageFull, other.to_string()),
        })?;
        self.disk.write(changes, committed).map_err(io_error)
    }

    fn publish(&self, error: &io::Error) {
        let passing = is_full(error);
        let text = if passing {
            let path = self.disk.path().display();
            format!("the disk is full ({path}: {error}); writes work again when there is space")
        } else {
            format!("{}: {error}", self.disk.path().display())
        };
        let fault = Some(Fault { text, passing });
        self.shared.fault.send_if_modified(|old| {
            if *old == fault {
                return false;
            }
            if let Some(fault) = &fault {
                tracing::error!(passing, "raft log: {}", fault.text);
            }
            *old = fault;
            true
        });
    }

    fn clear(&self) {
        let cleared = self
            .shared
            .fault
            .send_if_modified(|old| old.take().is_some());
        if cleared {
            tracing::info!("raft log: the disk takes writes again");
        }
    }

    fn note_durable(&self, changes: &[Change]) {
        // In order: what a later change of the same transaction cut off again is not there.
        let durable = changes
            .iter()
            .fold(None, |durable: Option<u64>, change| match change {
                Change::Append(records) => records.last().map(|(index, _)| *index).or(durable),
                Change::Truncate(from) => durable.filter(|index| index < from),
                Change::Vote(_) | Change::Purge(_) => durable,
            });
        if let Some(index) = durable {
            self.shared.cache.lock().durable(index);
        }
    }
}

fn fail(done: Vec<Done>, error: &io::Error) {
    for done in done {
        done.tell(Err(io::Error::new(error.kind(), error.to_string())));
    }
}
