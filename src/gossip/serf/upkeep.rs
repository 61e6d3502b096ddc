//! What is due without anybody asking for it: the forgetting, the reconnecting, the snapshot.

use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use rand::Rng;
use rand::RngCore;
use rand::seq::IteratorRandom;

use crate::gossip::MemberStatus;
use crate::gossip::serf::Line;
use crate::gossip::serf::MemberChange;
use crate::gossip::serf::Output;
use crate::gossip::serf::Serf;
use crate::gossip::serf::intents::Life;
use crate::gossip::serf::members::Event;
use crate::gossip::serf::members::Limits;
use crate::gossip::serf::respond::target_of;

/// How long a change of the clocks may wait to be written to the snapshot.
const CLOCK_INTERVAL: Duration = Duration::from_millis(500);

impl Serf {
    /// Tells what happened to members, and notes it.
    pub(super) fn tell_members(&mut self, events: impl IntoIterator<Item = Event>) {
        self.changed = true;
        for (change, member) in events {
            let name = &member.name;
            tracing::info!("gossip: {} {name}", change.as_str());
            match change {
                MemberChange::Join => {
                    if let Some(ip) = member.addr.ip() {
                        let address = SocketAddr::new(ip, member.port);
                        self.record(Line::Alive(name.clone(), address));
                    }
                }
                MemberChange::Leave | MemberChange::Failed => {
                    self.record(Line::NotAlive(name.clone()));
                }
                MemberChange::Update => {}
                MemberChange::Reap => {
                    self.record(Line::NotAlive(name.clone()));
                    self.vivaldi.forget(name);
                    self.coordinates.remove(name);
                }
            }
            self.outputs.push_back(Output::Member(change, member));
        }
    }

    /// Notes something in the snapshot, if there is one.
    pub(super) fn record(&mut self, line: Line) {
        let write = self.recorder.as_mut().and_then(|r| r.record(line));
        self.outputs.extend(write.map(Output::Snapshot));
    }

    fn record_clocks(&mut self) {
        let last = |clock: super::clock::Clock| clock.time() - 1;
        self.record(Line::Clock(last(self.clock)));
        self.record(Line::EventClock(last(self.event_clock)));
        self.record(Line::QueryClock(last(self.query_clock)));
    }

    /// Sets the timers of what has become necessary, so that nothing wakes up for nothing.
    pub(super) fn arm(&mut self, now: Instant) {
        let timing = self.config.timing;
        let clocks = [self.clock, self.event_clock, self.query_clock].map(|clock| clock.time());
        if self.recorder.is_some() && clocks != self.recorded_clocks && self.record_at.is_none() {
            self.record_at = Some(now + CLOCK_INTERVAL);
        }
        if !std::mem::take(&mut self.changed) {
            return; // Most packets bring no news: they shall not cost a look at all members.
        }
        if self.reap_at.is_none() && self.members.has_past() {
            self.reap_at = Some(now + timing.reap_interval);
        }
        let failed = || self.members.with(MemberStatus::Failed).next().is_some();
        if self.reconnect_at.is_none() && failed() {
            self.reconnect_at = Some(now + timing.reconnect_interval);
        }
    }

    pub(super) fn upkeep(&mut self, now: Instant, rng: &mut dyn RngCore) {
        let timing = self.config.timing;
        if due(&mut self.record_at, now) {
            self.recorded_clocks =
                [self.clock, self.event_clock, self.query_clock].map(|clock| clock.time());
            self.record_clocks();
        }
        if due(&mut self.reap_at, now) {
            self.changed = true; // There may be more to forget.
            let limits = Limits {
                failed: timing.reconnect_timeout,
                left: timing.tombstone_timeout,
                intents: timing.recent_intent_timeout,
            };
            let reaped = self.members.reap(now, limits);
            self.tell_members(reaped);
        }
        if due(&mut self.reconnect_at, now) {
            self.changed = true; // There may be more to reach.
            if self.life == Life::Alive {
                self.reconnect(rng);
            }
        }
    }

    /// Tries one of the failed members: the more of them there are for each living one, the more often, so that all
    /// together try each failed member about once per interval.
    fn reconnect(&mut self, rng: &mut dyn RngCore) {
        let failed = self.members.with(MemberStatus::Failed);
        let count = self.members.with(MemberStatus::Failed).count();
        let left = self.members.with(MemberStatus::Left).count();
        let living = (self.members.len() - count - left).max(1);
        if rng.random_range(0.0..1.0) > count as f64 / living as f64 {
            return;
        }
        let target = failed.choose(rng).and_then(target_of);
        self.outputs
            .extend(target.map(|to| Output::Reconnect { to }));
    }
}

impl MemberChange {
    /// What is written to the log, and the name of the event in serf.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Join => "member-join",
            Self::Leave => "member-leave",
            Self::Failed => "member-failed",
            Self::Update => "member-update",
            Self::Reap => "member-reap",
        }
    }
}

/// Whether a timer has run out; it is off then.
fn due(timer: &mut Option<Instant>, now: Instant) -> bool {
    timer.take_if(|at| now >= *at).is_some()
}
