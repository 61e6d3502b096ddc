//! Reading requests and writing responses of the delta protocol.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::xds::frame::FrameBuilder;
use crate::xds::ledger::Held;
use crate::xds::resources::{Resource, ResourceSet, ResourceType};
use crate::xds::session::{Note, intern, nonce_number, nonce_text, on_answer};
use crate::xds::subscription::{Item, Subscription};
use crate::xds::wire::DeltaRequest;

/// A response is closed when it has grown beyond this many bytes; the rest follows after the client's answer. So a slow
/// link delivers something usable long before Envoy's fetch timeout of 15 s.
pub const RESPONSE_LIMIT: usize = 512 * 1024;

/// Field numbers of `DeltaDiscoveryResponse`.
const TYPE_URL: u8 = 4;
const NONCE: u8 = 5;
const REMOVED_RESOURCES: u8 = 6;

/// The name that stands for everything.
const EVERYTHING: &str = "*";

/// Takes in one request. `set` is what the client is to have, if that is known yet.
pub(crate) fn on_request(
    subscription: &mut Subscription,
    now: Instant,
    request: DeltaRequest,
    set: Option<&ResourceSet>,
    notes: &mut Vec<Note>,
) {
    let kind = subscription.kind();
    let first = !subscription.open;
    if first {
        open(subscription, &request, set);
    } else if !request.response_nonce.is_empty() {
        let nonce = nonce_number(&request.response_nonce);
        let pending = subscription.pending.as_ref().map(|pending| pending.nonce);
        if nonce.is_some() && nonce == pending {
            on_answer(subscription, now, kind, request.error_detail, notes);
        } else {
            notes.push(Note::Stale(kind));
        }
    }
    for name in &request.resource_names_subscribe {
        if name != EVERYTHING {
            subscription.subscribe(&intern(name, set));
        } else if !first {
            subscription.subscribe_again_to_all();
        }
    }
    for name in &request.resource_names_unsubscribe {
        if name == EVERYTHING {
            subscription.unsubscribe_from_all();
        } else {
            subscription.unsubscribe(&intern(name, set));
        }
    }
}

fn open(subscription: &mut Subscription, request: &DeltaRequest, set: Option<&ResourceSet>) {
    let names = &request.resource_names_subscribe;
    subscription.open = true;
    // An empty first list means everything, as it did before `*` existed.
    subscription.wildcard = names.is_empty() || names.iter().any(|name| name == EVERYTHING);
    // Who knows nothing yet may wait for an answer even if it is empty.
    subscription.owed = request.initial_resource_versions.is_empty();
    let wildcard = subscription.wildcard;
    for (name, version) in &request.initial_resource_versions {
        subscription.ledger.update(&intern(name, set), |entry| {
            entry.named = !wildcard;
            entry.held = match version.parse() {
                Ok(version) => Held::Claimed(version),
                Err(_) => Held::Unsure(None), // Another control plane's version, so content that we do not know.
            };
        });
    }
}

/// Writes a response with as many of `items` as fit; the others are removed from `items`.
pub(crate) fn encode(
    kind: ResourceType,
    nonce: u32,
    items: &mut Vec<Item>,
    set: &ResourceSet,
) -> Vec<Bytes> {
    let mut size = 0;
    let fitting = items.iter().take_while(|item| {
        let fits = size < RESPONSE_LIMIT;
        size += match item {
            Item::Put(resource) => resource.wire_len(),
            Item::Gone(name) => name.len(),
        };
        fits
    });
    let fitting = fitting.count();
    items.truncate(fitting);
    let mut frame = FrameBuilder::default();
    frame.text(TYPE_URL, kind.url());
    frame.text(NONCE, &nonce_text(nonce));
    for item in items.iter() {
        if let Item::Gone(name) = item {
            frame.repeated_text(REMOVED_RESOURCES, name);
        }
    }
    let puts = items.iter().filter_map(|item| match item {
        Item::Put(resource) => Some(resource),
        Item::Gone(_) => None,
    });
    if puts.clone().count() == set.len() && puts.clone().all(|put| is_member(set, put)) {
        frame.fields(set.joined_delta());
    } else {
        puts.for_each(|resource| frame.fields(resource.delta_field()));
    }
    frame.finish()
}

fn is_member(set: &ResourceSet, put: &Arc<Resource>) -> bool {
    set.get(put.name())
        .is_some_and(|member| Arc::ptr_eq(member, put))
}
