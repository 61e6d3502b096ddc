//! The xDS protocol of one stream, without input, output or clock.
//!
//! ```text
//!   on_request(request) --+                        +--> Response: framed bytes for the client
//!   offer(resources)   ---+--> Session --> Outbox -+
//!   tick(now)          ---+                        +--> Note: what is worth a log line or a metric
//! ```
//!
//! A session knows what the client asked for and holds ([`Subscription`], one for each type) and what it is to have. After
//! every event it walks through [`ORDER`] and sends what is due, with at most one unanswered response of each type.
//! State-of-the-world and delta differ only in how a request is read and how a response is written.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::xds::delta;
use crate::xds::order::{ORDER, Stage, Step};
use crate::xds::resources::{ProxyResources, Resource, ResourceSet, ResourceType, Version};
use crate::xds::sotw;
use crate::xds::subscription::{Item, Subscription};
use crate::xds::wire::{DeltaRequest, ErrorDetail, SotwRequest};

/// Most characters of an error text that are kept.
const DETAIL_LIMIT: usize = 4096;
/// Characters of an unknown type URL that are kept and logged.
const URL_SHOWN: usize = 200;
/// Most names on one stream that deviate from what it is to have. A client that asks for more is broken or hostile.
const NAMES_LIMIT: usize = 200_000;

/// The two forms of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// State of the world: a response carries everything that the client is to have of a type.
    Sotw,
    /// Delta (incremental): a response carries what changed.
    Delta,
}

impl Protocol {
    /// The name used in metrics and logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Sotw => "sotw",
            Self::Delta => "delta",
        }
    }
}

/// A request of either form.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// State of the world.
    Sotw(SotwRequest),
    /// Delta.
    Delta(DeltaRequest),
}

/// A response to send.
#[derive(Clone, Debug)]
pub struct Response {
    /// The type.
    pub kind: ResourceType,
    /// The number that the answer will carry.
    pub nonce: u32,
    /// How many resources it carries.
    pub resources: usize,
    /// How many removals it carries.
    pub removed: usize,
    /// The framed message in pieces.
    pub pieces: Vec<Bytes>,
}

impl Response {
    /// Length of the framed message in bytes.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Never: there is at least the frame's prefix.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// Something that happened on the stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The client accepted a response.
    Accepted(ResourceType),
    /// The client refused a response.
    Refused {
        /// The type.
        kind: ResourceType,
        /// Resources that are now known to be the reason and were not before; empty during a search.
        culprits: Vec<(Arc<str>, Version)>,
        /// The client's words, cut to a sane length.
        detail: Arc<str>,
        /// Whether this adds nothing to what was said before: a step of a search, or a retry.
        repeated: bool,
    },
    /// The client answered a response that another one has replaced.
    Stale(ResourceType),
    /// The client asked for a type that is not served; such requests get no answer.
    UnknownType(String),
}

/// What an event led to.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    /// Responses, in the order in which they must be sent.
    pub responses: Vec<Response>,
    /// What happened.
    pub notes: Vec<Note>,
}

/// The client broke the protocol; the stream must end with INVALID_ARGUMENT.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Violation {
    /// A request on an aggregated stream must name its type.
    #[error("type URL is required for ADS")]
    NoType,
    /// A stream of a single-type service carries only that type.
    #[error("type URL {got:?} on a stream that serves only {}", expected.url())]
    WrongType {
        /// The type of the service.
        expected: ResourceType,
        /// The request's type URL.
        got: String,
    },
    /// Too many names.
    #[error("more than {NAMES_LIMIT} resource names are subscribed on one stream")]
    TooManyNames,
}

/// The state of one stream.
#[derive(Debug)]
pub struct Session {
    protocol: Protocol,
    only: Option<ResourceType>,
    wanted: Option<Arc<ProxyResources>>,
    nonce: u32,
    clusters: Subscription,
    endpoints: Subscription,
    listeners: Subscription,
    routes: Subscription,
    secrets: Subscription,
}

impl Session {
    /// A new stream; with `only`, of a service for a single type.
    pub fn new(protocol: Protocol, only: Option<ResourceType>) -> Self {
        Self {
            protocol,
            only,
            wanted: None,
            nonce: 0,
            clusters: Subscription::new(ResourceType::Cluster),
            endpoints: Subscription::new(ResourceType::Endpoint),
            listeners: Subscription::new(ResourceType::Listener),
            routes: Subscription::new(ResourceType::Route),
            secrets: Subscription::new(ResourceType::Secret),
        }
    }

    /// The form of the protocol.
    pub const fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// What the client is to have; `None` until the first offer.
    pub const fn wanted(&self) -> Option<&Arc<ProxyResources>> {
        self.wanted.as_ref()
    }

    /// The state of one type.
    pub const fn of(&self, kind: ResourceType) -> &Subscription {
        match kind {
            ResourceType::Cluster => &self.clusters,
            ResourceType::Endpoint => &self.endpoints,
            ResourceType::Listener => &self.listeners,
            ResourceType::Route => &self.routes,
            ResourceType::Secret => &self.secrets,
        }
    }

    const fn of_mut(&mut self, kind: ResourceType) -> &mut Subscription {
        match kind {
            ResourceType::Cluster => &mut self.clusters,
            ResourceType::Endpoint => &mut self.endpoints,
            ResourceType::Listener => &mut self.listeners,
            ResourceType::Route => &mut self.routes,
            ResourceType::Secret => &mut self.secrets,
        }
    }

    /// The client sent a request.
    ///
    /// # Errors
    /// The request breaks the protocol.
    pub fn on_request(&mut self, now: Instant, request: Request) -> Result<Outbox, Violation> {
        let mut outbox = Outbox::default();
        let url = match &request {
            Request::Sotw(request) => &request.type_url,
            Request::Delta(request) => &request.type_url,
        };
        let Some(kind) = self.kind_of(url)? else {
            let url = url.chars().take(URL_SHOWN).collect();
            outbox.notes.push(Note::UnknownType(url));
            return Ok(outbox);
        };
        let set = self.wanted.as_ref().map(|wanted| wanted.of(kind).clone());
        let subscription = self.of_mut(kind);
        match request {
            Request::Sotw(request) => {
                sotw::on_request(subscription, now, request, set.as_ref(), &mut outbox.notes);
            }
            Request::Delta(request) => {
                delta::on_request(subscription, now, request, set.as_ref(), &mut outbox.notes);
            }
        }
        if subscription.ledger.deviations() > NAMES_LIMIT {
            return Err(Violation::TooManyNames);
        }
        self.flush(&mut outbox);
        Ok(outbox)
    }

    fn kind_of(&self, url: &str) -> Result<Option<ResourceType>, Violation> {
        let kind = ResourceType::from_url(url);
        match self.only {
            None if url.is_empty() => Err(Violation::NoType),
            None => Ok(kind),
            Some(only) if url.is_empty() || kind == Some(only) => Ok(Some(only)),
            Some(only) => Err(Violation::WrongType {
                expected: only,
                got: url.chars().take(URL_SHOWN).collect(),
            }),
        }
    }

    /// The client is to have these resources from now on.
    pub fn offer(&mut self, resources: &Arc<ProxyResources>) -> Outbox {
        self.wanted = Some(Arc::clone(resources));
        let mut outbox = Outbox::default();
        self.flush(&mut outbox);
        outbox
    }

    /// Time passed: tries refused resources again whose pause is over.
    pub fn tick(&mut self, now: Instant) -> Outbox {
        let mut outbox = Outbox::default();
        let mut any = false;
        for kind in ResourceType::ALL {
            any |= self.of_mut(kind).quarantine.tick(now);
        }
        if any {
            self.flush(&mut outbox);
        }
        outbox
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Option<Instant> {
        let retry = |kind| self.of(kind).quarantine.next_retry();
        ResourceType::ALL.into_iter().filter_map(retry).min()
    }

    /// Sends what is due, in order, as far as the client's answers allow.
    fn flush(&mut self, outbox: &mut Outbox) {
        let Some(wanted) = self.wanted.clone() else {
            return;
        };
        for step in ORDER {
            let free = match step {
                Step::Send(kind, stages) => {
                    self.send(*kind, stages, wanted.of(*kind), outbox);
                    true
                }
                Step::Acknowledged(kinds) => {
                    kinds.iter().all(|kind| self.of(*kind).pending.is_none())
                }
                Step::Accepted(kinds) => kinds
                    .iter()
                    .all(|kind| self.of(*kind).quarantine.is_empty()),
            };
            if !free {
                break;
            }
        }
        for kind in ResourceType::ALL {
            self.of_mut(kind).settle(wanted.of(kind));
        }
    }

    fn send(
        &mut self,
        kind: ResourceType,
        stages: &[Stage],
        set: &ResourceSet,
        outbox: &mut Outbox,
    ) {
        let (protocol, nonce) = (self.protocol, self.nonce.wrapping_add(1).max(1));
        let subscription = self.of_mut(kind);
        if !subscription.open || subscription.pending.is_some() {
            return;
        }
        let mut items = subscription.due_next(set, stages);
        let owed = subscription.owed && stages.contains(&Stage::Put);
        if items.is_empty() && !owed {
            return;
        }
        let pieces = match protocol {
            Protocol::Sotw => sotw::encode(subscription, kind, nonce, &items, set),
            Protocol::Delta => delta::encode(kind, nonce, &mut items, set),
        };
        let puts = items.iter().filter_map(|item| match item {
            Item::Put(resource) => Some(Arc::clone(resource)),
            Item::Gone(_) => None,
        });
        let puts: Vec<_> = puts.collect();
        outbox.responses.push(Response {
            kind,
            nonce,
            resources: puts.len(),
            removed: items.len() - puts.len(),
            pieces,
        });
        subscription.sent(nonce, items);
        self.nonce = nonce;
        self.doubt_children(kind, &puts);
    }

    /// Envoy drops what belongs to a changed parent, so children must be sent again, whatever was acknowledged.
    fn doubt_children(&mut self, kind: ResourceType, parents: &[Arc<Resource>]) {
        let Some(child) = kind.child() else {
            return;
        };
        let child = self.of_mut(child);
        if child.open {
            for name in parents.iter().flat_map(|parent| parent.children()) {
                child.doubt(name);
            }
        }
    }
}

/// Handles the client's answer to the response under way.
pub(crate) fn on_answer(
    subscription: &mut Subscription,
    now: Instant,
    kind: ResourceType,
    error: Option<ErrorDetail>,
    notes: &mut Vec<Note>,
) {
    let Some(error) = error else {
        subscription.ack(now);
        notes.push(Note::Accepted(kind));
        return;
    };
    let detail: String = error.message.chars().take(DETAIL_LIMIT).collect();
    let detail = Arc::from(detail);
    let searching = subscription.quarantine.is_searching();
    let culprits = subscription.nack(now, &detail);
    let again = |name: &str| {
        let refusal = subscription.quarantine.refusal(name);
        refusal.is_some_and(|refusal| refusal.attempts > 1)
    };
    let found = !culprits.is_empty();
    let culprits = culprits.iter().filter(|culprit| !again(culprit.name()));
    let culprits: Vec<_> = culprits
        .map(|culprit| (Arc::clone(culprit.name()), culprit.version()))
        .collect();
    notes.push(Note::Refused {
        kind,
        repeated: culprits.is_empty() && (found || searching),
        culprits,
        detail,
    });
}

/// The number of a response as text, unique on its stream.
pub(crate) fn nonce_text(nonce: u32) -> String {
    format!("{nonce:08x}")
}

/// The number in an answer; `None` if there is none or it is not ours.
pub(crate) fn nonce_number(text: &str) -> Option<u32> {
    let ours = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
    ours.then(|| u32::from_str_radix(text, 16).ok()).flatten()
}

/// The shared name if there is a resource of that name, else a new one.
pub(crate) fn intern(name: &str, set: Option<&ResourceSet>) -> Arc<str> {
    match set.and_then(|set| set.get(name)) {
        Some(resource) => Arc::clone(resource.name()),
        None => Arc::from(name),
    }
}
