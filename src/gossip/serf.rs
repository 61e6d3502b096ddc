//! serf: what members mean, say and ask, on top of [`swim`], which knows who lives. Behaves as the serf of Consul
//! 1.8.7. Pure: what comes in are opened messages, commands and the time, what goes out are [`Output`]s.
//!
//! ```text
//!   handle_message      packets that were opened           poll_output: packets to seal and send,
//!   merge_remote_state  streams                   Serf                  streams to open,
//!   tick                next_deadline has come    Swim                  members' lives, events, queries, answers,
//!   joined, leave, user_event, query, keys ...                          what to write to files
//! ```
//!
//! | file | what it decides |
//! | --- | --- |
//! | `members` | who is a member: alive, leaving, left, failed, or forgotten |
//! | `intents` | who wants to join and leave: others, and we |
//! | `exchange` | what a push/pull says and means |
//! | `events`, `history` | user events; what was heard before |
//! | `query`, `respond` | queries of ours and their answers; queries of others |
//! | `keys`, `conflict` | serf's own queries: the pool's keys, and who has a name |
//! | `places` | where members are in the network |
//! | `upkeep` | what is due: forgetting, reconnecting, the clocks of the snapshot |
//! | `snapshot` | the file from which a restarted agent finds its pool again |
//!
//! A join is an exchange over a stream that the shell does: send [`local_state`](Serf::local_state), give what comes
//! back to [`merge_remote_state`](Serf::merge_remote_state), and say [`joined`](Serf::joined) once at least one of the
//! addresses let us. After each call, take all outputs and ask for the next deadline again.

mod clock;
mod config;
mod conflict;
mod error;
mod events;
mod exchange;
mod history;
mod intents;
mod keys;
mod members;
mod output;
mod places;
mod query;
mod respond;
mod snapshot;
mod upkeep;

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

pub use config::Config;
pub use config::Timing;
pub use error::Error;
pub use exchange::Exchange;
pub use keys::KeyOperation;
pub use keys::KeyReport;
pub use members::MemberChange;
pub use output::Output;
pub use query::QueryId;
pub use query::QueryParams;
pub use respond::Asker;
pub use respond::IncomingQuery;
pub use snapshot::Line;
pub use snapshot::Snapshot;
pub use snapshot::Write;

use crate::gossip::Coordinate;
use crate::gossip::Member;
use crate::gossip::MemberStatus;
use crate::gossip::Tags;
use crate::gossip::coordinate;
use crate::gossip::serf::clock::Clock;
use crate::gossip::serf::history::History;
use crate::gossip::serf::intents::Life;
use crate::gossip::serf::intents::Wait;
use crate::gossip::serf::members::Members;
use crate::gossip::serf::query::PendingQueries;
use crate::gossip::serf::snapshot::Recorder;
use crate::gossip::swim;
use crate::gossip::swim::Swim;
use crate::gossip::swim::Token;
use crate::gossip::swim::UserQueue;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::Message;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::Ping;
use crate::gossip::wire::serf::PastEvent;
use crate::model::NodeName;

/// Broadcasts of a kind that may wait, or twice as many as there are members: Consul's `MinQueueDepth`.
const MIN_QUEUE: usize = 4096;

/// One member of one pool.
#[derive(Debug)]
pub struct Serf {
    config: Config,
    swim: Swim,
    life: Life,
    clock: Clock,
    event_clock: Clock,
    query_clock: Clock,
    members: Members,
    events: History<PastEvent>,
    queries: History<u32>,
    pending: PendingQueries,
    /// Whom to tell that changed keys were saved.
    unsaved: BTreeMap<Token, Asker>,
    /// Broadcasts whose end somebody waits for, and until when.
    waits: BTreeMap<Token, (Instant, Wait)>,
    last_token: u64,
    vivaldi: coordinate::Client,
    /// Where others are, as they said last.
    coordinates: BTreeMap<NodeName, Coordinate>,
    recorder: Option<Recorder>,
    recorded_clocks: [u64; 3],
    /// Whether members or intents changed since the timers were set.
    changed: bool,
    record_at: Option<Instant>,
    reap_at: Option<Instant>,
    reconnect_at: Option<Instant>,
    outputs: VecDeque<Output>,
}

impl Serf {
    /// A pool with one member: we. If the snapshot knows others, [`Output::Rejoin`] says whom to turn to.
    ///
    /// # Errors
    /// When the tags are too long.
    pub fn new(mut config: Config, now: Instant, rng: &mut dyn RngCore) -> Result<Self, Error> {
        config.swim.meta = config.tags.to_meta()?.into();
        let previous = config.snapshot.take();
        let recorded = previous.clone().unwrap_or_default();
        let recorder = previous.map(|past| Recorder::new(past, config.rejoin_after_leave));
        let after = |past: u64| if past == 0 { 0 } else { past + 1 };
        let mut serf = Self {
            swim: Swim::new(config.swim.clone(), now, rng),
            life: Life::Alive,
            clock: Clock::after(recorded.clock),
            event_clock: Clock::after(recorded.event_clock),
            query_clock: Clock::after(recorded.query_clock),
            members: Members::default(),
            // What happened before the restart was heard before the restart.
            events: History::new(after(recorded.event_clock)),
            queries: History::new(after(recorded.query_clock)),
            pending: BTreeMap::new(),
            unsaved: BTreeMap::new(),
            waits: BTreeMap::new(),
            last_token: 0,
            vivaldi: coordinate::Client::default(),
            coordinates: BTreeMap::new(),
            recorder,
            recorded_clocks: [0; 3],
            changed: false,
            record_at: None,
            reap_at: None,
            reconnect_at: None,
            outputs: VecDeque::new(),
            config,
        };
        serf.publish_coordinate();
        serf.settle(now, rng);
        let to = recorded.rejoin(serf.name(), rng);
        if !to.is_empty() {
            serf.outputs.push_back(Output::Rejoin { to });
        }
        Ok(serf)
    }

    /// Our name.
    pub fn name(&self) -> &NodeName {
        &self.swim.config().name
    }

    /// The layer below.
    pub fn swim(&self) -> &Swim {
        &self.swim
    }

    /// All members, sorted by name: we too, and those that failed or left and are not forgotten.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// The member of this name.
    pub fn member(&self, name: &NodeName) -> Option<&Member> {
        self.members.get(name)
    }

    /// The keys that seal what is sent and open what comes, if the pool encrypts.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.config.keyring.as_ref()
    }

    /// What we say about ourselves.
    pub fn tags(&self) -> &Tags {
        &self.config.tags
    }

    /// Whether [`leave`](Self::leave) was called.
    pub fn is_leaving(&self) -> bool {
        self.life != Life::Alive
    }

    /// serf's figures, as `info` shows them.
    pub fn stats(&self) -> BTreeMap<String, String> {
        let with = |status| self.members.with(status).count().to_string();
        let queue = |queue| self.swim.user_queue_len(queue).to_string();
        let mut stats = BTreeMap::from([
            ("members", self.members.len().to_string()),
            ("failed", with(MemberStatus::Failed)),
            ("left", with(MemberStatus::Left)),
            ("health_score", self.swim.health_score().to_string()),
            ("member_time", self.clock.time().to_string()),
            ("event_time", self.event_clock.time().to_string()),
            ("query_time", self.query_clock.time().to_string()),
            ("intent_queue", queue(UserQueue::Intents)),
            ("event_queue", queue(UserQueue::Events)),
            ("query_queue", queue(UserQueue::Queries)),
            ("encrypted", self.config.keyring.is_some().to_string()),
        ]);
        if self.config.coordinates {
            stats.insert("coordinate_resets", self.vivaldi.resets().to_string());
        }
        let owned = stats
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value));
        owned.collect()
    }

    /// Changes what we say about ourselves. [`Output::Done`] comes when it was told often enough, after 5 s at most.
    ///
    /// # Errors
    /// When the tags are too long, or we leave; nothing has changed then.
    pub fn set_tags(
        &mut self,
        now: Instant,
        tags: Tags,
        done: Token,
        rng: &mut dyn RngCore,
    ) -> Result<(), Error> {
        if self.is_leaving() {
            return Err(Error::Leaving);
        }
        let meta = tags.to_meta()?.into();
        self.config.tags = tags;
        let done = self.wait(now, Wait::Caller(done));
        self.swim.update_meta(now, meta, Some(done), rng);
        self.settle(now, rng);
        Ok(())
    }

    /// Takes a message out of a packet that came from `from`.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: Message,
        rng: &mut dyn RngCore,
    ) {
        self.swim.handle_message(now, from, message, rng);
        self.settle(now, rng);
    }

    /// Takes a message of serf that came over a stream.
    pub fn handle_stream_user(&mut self, now: Instant, message: &Bytes, rng: &mut dyn RngCore) {
        self.take_user(now, message, rng);
        self.settle(now, rng);
    }

    /// The answer to a probe that came over a stream; `None` when somebody else is meant.
    pub fn answer_stream_ping(&self, ping: &Ping) -> Option<Ack> {
        self.swim.answer_stream_ping(ping)
    }

    /// Says whether the node of [`Output::StreamPing`] answered.
    pub fn stream_ping_done(&mut self, seq_no: u32, answered: bool) {
        self.swim.stream_ping_done(seq_no, answered);
    }

    /// Says that a packet with this probe could not be sent because of the remote end.
    pub fn probe_not_sent(&mut self, now: Instant, seq_no: u32, rng: &mut dyn RngCore) {
        self.swim.probe_not_sent(seq_no, rng);
        self.settle(now, rng);
    }

    /// Does what is due. To be called when [`next_deadline`](Self::next_deadline) has come; at other times it does no
    /// harm.
    pub fn tick(&mut self, now: Instant, rng: &mut dyn RngCore) {
        self.swim.tick(now, rng);
        self.settle(now, rng);
        let over = self.waits.iter().filter(|(_, (until, _))| now >= *until);
        let over: Vec<Token> = over.map(|(token, _)| *token).collect();
        for token in over {
            self.finish_wait(now, token, false);
        }
        if let Life::Leaving(Some(until)) = self.life
            && now >= until
        {
            self.finish_leave();
        }
        self.expire_queries(now);
        self.upkeep(now, rng);
        self.settle(now, rng);
    }

    /// When [`tick`](Self::tick) has to be called next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let leave = match self.life {
            Life::Leaving(until) => until,
            Life::Alive | Life::Left => None,
        };
        let waits = self.waits.values().map(|(until, _)| *until).min();
        [
            self.swim.next_deadline(),
            self.query_deadline(),
            self.record_at,
            self.reap_at,
            self.reconnect_at,
            leave,
            waits,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// What shall be done next. To be asked after each call, until there is nothing.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// How many members live, as far as the layer below knows.
    fn living(&self) -> usize {
        self.swim.nodes().filter(|node| !node.is_gone()).count()
    }

    /// Queues a message for everybody; the queue stays within its bounds.
    fn broadcast(&mut self, queue: UserQueue, message: &[u8], done: Option<Token>) {
        self.swim.queue_user(queue, message, done);
        let most = MIN_QUEUE.max(2 * self.members.len());
        self.swim.prune_user_queue(queue, most);
    }

    /// Takes what the layer below tells, until it has nothing more to tell; then sets the timers.
    fn settle(&mut self, now: Instant, rng: &mut dyn RngCore) {
        while let Some(output) = self.swim.poll_output() {
            match output {
                swim::Output::Packet(packet) => self.outputs.push_back(Output::Packet(packet)),
                swim::Output::StreamPing { to, ping, deadline } => {
                    self.outputs
                        .push_back(Output::StreamPing { to, ping, deadline });
                }
                swim::Output::PushPull { to } => self.outputs.push_back(Output::PushPull { to }),
                swim::Output::Event(event) => self.take_event(now, event, rng),
            }
        }
        self.arm(now);
    }

    fn take_event(&mut self, now: Instant, event: swim::Event, rng: &mut dyn RngCore) {
        match event {
            swim::Event::Join(node) => {
                let event = self.members.joined(&node);
                self.tell_members([event]);
            }
            swim::Event::Leave(node) => {
                let events = self.members.gone(now, &node.name);
                self.tell_members(events);
            }
            swim::Event::Update(node) => {
                let event = self.members.updated(&node);
                self.tell_members(event);
            }
            swim::Event::Conflict { existing, .. } => self.meet_conflict(now, &existing, rng),
            swim::Event::User { message, .. } => self.take_user(now, &message, rng),
            swim::Event::Pong { node, rtt, payload } => self.learn(&node, rtt, &payload, rng),
            swim::Event::Broadcast(token) => self.finish_wait(now, token, true),
        }
    }

    /// Takes a message of serf, and passes it on if it is news for all.
    fn take_user(&mut self, now: Instant, bytes: &Bytes, rng: &mut dyn RngCore) {
        let message = match SerfMessage::decode(bytes) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!("gossip: a message of serf is ignored: {error}");
                return;
            }
        };
        let (queue, news) = match message {
            SerfMessage::Leave(leave) => (UserQueue::Intents, self.hear_leave(now, &leave)),
            SerfMessage::Join(join) => (UserQueue::Intents, self.hear_join(now, &join)),
            SerfMessage::UserEvent(event) => (UserQueue::Events, self.hear_event(event)),
            SerfMessage::Query(query) => (UserQueue::Queries, self.hear_query(now, &query, rng)),
            SerfMessage::QueryResponse(answer) => return self.take_answer(now, answer),
            SerfMessage::Relay(header, message) => return self.pass_on(&header, &message),
            SerfMessage::PushPull(_)
            | SerfMessage::ConflictResponse(_)
            | SerfMessage::KeyRequest(_)
            | SerfMessage::KeyResponse(_) => {
                tracing::debug!("gossip: a message of serf is not expected here");
                return;
            }
        };
        if news {
            self.broadcast(queue, bytes, None);
        }
    }
}

#[cfg(test)]
mod tests;
