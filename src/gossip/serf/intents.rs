//! What members want: we, and others.

use std::time::Instant;

use rand::RngCore;

use crate::gossip::serf::Error;
use crate::gossip::serf::Line;
use crate::gossip::serf::Output;
use crate::gossip::serf::Serf;
use crate::gossip::serf::members::Verdict;
use crate::gossip::serf::members::Want;
use crate::gossip::swim::Token;
use crate::gossip::swim::UserQueue;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::Join;
use crate::gossip::wire::serf::LamportTime;
use crate::gossip::wire::serf::Leave;
use crate::model::NodeName;

/// Our own life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// A member like others.
    Alive,
    /// On the way out: the intent is told, then the farewell, and then it takes a while to get around. Knows when the
    /// last part ends, once it has begun.
    Leaving(Option<Instant>),
    /// Out.
    Left,
}

/// Why somebody waits for the end of a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// A caller, by its own token.
    Caller(Token),
    /// Our intent to leave goes around.
    Intent,
    /// Our farewell goes around.
    Farewell,
}

impl Serf {
    /// Tells the others that we have joined: to be said when an exchange succeeded that was meant to join.
    pub fn joined(&mut self, now: Instant, rng: &mut dyn RngCore) {
        if self.life == Life::Alive {
            self.tell_join(now);
        }
        self.settle(now, rng);
    }

    /// Leaves the pool in order. [`Output::Left`] comes when it is done, after 13 s at most.
    pub fn leave(&mut self, now: Instant, rng: &mut dyn RngCore) {
        if self.life == Life::Alive {
            self.record(Line::Leave);
            self.life = Life::Leaving(None);
            let ours = self.name().clone();
            let intent = self.tell_leave(now, &ours, false);
            match intent.filter(|_| self.swim.has_peers()) {
                Some(intent) => {
                    let done = self.wait(now, Wait::Intent);
                    self.broadcast(UserQueue::Intents, &intent, Some(done));
                }
                None => self.say_farewell(now),
            }
        }
        self.settle(now, rng);
    }

    /// Makes a member leave that does not do so itself: a failed one then counts as left, and is no longer tried; with
    /// `prune` it is forgotten. One that lives refutes. [`Output::Done`] comes when it was told often enough, after 5 s
    /// at most.
    ///
    /// # Errors
    /// When nobody has the name, or we have it.
    pub fn force_leave(
        &mut self,
        now: Instant,
        name: &NodeName,
        prune: bool,
        done: Token,
        rng: &mut dyn RngCore,
    ) -> Result<(), Error> {
        if name == self.name() {
            return Err(Error::Ourselves(name.clone()));
        }
        if self.members.get(name).is_none() {
            return Err(Error::UnknownMember(name.clone()));
        }
        let intent = self.tell_leave(now, name, prune);
        match intent.filter(|_| self.swim.has_peers()) {
            Some(intent) => {
                let done = self.wait(now, Wait::Caller(done));
                self.broadcast(UserQueue::Intents, &intent, Some(done));
            }
            None => self.outputs.push_back(Output::Done {
                token: done,
                sent: true,
            }),
        }
        self.settle(now, rng);
        Ok(())
    }

    /// Hears that somebody leaves; says whether it is news.
    pub(super) fn hear_leave(&mut self, now: Instant, leave: &Leave) -> bool {
        let want = Want::Leave { prune: leave.prune };
        self.hear_intent(now, (&leave.node, want), leave.ltime)
    }

    /// Hears that somebody joins; says whether it is news.
    pub(super) fn hear_join(&mut self, now: Instant, join: &Join) -> bool {
        self.hear_intent(now, (&join.node, Want::Join), join.ltime)
    }

    fn hear_intent(&mut self, now: Instant, intent: (&NodeName, Want), ltime: LamportTime) -> bool {
        if !self.clock.witness(ltime) {
            return false;
        }
        let ours = &self.swim.config().name;
        let refutable = (self.life == Life::Alive).then_some(ours);
        match self.members.intent(now, intent, ltime, refutable) {
            Verdict::Old => false,
            Verdict::News(events) => {
                self.tell_members(events);
                true
            }
            Verdict::Refute => {
                tracing::info!("gossip: refutes that this agent leaves");
                self.tell_join(now);
                false
            }
        }
    }

    /// Says that we are here, later than anything that was said about us.
    pub(super) fn tell_join(&mut self, now: Instant) {
        let join = Join {
            ltime: self.clock.time(),
            node: self.name().clone(),
        };
        self.hear_join(now, &join);
        self.send_all(UserQueue::Intents, &SerfMessage::Join(join));
    }

    /// Hears ourselves that somebody leaves, and gives the message for the others.
    fn tell_leave(&mut self, now: Instant, name: &NodeName, prune: bool) -> Option<Vec<u8>> {
        let leave = Leave {
            ltime: self.clock.time(),
            node: name.clone(),
            prune,
        };
        self.hear_leave(now, &leave);
        encoded(&SerfMessage::Leave(leave))
    }

    fn say_farewell(&mut self, now: Instant) {
        let done = self.wait(now, Wait::Farewell);
        self.swim.leave(now, Some(done));
    }

    /// A token for a broadcast that somebody waits for.
    pub(super) fn wait(&mut self, now: Instant, wait: Wait) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        let until = now + self.config.timing.broadcast_timeout;
        self.waits.insert(token, (until, wait));
        token
    }

    /// A broadcast was sent often enough, or took too long.
    pub(super) fn finish_wait(&mut self, now: Instant, token: Token, sent: bool) {
        let Some((_, wait)) = self.waits.remove(&token) else {
            return;
        };
        match wait {
            Wait::Caller(token) => self.outputs.push_back(Output::Done { token, sent }),
            Wait::Intent => {
                if !sent {
                    tracing::warn!("gossip: the intent to leave may not have reached everybody");
                }
                self.say_farewell(now);
            }
            Wait::Farewell => {
                let delay = self.config.timing.leave_propagate_delay;
                match self.swim.has_peers() {
                    true => self.life = Life::Leaving(Some(now + delay)),
                    false => self.finish_leave(),
                }
            }
        }
    }

    pub(super) fn finish_leave(&mut self) {
        self.life = Life::Left;
        self.outputs.push_back(Output::Left);
    }

    /// Queues a message for everybody.
    pub(super) fn send_all(&mut self, queue: UserQueue, message: &SerfMessage) {
        if let Some(message) = encoded(message) {
            self.broadcast(queue, &message, None);
        }
    }
}

pub(super) fn encoded(message: &SerfMessage) -> Option<Vec<u8>> {
    match message.encode() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            tracing::error!("gossip: a message cannot be sent: {error}");
            None
        }
    }
}
