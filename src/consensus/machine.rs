//! openraft's state machine: applies entries to the state, publishes once per round, makes and installs snapshots.

use crate::consensus::disk::is_full;
use crate::consensus::error::Error;
use crate::consensus::snapshots::Snapshots;
use crate::consensus::types::{
    Answers, Entry, LogId, Proposal, SnapshotMeta, StorageError, StoredMembership, Types,
};
use crate::store::{Command, RestoreOp, State, Store, Topic};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError,
};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often a snapshot is tried again on a full disk.
const RETRY: Duration = Duration::from_secs(1);

/// A snapshot's description and its state bytes.
pub(crate) type Kept = (SnapshotMeta, Vec<u8>);

/// Where snapshots are kept.
#[derive(Clone)]
pub(crate) enum Keep {
    Files(Snapshots),
    Memory(Arc<Mutex<Option<Kept>>>),
}

/// Up to which entry the log is in the published state.
pub(crate) type Applied = watch::Receiver<Option<LogId>>;

/// The state with its place in the log.
pub(crate) struct Machine {
    state: State,
    applied: Option<LogId>,
    tell: watch::Sender<Option<LogId>>,
    membership: StoredMembership,
    store: Store,
    keep: Keep,
}

impl Machine {
    /// An empty state.
    pub(crate) fn new(store: Store, keep: Keep) -> Self {
        Self {
            state: State::default(),
            applied: None,
            tell: watch::Sender::default(),
            membership: StoredMembership::default(),
            store,
            keep,
        }
    }

    /// Follows what is applied.
    pub(crate) fn follow(&self) -> Applied {
        self.tell.subscribe()
    }

    /// Takes over a snapshot's content.
    pub(crate) fn restore(&mut self, meta: &SnapshotMeta, bytes: &[u8]) -> Result<(), String> {
        self.state = State::from_snapshot(bytes).map_err(|error| error.to_string())?;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.store.publish_restored(self.state.clone());
        self.tell.send_replace(self.applied);
        Ok(())
    }

    /// Applies one entry without telling anybody.
    pub(crate) fn replay(&mut self, entry: Entry) -> Result<(), String> {
        match entry.payload {
            EntryPayload::Normal(proposal) => {
                self.apply_proposal(entry.log_id, &proposal, (&mut BTreeSet::new(), &mut false))
                    .map_err(|error| error.to_string())?;
            }
            EntryPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            EntryPayload::Blank => {}
        }
        self.applied = Some(entry.log_id);
        Ok(())
    }

    /// The state as a snapshot holds it.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        self.state.to_snapshot().map_err(|error| error.to_string())
    }

    pub(crate) fn applied(&self) -> Option<LogId> {
        self.applied
    }

    pub(crate) fn membership(&self) -> &StoredMembership {
        &self.membership
    }

    /// Applies the commands of one entry. They share its index.
    #[expect(clippy::result_large_err, reason = "openraft's error type")]
    fn apply_proposal(
        &mut self,
        log_id: LogId,
        proposal: &Proposal,
        (touched, restored): (&mut BTreeSet<Topic>, &mut bool),
    ) -> Result<Answers, StorageError> {
        let mut answers = Vec::with_capacity(proposal.commands.len());
        for sealed in proposal.commands.iter() {
            let command = sealed.command().map_err(|error| {
                tracing::error!(index = log_id.index, %error, "a log entry cannot be applied");
                StorageIOError::apply(log_id, AnyError::new(&error))
            })?;
            let applied = self.state.apply(log_id.index, &command);
            touched.extend(applied.topics);
            let finish = matches!(&*command, Command::Restore(RestoreOp::Finish { .. }));
            *restored |= finish && applied.result.is_ok();
            answers.push(applied.result);
        }
        Ok(answers)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the shell around the state measures how long applying takes"
    )]
    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answers>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let start = std::time::Instant::now();
        let (mut touched, mut restored) = (BTreeSet::new(), false);
        let mut out = Vec::new();
        for entry in entries {
            let answers = match entry.payload {
                EntryPayload::Normal(proposal) => {
                    self.apply_proposal(entry.log_id, &proposal, (&mut touched, &mut restored))?
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Answers::new()
                }
                EntryPayload::Blank => Answers::new(),
            };
            self.applied = Some(entry.log_id);
            out.push(answers);
        }
        if restored {
            tracing::info!("the state was replaced by a saved one");
            self.store.publish_restored(self.state.clone());
        } else if out.iter().any(|answers| !answers.is_empty()) {
            self.store.publish(self.state.clone(), &touched);
        }
        self.tell.send_replace(self.applied);
        metrics::histogram!("consul.raft.fsm.apply").record(start.elapsed().as_secs_f64() * 1e3);
        Ok(out)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            state: self.state.clone(),
            applied: self.applied,
            membership: self.membership.clone(),
            keep: self.keep.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let bytes = snapshot.into_inner();
        let signature = Some(meta.signature());
        let read = blocking(move || match State::from_snapshot(&bytes) {
            Ok(state) => Ok((state, bytes)),
            Err(error) => Err(Error::Raft(error.to_string())),
        });
        let (state, bytes) = read
            .await
            .map_err(|e| StorageIOError::read_snapshot(signature, any(&e)))?;
        // On disk first: after a restart the log may no longer hold what the snapshot replaces.
        keep(&self.keep, meta.clone(), bytes).await?;
        self.state = state;
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.store.publish_restored(self.state.clone());
        self.tell.send_replace(self.applied);
        tracing::info!(
            index = self.state.last_index(),
            "installed a snapshot from the leader"
        );
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError> {
        let found = match &self.keep {
            Keep::Memory(kept) => kept.lock().clone(),
            Keep::Files(files) => {
                let files = files.clone();
                let newest = blocking(move || files.newest()).await;
                let newest = newest.map_err(|e| StorageIOError::read_snapshot(None, any(&e)))?;
                newest.map(|(_, meta, state)| (meta, state))
            }
        };
        Ok(found.map(|(meta, state)| Snapshot {
            meta,
            snapshot: Box::new(Cursor::new(state)),
        }))
    }
}

/// A view of the state at one index, to be written while newer entries are applied.
pub(crate) struct Builder {
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
    keep: Keep,
}

impl RaftSnapshotBuilder<Types> for Builder {
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell around the files measures how long a snapshot takes"
    )]
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError> {
        let start = std::time::Instant::now();
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
            snapshot_id: uuid::Uuid::new_v4().to_string(),
        };
        let state = self.state.clone();
        let bytes = blocking(move || {
            state
                .to_snapshot()
                .map_err(|error| Error::Raft(error.to_string()))
        })
        .await
        .map_err(|e| StorageIOError::write_snapshot(Some(meta.signature()), any(&e)))?;
        keep(&self.keep, meta.clone(), bytes.clone()).await?;
        let took = start.elapsed();
        metrics::histogram!("consul.raft.snapshot.persist").record(took.as_secs_f64() * 1e3);
        let index = self.applied.map_or(0, |log_id| log_id.index);
        tracing::info!(index, bytes = bytes.len(), ?took, "wrote a snapshot");
        Ok(Snapshot {
            meta,
            snapshot: Box::new(Cursor::new(bytes)),
        })
    }
}

/// Stores a snapshot. On a full disk it waits for space: the log goes on without it.
async fn keep(keep: &Keep, meta: SnapshotMeta, bytes: Vec<u8>) -> Result<(), StorageError> {
    let files = match keep {
        Keep::Memory(kept) => {
            *kept.lock() = Some((meta, bytes));
            return Ok(());
        }
        Keep::Files(files) => files.clone(),
    };
    let what = Arc::new((meta, bytes));
    loop {
        let (files, saved) = (files.clone(), what.clone());
        match blocking(move || files.save(&saved.0, &saved.1)).await {
            Ok(()) => return Ok(()),
            Err(Error::Io { reason, path, .. }) if is_full(&reason) => {
                tracing::error!(path = %path.display(), error = %reason, "no space for a snapshot; trying again");
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => {
                let signature = Some(what.0.signature());
                return Err(StorageIOError::write_snapshot(signature, any(&error)).into());
            }
        }
    }
}

fn any(error: &Error) -> AnyError {
    AnyError::error(error.to_string())
}

/// Runs what blocks off the reactor.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::Raft(error.to_string())))
}
