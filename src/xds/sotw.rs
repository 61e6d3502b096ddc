//! Reading requests and writing responses of the state-of-the-world protocol.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::xds::frame::FrameBuilder;
use crate::xds::ledger::Entry;
use crate::xds::resources::{Resource, ResourceSet, ResourceType};
use crate::xds::session::{Note, intern, nonce_number, nonce_text, on_answer};
use crate::xds::subscription::{Item, Subscription};
use crate::xds::wire::SotwRequest;

/// Field numbers of `DiscoveryResponse`.
const VERSION_INFO: u8 = 1;
const TYPE_URL: u8 = 4;
const NONCE: u8 = 5;

/// The name that stands for everything.
const EVERYTHING: &str = "*";

/// Takes in one request. `set` is what the client is to have, if that is known yet.
pub(crate) fn on_request(
    subscription: &mut Subscription,
    now: Instant,
    request: SotwRequest,
    set: Option<&ResourceSet>,
    notes: &mut Vec<Note>,
) {
    let kind = subscription.kind();
    if !subscription.open {
        subscription.open = true;
        subscription.owed = true;
        take_names(subscription, &request.resource_names, set);
        return;
    }
    let nonce = match &*request.response_nonce {
        "" => Some(0),
        text => nonce_number(text),
    };
    if nonce != Some(subscription.last_nonce) {
        // Envoy will answer the newer response too, and name what it wants then.
        notes.push(Note::Stale(kind));
        return;
    }
    let answered = subscription.pending.is_some();
    if answered {
        on_answer(subscription, now, kind, request.error_detail, notes);
    }
    let changed = take_names(subscription, &request.resource_names, set);
    // The same request once more: Envoy warms clusters again and has dropped what it knew about their endpoints.
    let warming = !answered && !subscription.wildcard && subscription.last_nonce != 0;
    subscription.owed |= changed || warming;
}

/// Makes the subscription equal to the names of a request; tells whether it changed.
fn take_names(
    subscription: &mut Subscription,
    names: &[String],
    set: Option<&ResourceSet>,
) -> bool {
    let everything = names.is_empty() && subscription.kind().is_full_set();
    let wildcard = everything || names.iter().any(|name| name == EVERYTHING);
    let next: BTreeSet<&str> = if wildcard {
        BTreeSet::new()
    } else {
        names.iter().map(String::as_str).collect()
    };
    let old = subscription.ledger.named();
    let mut changed = wildcard != subscription.wildcard;
    if wildcard {
        subscription.wildcard = true;
    } else {
        subscription.unsubscribe_from_all();
    }
    for name in &old {
        if !next.contains(&**name) {
            subscription.unsubscribe(name);
            changed = true;
        }
    }
    for name in next {
        if old.binary_search_by(|known| (**known).cmp(name)).is_err() {
            subscription.subscribe(&intern(name, set));
            changed = true;
        }
    }
    changed
}

/// Writes a response with everything that the client is to have of this type at this point.
pub(crate) fn encode(
    subscription: &Subscription,
    kind: ResourceType,
    nonce: u32,
    items: &[Item],
    set: &ResourceSet,
) -> Vec<Bytes> {
    let all = if subscription.wildcard {
        everything(subscription, items, set)
    } else {
        named(subscription, kind, items, set)
    };
    // Equal content is the shared set, so that its joined bytes are made once for all streams.
    let all = if all.same(set) { set.clone() } else { all };
    let mut frame = FrameBuilder::default();
    frame.text(VERSION_INFO, &all.hash().to_string());
    frame.text(TYPE_URL, kind.url());
    frame.text(NONCE, &nonce_text(nonce));
    frame.fields(all.joined_sotw());
    frame.finish()
}

fn everything(subscription: &Subscription, items: &[Item], set: &ResourceSet) -> ResourceSet {
    let mut all = set.clone();
    for name in subscription.ledger.candidates(set, true) {
        let entry = subscription.ledger.entry(&name);
        match target(&name, &entry, items, set) {
            Some(resource) => {
                all.put(resource);
            }
            None => {
                all.remove(&name);
            }
        }
    }
    all
}

fn named(
    subscription: &Subscription,
    kind: ResourceType,
    items: &[Item],
    set: &ResourceSet,
) -> ResourceSet {
    let mut all = ResourceSet::new();
    for name in subscription.ledger.named() {
        let entry = subscription.ledger.entry(&name);
        match target(&name, &entry, items, set) {
            Some(resource) => {
                all.put(resource);
            }
            // Without an answer the cluster would wait for Envoy's fetch timeout.
            None if kind == ResourceType::Endpoint && !set.contains(&name) => {
                all.put(Resource::no_endpoints(&name));
            }
            None => {}
        }
    }
    all
}

/// What the client is to have under `name` after this response.
fn target(name: &str, entry: &Entry, items: &[Item], set: &ResourceSet) -> Option<Arc<Resource>> {
    let item = items.binary_search_by(|item| (**item.name()).cmp(name));
    match item.ok().and_then(|at| items.get(at)) {
        Some(Item::Put(resource)) => Some(Arc::clone(resource)),
        Some(Item::Gone(_)) => None,
        None => match set.get(name) {
            Some(resource) if entry.held.is(resource) => Some(Arc::clone(resource)),
            // Refused, or not its turn yet, or not to be removed yet: the last good one stays.
            _ => entry.held.good().cloned(),
        },
    }
}
