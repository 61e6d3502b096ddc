//! Who is a member, and what became of it.
//!
//! ```text
//!             swim: join                  intent to leave
//!   (unknown) ----------> alive ------------------------------> leaving
//!                         ^ |  ^---- a later intent to join ----' |
//!              swim: join | | swim: dead                          | swim: dead, left
//!                         | v                                     v
//!                         failed ----- intent to leave ---------> left      then, some day: reaped
//!                              ^------ a later intent to join ------'
//! ```
//!
//! swim says who lives. Intents say what was meant by it: they carry a time of the members' clock, and of two intents
//! about one member the later one counts, in whichever order they arrive. Of two at one time, the one to leave counts
//! once the member is gone. (serf lets neither count then, nor a join of who left: parts of a pool that was cut in two
//! may disagree for ever on whether a member failed or left.)

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use crate::gossip::Member;
use crate::gossip::MemberStatus;
use crate::gossip::Tags;
use crate::gossip::swim::Node;
use crate::gossip::wire::serf::LamportTime;
use crate::model::NodeName;

/// Most intents that are kept about nodes that are not known yet.
const MAX_INTENTS: usize = 8192;

/// What happened to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberChange {
    /// It lives: it is new, or came back.
    Join,
    /// It left in order, or somebody forced it to leave.
    Leave,
    /// It does not answer.
    Failed,
    /// It changed its tags.
    Update,
    /// It was forgotten, some time after it had failed or left, or because somebody had it pruned.
    Reap,
}

/// What happened to whom; the member is shown as it is afterwards.
pub(super) type Event = (MemberChange, Member);

/// What a member wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    Join,
    /// Maybe so that it is forgotten at once.
    Leave {
        prune: bool,
    },
}

/// What an intent means.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Something at least as new is known.
    Old,
    /// It is news, to be passed on.
    News(Vec<Event>),
    /// It says that we leave, but we do not.
    Refute,
}

#[derive(Debug)]
struct Record {
    member: Member,
    /// When its status was last meant to change, by the clock of members.
    ltime: LamportTime,
    /// Since when it has been gone, while it is.
    gone_since: Option<Instant>,
    /// Whether it is forgotten as soon as it has left.
    prune: bool,
}

impl Record {
    /// What it said about leaving is out of date. If it is gone, then not on purpose.
    fn stays(&mut self) -> Option<Event> {
        self.prune = false;
        match self.member.status {
            MemberStatus::Leaving => self.member.status = MemberStatus::Alive,
            MemberStatus::Left => {
                self.member.status = MemberStatus::Failed;
                return Some((MemberChange::Failed, self.member.clone()));
            }
            MemberStatus::None | MemberStatus::Alive | MemberStatus::Failed => {}
        }
        None
    }
}

/// An intent about a node that is not known yet.
#[derive(Debug)]
struct Intent {
    want: Want,
    ltime: LamportTime,
    heard: Instant,
}

/// All members.
#[derive(Debug, Default)]
pub(super) struct Members {
    records: BTreeMap<NodeName, Record>,
    intents: BTreeMap<NodeName, Intent>,
}

/// How long those who are gone are remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) failed: Duration,
    pub(super) left: Duration,
    pub(super) intents: Duration,
}

impl Members {
    pub(super) fn get(&self, name: &NodeName) -> Option<&Member> {
        self.records.get(name).map(|record| &record.member)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.records.values().map(|record| &record.member)
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Names and times of all statuses.
    pub(super) fn ltimes(&self) -> impl Iterator<Item = (&NodeName, LamportTime)> {
        self.records.iter().map(|(name, r)| (name, r.ltime))
    }

    pub(super) fn ltime(&self, name: &NodeName) -> LamportTime {
        self.records.get(name).map_or(0, |record| record.ltime)
    }

    pub(super) fn with(&self, status: MemberStatus) -> impl Iterator<Item = &Member> {
        self.iter().filter(move |member| member.status == status)
    }

    /// Whether something waits to be forgotten.
    pub(super) fn has_past(&self) -> bool {
        let gone = |record: &Record| record.gone_since.is_some();
        !self.intents.is_empty() || self.records.values().any(gone)
    }

    /// swim says that a node lives.
    pub(super) fn joined(&mut self, node: &Node) -> Event {
        if let Some(record) = self.records.get_mut(&node.name) {
            describe(&mut record.member, node);
            record.member.status = MemberStatus::Alive;
            record.gone_since = None;
            record.prune = false;
            return (MemberChange::Join, record.member.clone());
        }
        let mut member = Member::default();
        describe(&mut member, node);
        member.status = MemberStatus::Alive;
        let mut record = Record {
            member,
            ltime: 0,
            gone_since: None,
            prune: false,
        };
        if let Some(intent) = self.intents.remove(&node.name) {
            record.ltime = intent.ltime;
            if let Want::Leave { prune } = intent.want {
                record.member.status = MemberStatus::Leaving;
                record.prune = prune;
            }
        }
        let member = record.member.clone();
        self.records.insert(node.name.clone(), record);
        (MemberChange::Join, member)
    }

    /// swim says that a node is dead, or has left.
    pub(super) fn gone(&mut self, now: Instant, name: &NodeName) -> Vec<Event> {
        let Some(record) = self.records.get_mut(name) else {
            return Vec::new();
        };
        let (status, change) = match record.member.status {
            MemberStatus::Leaving => (MemberStatus::Left, MemberChange::Leave),
            MemberStatus::Alive => (MemberStatus::Failed, MemberChange::Failed),
            MemberStatus::None | MemberStatus::Left | MemberStatus::Failed => return Vec::new(),
        };
        record.member.status = status;
        record.gone_since = Some(now);
        let mut events = vec![(change, record.member.clone())];
        if record.prune {
            events.extend(self.forget(name));
        }
        events
    }

    /// swim says that a node changed what it says about itself.
    pub(super) fn updated(&mut self, node: &Node) -> Option<Event> {
        let record = self.records.get_mut(&node.name)?;
        describe(&mut record.member, node);
        Some((MemberChange::Update, record.member.clone()))
    }

    /// Somebody says what a member wants. `refutable` is the member that knows better: we, while we do not leave.
    pub(super) fn intent(
        &mut self,
        now: Instant,
        (name, want): (&NodeName, Want),
        ltime: LamportTime,
        refutable: Option<&NodeName>,
    ) -> Verdict {
        let Some(record) = self.records.get_mut(name) else {
            return self.remember(now, name, want, ltime);
        };
        let refutes = refutable == Some(name);
        let wins_tie = matches!(want, Want::Leave { .. })
            && (refutes || record.member.status == MemberStatus::Failed);
        if ltime < record.ltime || (ltime == record.ltime && !wins_tie) {
            return Verdict::Old;
        }
        let Want::Leave { prune } = want else {
            record.ltime = ltime;
            return Verdict::News(record.stays().into_iter().collect());
        };
        if refutes {
            return Verdict::Refute;
        }
        record.ltime = ltime;
        record.prune |= prune;
        let mut events = Vec::new();
        match record.member.status {
            MemberStatus::Alive => record.member.status = MemberStatus::Leaving,
            MemberStatus::Failed => {
                record.member.status = MemberStatus::Left;
                events.push((MemberChange::Leave, record.member.clone()));
            }
            MemberStatus::None | MemberStatus::Leaving | MemberStatus::Left => {}
        }
        if record.prune && record.member.status == MemberStatus::Left {
            events.extend(self.forget(name));
        }
        Verdict::News(events)
    }

    /// Keeps what an unknown node wants, until it is known.
    fn remember(
        &mut self,
        now: Instant,
        name: &NodeName,
        want: Want,
        ltime: LamportTime,
    ) -> Verdict {
        let known = self.intents.get(name);
        if known.is_some_and(|known| ltime <= known.ltime)
            || (known.is_none() && self.intents.len() >= MAX_INTENTS)
        {
            return Verdict::Old;
        }
        let intent = Intent {
            want,
            ltime,
            heard: now,
        };
        self.intents.insert(name.clone(), intent);
        Verdict::News(Vec::new())
    }

    /// Forgets those who have been gone for long enough.
    pub(super) fn reap(&mut self, now: Instant, limits: Limits) -> Vec<Event> {
        let over = |since: Instant, limit| now.saturating_duration_since(since) > limit;
        self.intents
            .retain(|_, intent| !over(intent.heard, limits.intents));
        let reaped = self.records.values().filter(|record| {
            let limit = match record.member.status {
                MemberStatus::Left => limits.left,
                _ => limits.failed,
            };
            record.gone_since.is_some_and(|since| over(since, limit))
        });
        let reaped: Vec<_> = reaped.map(|record| record.member.name.clone()).collect();
        reaped.iter().filter_map(|name| self.forget(name)).collect()
    }

    fn forget(&mut self, name: &NodeName) -> Option<Event> {
        let record = self.records.remove(name)?;
        Some((MemberChange::Reap, record.member))
    }
}

impl From<&Node> for Member {
    /// The member that a node would be, of no status.
    fn from(node: &Node) -> Self {
        let mut member = Self::default();
        describe(&mut member, node);
        member
    }
}

/// Takes over what a node says about itself.
fn describe(member: &mut Member, node: &Node) {
    let versions = node.versions;
    *member = Member {
        name: node.name.clone(),
        addr: node.addr,
        port: node.port,
        tags: Tags::from_meta(&node.meta).unwrap_or_else(|error| {
            tracing::warn!("gossip: the tags of {} are ignored: {error}", node.name);
            Tags::default()
        }),
        status: member.status,
        protocol_min: versions.protocol_min,
        protocol_max: versions.protocol_max,
        protocol_cur: versions.protocol,
        delegate_min: versions.delegate_min,
        delegate_max: versions.delegate_max,
        delegate_cur: versions.delegate,
    };
}

#[cfg(test)]
mod tests;
