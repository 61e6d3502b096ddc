//! The agent of a pool: one task that owns nothing but the clock, the network and two files, and does what the pure
//! cores decide.
//!
//! ```text
//!   Inbox --packets--> open --\                         /--> seal --> Transport::send_packet
//!         --streams--> read ---> Serf (behind a lock) ------> streams: push/pull, probe, the answers
//!   Gossip: join, leave, ... --/        ^               \--> keyring file, snapshot file
//!                                       |                \-> members (watch), user events (broadcast)
//!                                  deadline, told by a wake
//! ```
//!
//! [`Gossip`] is the handle; it can be cloned. Calls change the core at once, under its lock, and wake the task. Each
//! stream is served in a task of its own, within bounds of number, memory and time; all of them end with the agent.

mod config;
mod error;
mod exchange;
mod keyring_file;
mod prepare;
mod shared;
mod snapshot_file;
mod streams;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use rand::RngCore;
use tokio::sync::broadcast;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::sync::watch;

pub use config::Admission;
pub use config::AdmitAll;
pub use config::Config;
pub use error::Error;
pub use error::JoinError;
pub use error::JoinFailure;
pub use exchange::StreamError;
pub use keyring_file::KeyringFileError;

use crate::gossip::Coordinate;
use crate::gossip::Inbox;
use crate::gossip::Member;
use crate::gossip::Tags;
use crate::gossip::Target;
use crate::gossip::Transport;
use crate::gossip::agent::shared::Shared;
use crate::gossip::agent::task::Join;
use crate::gossip::agent::task::Task;
use crate::gossip::agent::task::Told;
use crate::gossip::serf;
use crate::gossip::serf::KeyOperation;
use crate::gossip::serf::KeyReport;
use crate::gossip::serf::Serf;
use crate::gossip::swim::Token;
use crate::gossip::wire::serf::UserEvent;
use crate::model::NodeName;

/// Addresses that are joined at once.
const JOINS: usize = 8;
/// User events that a receiver may be behind.
const EVENTS: usize = 256;

/// A handle of a running agent. Cloning it is cheap. The agent runs until [`shutdown`](Self::shutdown), or until its
/// inbox is closed.
#[derive(Debug, Clone)]
pub struct Gossip {
    shared: Arc<Shared>,
    joins: mpsc::Sender<Join>,
    members: watch::Receiver<Arc<[Member]>>,
    events: broadcast::WeakSender<UserEvent>,
}

impl Gossip {
    /// Starts the agent of a pool, over a network; `admission` decides who may be in it. It tries to join whom its
    /// snapshot remembers, but does not wait for that.
    ///
    /// # Errors
    /// What is wrong with the tags or a file, and what to do.
    pub async fn start(
        config: Config,
        transport: Arc<dyn Transport>,
        inbox: Inbox,
        admission: Arc<dyn Admission>,
    ) -> Result<Self, Error> {
        let (core, protection, files) = prepare::prepare(config, admission)?;
        let shared = Arc::new(Shared::new(core, protection));
        let members = shared.look(|core| core.members().cloned().collect());
        let (told_members, members) = watch::channel(members);
        let (told_events, _) = broadcast::channel(EVENTS);
        let (join, joins) = mpsc::channel(JOINS);
        let gossip = Self {
            shared: shared.clone(),
            joins: join,
            members,
            events: told_events.downgrade(),
        };
        let told = Told {
            members: told_members,
            events: told_events,
        };
        let task = Task::new(shared, (transport, inbox), joins, told, files);
        tokio::spawn(task.run());
        Ok(gossip)
    }

    /// This agent's name.
    pub fn name(&self) -> &NodeName {
        &self.shared.name
    }

    /// All members that are known, sorted by name: this agent too, and those who failed or left not long ago.
    pub fn members(&self) -> Arc<[Member]> {
        self.members.borrow().clone()
    }

    /// Tells every change of the members; ends with the agent.
    pub fn watch(&self) -> watch::Receiver<Arc<[Member]>> {
        self.members.clone()
    }

    /// Tells user events from now on, each once; this agent's own too. A receiver that falls behind is told how many it
    /// missed. Ends with the agent.
    pub fn events(&self) -> broadcast::Receiver<UserEvent> {
        match self.events.upgrade() {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Joins the pools of these members, all of them, and tells how many answered.
    ///
    /// # Errors
    /// When none did: why, for each.
    pub async fn join(&self, addresses: &[Target]) -> Result<usize, JoinError> {
        let attempts = addresses.iter().cloned().map(|to| self.join_one(to));
        let results: Vec<_> = stream::iter(attempts).buffered(JOINS).collect().await;
        let joined = results.iter().filter(|result| result.is_ok()).count();
        let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if joined == 0 {
            return Err(JoinError { failures });
        }
        for failure in failures {
            tracing::warn!("gossip: cannot join {failure}");
        }
        Ok(joined)
    }

    async fn join_one(&self, to: Target) -> Result<(), JoinFailure> {
        let (reply, result) = oneshot::channel();
        let join = Join {
            to: to.clone(),
            reply,
        };
        let joined = match self.joins.send(join).await {
            Ok(()) => result.await.unwrap_or(Err(StreamError::Stopped)),
            Err(_) => Err(StreamError::Stopped),
        };
        joined.map_err(|reason| JoinFailure { target: to, reason })
    }

    /// Leaves the pool in order, and returns when that got around. The agent still answers until it is
    /// [shut down](Self::shutdown).
    pub async fn leave(&self) {
        self.shared.tell(|core, now, rng| core.leave(now, rng));
        tokio::select! {
            () = self.shared.left.cancelled() => {}
            () = self.shared.stopped.cancelled() => {}
        }
    }

    /// Stops the agent and closes its sockets. Without [`leave`](Self::leave) before, the others take that for a failure.
    pub async fn shutdown(&self) {
        self.shared.stop.cancel();
        self.shared.stopped.cancelled().await;
    }

    /// Makes a member leave that failed and will not do so itself; with `prune`, all forget it at once. Returns when the
    /// pool was told.
    ///
    /// # Errors
    /// When nobody has the name, or this agent has it.
    pub async fn force_leave(&self, name: &NodeName, prune: bool) -> Result<(), Error> {
        self.command(|core, now, token, rng| core.force_leave(now, name, prune, token, rng))
            .await
    }

    /// Changes what this agent says about itself. Returns when the pool was told.
    ///
    /// # Errors
    /// When the tags are too long.
    pub async fn set_tags(&self, tags: Tags) -> Result<(), Error> {
        self.command(|core, now, token, rng| core.set_tags(now, tags, token, rng))
            .await
    }

    async fn command(
        &self,
        command: impl FnOnce(&mut Serf, Instant, Token, &mut dyn RngCore) -> Result<(), serf::Error>,
    ) -> Result<(), Error> {
        let (token, done) = self.shared.waiting.lock().command();
        let told = self
            .shared
            .tell(|core, now, rng| command(core, now, token, rng));
        if let Err(error) = told {
            self.shared.waiting.lock().commands.remove(&token);
            return Err(error.into());
        }
        tokio::select! {
            _ = done => Ok(()),
            () = self.shared.stopped.cancelled() => Err(Error::Stopped),
        }
    }

    /// Tells all members something: at most 512 bytes with its name. With `coalesce`, receivers may take only the last
    /// of several events of one name that come soon after each other.
    ///
    /// # Errors
    /// When it is too long.
    pub async fn user_event(
        &self,
        name: &str,
        payload: Bytes,
        coalesce: bool,
    ) -> Result<(), Error> {
        self.shared
            .tell(|core, now, rng| core.user_event(now, name, payload, coalesce, rng))?;
        Ok(())
    }

    /// Changes or lists the keys of all members. Answers also come over `relay_factor` other members, in case the
    /// direct way fails.
    ///
    /// # Errors
    /// When the members cannot be asked. What members did or not is in the report.
    pub async fn keyring(
        &self,
        operation: KeyOperation,
        relay_factor: u8,
    ) -> Result<KeyReport, Error> {
        let (reply, report) = oneshot::channel();
        self.shared.tell(|core, now, rng| {
            let query = core.keys(now, &operation, relay_factor, rng)?;
            self.shared.waiting.lock().reports.insert(query, reply);
            Ok::<_, Error>(())
        })?;
        tokio::select! {
            report = report => report.map_err(|_| Error::Stopped),
            () = self.shared.stopped.cancelled() => Err(Error::Stopped),
        }
    }

    /// This agent's place in the network.
    pub fn coordinate(&self) -> Coordinate {
        self.shared.look(|core| core.coordinate().clone())
    }

    /// The place of a member, once it has answered a probe of this agent.
    pub fn coordinate_of(&self, name: &NodeName) -> Option<Coordinate> {
        self.shared.look(|core| core.coordinate_of(name).cloned())
    }

    /// The figures that serf shows in `info`, by their names.
    pub fn stats(&self) -> BTreeMap<String, String> {
        self.shared.look(Serf::stats)
    }
}
