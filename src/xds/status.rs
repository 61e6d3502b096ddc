//! What a session looks like from outside: for CSDS, the operator API and tests.

use std::sync::Arc;

use crate::xds::ledger::Held;
use crate::xds::quarantine::Refusal;
use crate::xds::resources::{Resource, ResourceType, Version};
use crate::xds::session::Session;
use crate::xds::subscription::Pending;

/// How far the client is with one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It acknowledged the present version.
    Acked,
    /// The present version, or an answer about the name, is under way.
    Sent,
    /// Not sent yet.
    Due,
    /// It refused the present version.
    Refused,
    /// It asked for a name that does not exist, and knows.
    Absent,
}

/// One resource that the client is to have or asked for.
#[derive(Clone, Debug)]
pub struct ResourceStatus {
    /// The type.
    pub kind: ResourceType,
    /// The name.
    pub name: Arc<str>,
    /// What the client is to have.
    pub wanted: Option<Arc<Resource>>,
    /// The version that it acknowledged last, as far as this stream knows.
    pub held: Option<Version>,
    /// How far it is.
    pub progress: Progress,
    /// Why it refused the present version.
    pub refusal: Option<Refusal>,
}

/// How far the client is with one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeStatus {
    /// How many resources it is to have.
    pub wanted: usize,
    /// How many of them it acknowledged.
    pub acked: usize,
    /// Whether a response is under way.
    pub pending: bool,
    /// What it refused.
    pub refused: Vec<(Arc<str>, Refusal)>,
}

/// Every resource of one type, in the order of names; empty for a type that the client did not ask for.
pub fn resources(session: &Session, kind: ResourceType) -> Vec<ResourceStatus> {
    let subscription = session.of(kind);
    let set = session.wanted().map(|wanted| wanted.of(kind));
    let mut names = if subscription.wildcard {
        subscription.ledger.known()
    } else {
        subscription.ledger.named()
    };
    if let Some(set) = set
        && subscription.wildcard
    {
        names.extend(set.iter().map(|resource| Arc::clone(resource.name())));
        names.sort_unstable();
        names.dedup();
    }
    let names = names.into_iter().filter(|_| subscription.open);
    names
        .map(|name| {
            let wanted = set.and_then(|set| set.get(&name)).cloned();
            status(session, kind, name, wanted)
        })
        .collect()
}

fn status(
    session: &Session,
    kind: ResourceType,
    name: Arc<str>,
    wanted: Option<Arc<Resource>>,
) -> ResourceStatus {
    let subscription = session.of(kind);
    let held = subscription.ledger.entry(&name).held;
    let refusal = subscription.quarantine.refusal(&name);
    let refusal = refusal.filter(|refusal| {
        let version = wanted.as_ref().map(|resource| resource.version());
        version == Some(refusal.version)
    });
    let sent = |pending: &Pending| pending.mentions(&name);
    let progress = if refusal.is_some() {
        Progress::Refused
    } else if subscription.pending.as_ref().is_some_and(sent) {
        Progress::Sent
    } else {
        match &wanted {
            Some(resource) if held.is(resource) => Progress::Acked,
            None if held == Held::Absent => Progress::Absent,
            Some(_) | None => Progress::Due,
        }
    };
    ResourceStatus {
        kind,
        wanted,
        held: match &held {
            Held::Claimed(version) => Some(*version),
            held => held.good().map(|good| good.version()),
        },
        progress,
        refusal: refusal.cloned(),
        name,
    }
}

/// The count of one type; `None` if the client did not ask for it.
pub fn of_type(session: &Session, kind: ResourceType) -> Option<TypeStatus> {
    let subscription = session.of(kind);
    if !subscription.open {
        return None;
    }
    let refused = subscription.quarantine.refusals();
    let refused = refused.map(|(name, refusal)| (Arc::clone(name), refusal.clone()));
    let mut status = TypeStatus {
        pending: subscription.pending.is_some(),
        refused: refused.collect(),
        ..Default::default()
    };
    if let Some(wanted) = session.wanted() {
        let set = wanted.of(kind);
        let named = subscription.ledger.named();
        status.wanted = if subscription.wildcard {
            set.len()
        } else {
            named.iter().filter(|name| set.contains(name)).count()
        };
        let candidates = subscription.ledger.candidates(set, subscription.wildcard);
        let behind = candidates.iter().filter(|name| {
            let entry = subscription.ledger.entry(name);
            let asked = subscription.wildcard || entry.named;
            let wanted = set.get(name);
            asked && wanted.is_some_and(|resource| !entry.held.is(resource))
        });
        status.acked = status.wanted.saturating_sub(behind.count());
    }
    Some(status)
}
