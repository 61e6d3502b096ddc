//! Saving the whole state to an archive, and replacing it by one.
//!
//! Both work on every server: what is saved is as new as the leader's state, and the parts of a restored one are written
//! like everything else. Nothing is written before the whole archive was checked here.

mod stream;

use crate::api::Api;
use crate::api::error::Error;
use crate::api::route::Consistency;
use crate::consensus::PeerStatus;
use crate::model::{Datacenter, QueryMeta};
use crate::store::archive::{self, ArchiveError, ArchiveMeta, ArchiveServer, ArchiveServers};
use crate::store::{Command, RestoreOp, State};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

pub use crate::store::archive::MAX_ARCHIVE;
pub use stream::serve;

/// Bytes of the state in one log entry.
const PART: usize = 1 << 20;

/// How often a step whose outcome was lost is tried again; all but the last step may be repeated.
const TRIES: usize = 3;

/// Places for those who handle archives, which can be large.
#[derive(Clone)]
pub(crate) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl Api {
    /// Waits for a place among those who may hold an archive in memory.
    pub async fn archive_place(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed.
        self.inner.places.0.clone().acquire_owned().await.ok()
    }

    /// The whole state as an archive, and its facts. Unless it may be stale, the leader has confirmed that it leads.
    ///
    /// # Errors
    /// No path to the datacenter, no leader, or the state cannot be written.
    pub async fn save_snapshot(
        &self,
        datacenter: &Datacenter,
        stale: bool,
    ) -> Result<(QueryMeta, Vec<u8>), Error> {
        let consistency = match stale {
            true => Consistency::Stale,
            false => Consistency::Consistent,
        };
        self.reach(datacenter, consistency).await?;
        let (state, stats) = (self.store().latest(), self.consensus().stats());
        let index = state.last_index();
        let server = |status: &PeerStatus| ArchiveServer {
            suffrage: u8::from(!status.voter),
            id: status.peer.id.to_string(),
            address: status.peer.address.clone(),
        };
        let meta = ArchiveMeta {
            id: format!("{}-{index}", stats.term),
            index,
            term: stats.term,
            peers: archive::no_peers(),
            configuration: ArchiveServers {
                servers: stats.peers.iter().map(server).collect(),
            },
            configuration_index: stats.configuration_index,
            ..ArchiveMeta::default()
        };
        let packed = blocking(move || archive::pack(&state, meta)).await?;
        Ok((self.meta(index, consistency), packed))
    }

    /// Replaces the whole state by the one of an archive. What was written since it was saved is gone.
    ///
    /// # Errors
    /// The archive is damaged or not ours: the state is as it was. Also no path to the datacenter, no leader, or a leader
    /// that was lost before the last step was acknowledged.
    pub async fn restore_snapshot(
        &self,
        datacenter: &Datacenter,
        packed: Vec<u8>,
    ) -> Result<(), Error> {
        self.reach_datacenter(datacenter)?;
        let checked = blocking(move || {
            let (meta, state) = archive::unpack(&packed)?;
            State::from_snapshot(&state)?;
            Ok((meta, state))
        });
        let (meta, state) = checked.await?;
        let id = Uuid::new_v4().to_string();
        let done = self.hand_over(datacenter, &id, &state).await;
        match &done {
            Ok(()) => tracing::info!(index = meta.index, "restored a snapshot"),
            Err(_) => {
                let give_up = Command::Restore(RestoreOp::GiveUp { id });
                let _ = self.consensus().propose(give_up).await; // The next restore ends this one as well.
            }
        }
        done
    }

    async fn hand_over(
        &self,
        datacenter: &Datacenter,
        id: &str,
        state: &[u8],
    ) -> Result<(), Error> {
        let begin = RestoreOp::Begin { id: id.to_owned() };
        self.surely(datacenter, begin).await?;
        for (n, bytes) in state.chunks(PART).enumerate() {
            let part = RestoreOp::Part {
                id: id.to_owned(),
                at: (n * PART) as u64,
                bytes: bytes.to_vec(),
            };
            self.surely(datacenter, part).await?;
        }
        let finish = RestoreOp::Finish {
            id: id.to_owned(),
            size: state.len() as u64,
        };
        self.write(datacenter, Command::Restore(finish))
            .await
            .map(|_| ())
    }

    /// Writes a step that may be repeated.
    async fn surely(&self, datacenter: &Datacenter, op: RestoreOp) -> Result<(), Error> {
        let command = Command::Restore(op);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.write(datacenter, command.clone()).await {
                Ok(_) => return Ok(()),
                Err(Error::Internal(_)) if tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ArchiveError> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Error::refused(error.to_string())),
        Err(error) => Err(Error::Internal(error.to_string())),
    }
}
