//! Exchanges of all that is known: what packets did not tell, push/pulls do.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::MemberStatus;
use crate::gossip::serf::Serf;
use crate::gossip::serf::intents::Life;
use crate::gossip::serf::intents::encoded;
use crate::gossip::swim::MergeError;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::Join;
use crate::gossip::wire::serf::Leave;
use crate::gossip::wire::serf::PastEvents;
use crate::gossip::wire::serf::PushPull;
use crate::gossip::wire::serf::UserEvent;
use crate::gossip::wire::stream;

/// Why states are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// We join.
    Join {
        /// What happened in the pool before does not concern us. Consul always says so.
        ignore_old: bool,
    },
    /// Two pools meet without our doing: somebody joins us, or a member comes back.
    Meet,
    /// Two members compare what they know.
    Regular,
}

impl Exchange {
    /// What the message says that says it first.
    pub fn asked(remote: &stream::PushPull) -> Self {
        match remote.join {
            true => Self::Meet,
            false => Self::Regular,
        }
    }
}

impl Serf {
    /// All that we know, to send.
    pub fn local_state(&self, exchange: Exchange) -> stream::PushPull {
        // Also those who mean to leave, which serf does not say: so it gets to everybody, and to who refutes it.
        let leaving = self.members.with(MemberStatus::Leaving);
        let left = self.members.with(MemberStatus::Left).chain(leaving);
        let events = self.events.iter().map(|(ltime, events)| PastEvents {
            ltime,
            events: events.to_vec(),
        });
        let state = SerfMessage::PushPull(PushPull {
            ltime: self.clock.time(),
            status_ltimes: self
                .members
                .ltimes()
                .map(|(name, ltime)| (name.clone(), ltime))
                .collect(),
            left_members: left.map(|member| member.name.clone()).collect(),
            event_ltime: self.event_clock.time(),
            events: events.collect(),
            query_ltime: self.query_clock.time(),
        });
        stream::PushPull {
            join: exchange != Exchange::Regular,
            nodes: self.swim.local_state(),
            user_state: encoded(&state).map(Bytes::from).unwrap_or_default(),
        }
    }

    /// Takes what the other side sent.
    ///
    /// # Errors
    /// When the two may not be in one pool. Nothing has changed then.
    pub fn merge_remote_state(
        &mut self,
        now: Instant,
        exchange: Exchange,
        remote: &stream::PushPull,
        rng: &mut dyn RngCore,
    ) -> Result<(), MergeError> {
        let join = exchange != Exchange::Regular;
        self.swim
            .merge_remote_state(now, join, &remote.nodes, rng)?;
        self.settle(now, rng); // Nodes first: what is said about them needs them.
        if !remote.user_state.is_empty() {
            match SerfMessage::decode(&remote.user_state) {
                Ok(SerfMessage::PushPull(state)) => self.merge(now, exchange, state),
                Ok(_) => tracing::warn!("gossip: the state of a peer is no state of serf"),
                Err(error) => tracing::warn!("gossip: the state of a peer is ignored: {error}"),
            }
        }
        self.settle(now, rng);
        Ok(())
    }

    fn merge(&mut self, now: Instant, exchange: Exchange, state: PushPull) {
        self.clock.witness_clock(state.ltime);
        self.event_clock.witness_clock(state.event_ltime);
        self.query_clock.witness_clock(state.query_ltime);
        self.refute_older_life(now, &state);
        let left: BTreeSet<_> = state.left_members.iter().collect();
        for name in &left {
            let leave = Leave {
                ltime: state.status_ltimes.get(*name).copied().unwrap_or(0),
                node: (*name).clone(),
                prune: false,
            };
            self.hear_leave(now, &leave);
        }
        for (name, ltime) in &state.status_ltimes {
            if !left.contains(name) {
                let join = Join {
                    ltime: *ltime,
                    node: name.clone(),
                };
                self.hear_join(now, &join);
            }
        }
        if exchange == (Exchange::Join { ignore_old: true }) {
            self.events.ignore_before(state.event_ltime);
        }
        for past in state.events {
            for event in past.events {
                self.hear_event(UserEvent {
                    ltime: past.ltime,
                    name: event.name,
                    payload: event.payload,
                    coalesce: false,
                });
            }
        }
    }

    /// Somebody knows a later change of our status than we made: from before a restart, or because we were made to
    /// leave while nobody reached us. Says anew that we are here, so that whoever still believes the other thing stops.
    /// Whoever does may not come to exchange states with us for long.
    fn refute_older_life(&mut self, now: Instant, state: &PushPull) {
        let ours = self.name().clone();
        let said = state.status_ltimes.get(&ours).copied().unwrap_or(0);
        if self.life == Life::Alive && said > self.members.ltime(&ours) && self.clock.witness(said)
        {
            self.tell_join(now);
        }
    }
}
