//! One host: an agent's gossip without its sockets.

use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use crossway::gossip::MemberStatus;
use crossway::gossip::Tags;
use crossway::gossip::serf;
use crossway::gossip::serf::Exchange;
use crossway::gossip::serf::MemberChange;
use crossway::gossip::serf::Output;
use crossway::gossip::serf::Serf;
use crossway::gossip::swim;
use crossway::gossip::swim::Token;
use crossway::model::NodeName;
use rand::Rng;

use crate::gossip_sim::traffic::Delivery;
use crate::gossip_sim::traffic::address;
use crate::gossip_sim::traffic::host_at;
use crate::gossip_sim::world::World;

/// How often serf tries to reach a failed member again: 30 s in Consul, less here so that histories are short.
const RECONNECT: Duration = Duration::from_secs(5);

/// After this time everybody knows of a crash.
const NOTICED: Duration = Duration::from_secs(30);

/// What one host saw happen to another one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) at: Duration,
    pub(super) observer: usize,
    pub(super) subject: usize,
    pub(super) change: MemberChange,
}

/// A user event, and who sent it.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) name: String,
    pub(super) at: Duration,
    pub(super) sender: usize,
    pub(super) life: u32,
}

#[derive(Default)]
pub(super) struct Host {
    /// `None` when it does not run.
    pub(super) serf: Option<Serf>,
    /// Counts its starts.
    pub(super) life: u32,
    /// When it was started last.
    pub(super) since: Duration,
    /// Until when it stands still; what arrives meanwhile waits.
    pub(super) paused: Option<Instant>,
    pub(super) waiting: Vec<Delivery>,
    /// How far its clock is ahead.
    pub(super) ahead: Duration,
    /// What it last saw of each member.
    sight: Vec<Option<MemberChange>>,
    /// The latest lives that it knew of.
    pub(super) lives: Vec<u32>,
    /// User events that it got in this life.
    pub(super) events: BTreeSet<String>,
    /// Commands that have not ended.
    pub(super) commands: BTreeSet<Token>,
    last_token: u64,
    /// Ever crashed, left, paused or forced to leave: may be taken for dead without being so.
    pub(super) troubled: bool,
    pub(super) leaving: bool,
    /// Has left in order, while all others that it knew lived, and has not come back since.
    pub(super) left: bool,
    pub(super) deadline: Option<Instant>,
    /// Ticks at this very moment.
    pub(super) ticks_now: u32,
}

impl Host {
    /// What the host wants to have done later is named by this.
    fn command(&mut self) -> Token {
        self.last_token += 1;
        let token = Token(self.last_token);
        self.commands.insert(token);
        token
    }
}

impl World {
    /// Starts a host, which knows nobody.
    pub(super) fn start(&mut self, index: usize) {
        let (hosts, since) = (self.hosts.len(), self.elapsed());
        let swim = swim::Config::new(self.names[index].clone(), address(index));
        let host = &mut self.hosts[index];
        let mut tags = Tags::default();
        tags.set("life", host.life.to_string());
        let mut config = serf::Config::new(swim, tags);
        config.timing.reconnect_interval = RECONNECT;
        let now = self.now + host.ahead;
        *host = Host {
            serf: Some(Serf::new(config, now, &mut self.rng).unwrap()),
            life: host.life + 1,
            since,
            ahead: host.ahead,
            sight: vec![None; hosts],
            lives: vec![0; hosts],
            troubled: host.troubled,
            ..Host::default()
        };
        self.settle(index);
    }

    pub(super) fn crash(&mut self, index: usize) {
        self.last_crash = Some(self.elapsed());
        let host = &mut self.hosts[index];
        host.serf = None;
        host.waiting.clear();
        host.paused = None;
        host.deadline = None;
        host.troubled = true;
    }

    pub(super) fn pause(&mut self, index: usize, time: Duration) {
        let host = &mut self.hosts[index];
        host.troubled = true;
        host.paused = Some(self.now + time);
        self.schedule(time, index, Delivery::Resume);
    }

    pub(super) fn resume(&mut self, index: usize) {
        let host = &mut self.hosts[index];
        if host.paused.is_none_or(|until| until > self.now) {
            return;
        }
        host.paused = None;
        let waiting = std::mem::take(&mut host.waiting);
        if self.rng.random() && self.hosts[index].serf.is_some() {
            self.tick(index);
        }
        for delivery in waiting {
            self.deliver(index, delivery);
        }
    }

    pub(super) fn leave(&mut self, index: usize) {
        self.hosts[index].troubled = true;
        self.hosts[index].leaving = true;
        self.with(index, |serf, now, rng| serf.leave(now, rng));
    }

    pub(super) fn join(&mut self, index: usize, with: usize) {
        self.exchange(index, with, Exchange::Join { ignore_old: true });
    }

    pub(super) fn set_tags(&mut self, index: usize, value: &str) {
        let done = self.hosts[index].command();
        let mut tags = Tags::default();
        tags.set("value", value);
        self.with(index, |serf, now, rng| {
            serf.set_tags(now, tags, done, rng).unwrap()
        });
    }

    pub(super) fn force_leave(&mut self, index: usize, whom: usize) {
        let name = self.names[whom].clone();
        let serf = self.hosts[index].serf.as_ref();
        if serf.is_some_and(|serf| serf.member(&name).is_some()) {
            let done = self.hosts[index].command();
            self.with(index, |serf, now, rng| {
                serf.force_leave(now, &name, false, done, rng).unwrap();
            });
        }
    }

    pub(super) fn user_event(&mut self, index: usize) {
        let event = format!("event{}", self.events.len());
        self.events.push(Sent {
            name: event.clone(),
            at: self.elapsed(),
            sender: index,
            life: self.hosts[index].life,
        });
        self.with(index, |serf, now, rng| {
            serf.user_event(now, &event, "payload".into(), false, rng)
                .unwrap();
        });
    }

    /// Who is alone joins all addresses that it knows, as `retry_join` does.
    pub(super) fn retry_join(&mut self, index: usize) {
        let host = &self.hosts[index];
        let serf = host.serf.as_ref();
        let alone = serf.is_some_and(|serf| {
            let alive = serf
                .members()
                .filter(|member| member.status == MemberStatus::Alive);
            alive.count() == 1
        });
        if alone && host.paused.is_none() && !host.leaving {
            for with in (0..self.hosts.len()).filter(|with| *with != index) {
                self.join(index, with);
            }
        }
    }

    /// Does what a host wants, and asks when it is due next.
    pub(super) fn settle(&mut self, index: usize) {
        while let Some(output) = self.hosts[index].serf.as_mut().and_then(Serf::poll_output) {
            match output {
                Output::Packet(packet) => {
                    assert!(packet.body.len() <= 1400, "{}", self.place());
                    self.send_packet(index, host_at(packet.to.address), &packet.body);
                }
                Output::StreamPing { to, ping, .. } => {
                    let (from, life) = (index, self.hosts[index].life);
                    let ping = Delivery::StreamPing { from, life, ping };
                    self.send_stream(index, host_at(to.address), ping);
                }
                Output::PushPull { to } => {
                    self.exchange(index, host_at(to.address), Exchange::Regular);
                }
                Output::Reconnect { to } => {
                    self.exchange(index, host_at(to.address), Exchange::Meet);
                }
                Output::Member(change, member) => self.note(index, &member.name, change),
                Output::UserEvent(event) => {
                    let new = self.hosts[index].events.insert(event.name.clone());
                    assert!(new, "{}: n{index} gets {} again", self.place(), event.name);
                }
                Output::Done { token, .. } => {
                    let known = self.hosts[index].commands.remove(&token);
                    assert!(known, "{}: {token:?} ends twice", self.place());
                }
                Output::Left => {
                    // The intent may have gone to a dead host alone, which nobody had noticed yet: as in serf, the
                    // others then take it for a failure.
                    let crash = self.last_crash;
                    let unnoticed = crash.is_some_and(|at| self.elapsed() < at + NOTICED);
                    self.crash(index);
                    self.hosts[index].left = !unnoticed;
                }
                other => panic!("{}: {other:?}", self.place()),
            }
        }
        let host = &mut self.hosts[index];
        host.deadline = host.serf.as_ref().and_then(Serf::next_deadline);
    }

    /// What happens to a member makes sense after what happened to it before.
    fn note(&mut self, observer: usize, name: &NodeName, change: MemberChange) {
        let subject: usize = name.as_str().trim_start_matches('n').parse().unwrap();
        let place = self.place();
        let host = &mut self.hosts[observer];
        let before = host.sight[subject].filter(|before| *before != MemberChange::Reap);
        let lives = matches!(before, Some(MemberChange::Join));
        let fits = match change {
            MemberChange::Join => !lives,
            MemberChange::Update => lives,
            // Whose intent to leave is out of date has failed.
            MemberChange::Failed => lives || before == Some(MemberChange::Leave),
            MemberChange::Leave => lives || before == Some(MemberChange::Failed),
            MemberChange::Reap => before.is_some(),
        };
        assert!(
            fits,
            "{place}: n{observer} sees {change:?} of n{subject} after {before:?}"
        );
        let buried =
            observer == subject && matches!(change, MemberChange::Failed | MemberChange::Leave);
        assert!(
            !buried || host.leaving,
            "{place}: n{observer} buries itself"
        );
        if change != MemberChange::Update {
            host.sight[subject] = Some(change);
        }
        let at = self.elapsed();
        self.seen.push(Seen {
            at,
            observer,
            subject,
            change,
        });
    }
}
