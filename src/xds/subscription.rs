//! One client and one type: what it asked for, what is under way, and what is due. The same for both protocols.

use std::sync::Arc;
use std::time::Instant;

use crate::xds::ledger::{Entry, Held, Ledger};
use crate::xds::order::Stage;
use crate::xds::quarantine::Quarantine;
use crate::xds::resources::{Resource, ResourceSet, ResourceType};

/// One thing that a response says.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Here is this resource.
    Put(Arc<Resource>),
    /// There is no resource with this name (any more).
    Gone(Arc<str>),
}

impl Item {
    /// The name that the item is about.
    pub fn name(&self) -> &Arc<str> {
        match self {
            Self::Put(resource) => resource.name(),
            Self::Gone(name) => name,
        }
    }
}

/// A response that is not answered yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The number by which the answer will name it.
    pub nonce: u32,
    /// Whether it was one group of the search for a culprit.
    search: bool,
    /// What it said, and whether an ACK counts: not if the item was overtaken by something since.
    items: Vec<(Item, bool)>,
}

impl Pending {
    /// Whether the response said something about `name`.
    pub fn mentions(&self, name: &str) -> bool {
        self.items.iter().any(|(item, _)| **item.name() == *name)
    }
}

/// State of one type on one stream.
#[derive(Clone, Debug)]
pub struct Subscription {
    kind: ResourceType,
    /// Whether the client asked for this type at all.
    pub open: bool,
    /// Whether it asked for everything.
    pub wildcard: bool,
    /// Names asked for and resources held.
    pub ledger: Ledger,
    /// What the client refused.
    pub quarantine: Quarantine,
    /// The response under way: at most one.
    pub pending: Option<Pending>,
    /// A response is owed even if there is nothing to say.
    pub owed: bool,
    /// The number of the last response, 0 before the first.
    pub last_nonce: u32,
    /// When the client last accepted something.
    pub accepted_at: Option<Instant>,
}

impl Subscription {
    /// Nothing asked for.
    pub fn new(kind: ResourceType) -> Self {
        Self {
            kind,
            open: false,
            wildcard: false,
            ledger: Ledger::default(),
            quarantine: Quarantine::default(),
            pending: None,
            owed: false,
            last_nonce: 0,
            accepted_at: None,
        }
    }

    /// The type.
    pub const fn kind(&self) -> ResourceType {
        self.kind
    }

    /// Everything that a response could say now, in the order of names.
    pub fn due(&self, wanted: &ResourceSet, stages: &[Stage]) -> Vec<Item> {
        let names = self.ledger.candidates(wanted, self.wildcard);
        let items = names.into_iter().filter_map(|name| {
            let entry = self.ledger.entry(&name);
            let (stage, item) = self.due_for(&entry, name, wanted)?;
            stages.contains(&stage).then_some(item)
        });
        items.collect()
    }

    fn due_for(
        &self,
        entry: &Entry,
        name: Arc<str>,
        wanted: &ResourceSet,
    ) -> Option<(Stage, Item)> {
        if !self.wildcard && !entry.named {
            return None;
        }
        if let Some(resource) = wanted.get(&name) {
            let due = !entry.held.is(resource) && self.quarantine.allows(resource);
            return due.then(|| (Stage::Put, Item::Put(Arc::clone(resource))));
        }
        let stage = match entry.held {
            Held::Absent => return None,
            Held::Nothing if !entry.named => return None,
            Held::Nothing => Stage::Put,
            // A cluster may be waiting for this answer; what Envoy always holds in full can wait for its users to go.
            Held::Unsure(_) if !self.kind.is_full_set() => Stage::Put,
            Held::Unsure(_) | Held::Claimed(_) | Held::Has(_) => Stage::Remove,
        };
        Some((stage, Item::Gone(name)))
    }

    /// Like [`Self::due`], going on with the search for a culprit until there is something to send.
    pub fn due_next(&mut self, wanted: &ResourceSet, stages: &[Stage]) -> Vec<Item> {
        self.quarantine.prune(wanted);
        loop {
            let items = self.due(wanted, stages);
            let puts = items.iter().any(|item| matches!(item, Item::Put(_)));
            if puts || !self.quarantine.is_searching() || !stages.contains(&Stage::Put) {
                return items;
            }
            self.quarantine.next_group();
        }
    }

    /// A response with these items is under way.
    pub fn sent(&mut self, nonce: u32, items: Vec<Item>) {
        self.owed = false;
        self.last_nonce = nonce;
        let items = items.into_iter().map(|item| (item, true)).collect();
        let search = self.quarantine.is_searching();
        self.pending = Some(Pending {
            nonce,
            search,
            items,
        });
    }

    /// The client accepted the response under way.
    pub fn ack(&mut self, now: Instant) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.accepted_at = Some(now);
        if pending.search {
            self.quarantine.next_group();
        }
        for (item, counts) in pending.items {
            if let Item::Put(resource) = &item
                && !self.quarantine.is_empty()
            {
                self.quarantine.release(resource.name());
            }
            if counts {
                self.holds(item);
            }
        }
    }

    fn holds(&mut self, item: Item) {
        let name = Arc::clone(item.name());
        self.ledger.update(&name, |entry| {
            entry.held = match item {
                Item::Put(resource) => Held::Has(resource),
                Item::Gone(_) if entry.named => Held::Absent,
                Item::Gone(_) => Held::Nothing,
            };
        });
    }

    /// The client refused the response under way. Gives the resources that are now known to be the reason.
    pub fn nack(&mut self, now: Instant, detail: &Arc<str>) -> Vec<Arc<Resource>> {
        let Some(pending) = self.pending.take() else {
            return Vec::new();
        };
        if pending.search {
            self.quarantine.next_group();
        }
        let puts = pending.items.iter().filter_map(|(item, _)| match item {
            Item::Put(resource) => Some(Arc::clone(resource)),
            Item::Gone(_) => None,
        });
        let puts: Vec<_> = puts.collect();
        for (item, counts) in pending.items {
            // Applied or not: Envoy refuses a response as a whole, but may have applied parts of it. Only a response
            // of nothing but removals is not repeated: that could be refused for ever.
            if !puts.is_empty() {
                self.doubt(item.name());
            } else if counts {
                self.holds(item);
            }
        }
        self.quarantine.nack(now, &puts, detail)
    }

    /// Whatever the client holds under `name`, it must be told again; an answer under way does not count.
    pub fn doubt(&mut self, name: &Arc<str>) {
        let entry = self.ledger.entry(name);
        if self.wildcard || entry.named {
            self.overtake(name);
            self.ledger.update(name, |entry| {
                entry.held = std::mem::take(&mut entry.held).unsure();
            });
        }
    }

    fn overtake(&mut self, name: &str) {
        if let Some(pending) = &mut self.pending {
            let about = |(item, _): &&mut (Item, bool)| **item.name() == *name;
            if let Some((_, counts)) = pending.items.iter_mut().find(about) {
                *counts = false;
            }
        }
    }

    /// The client subscribes to `name`: it must get an answer, whatever it was told before.
    pub fn subscribe(&mut self, name: &Arc<str>) {
        self.ledger.update(name, |entry| entry.named = true);
        self.quarantine.release(name);
        if self.ledger.entry(name).held == Held::Nothing {
            self.overtake(name);
        } else {
            self.doubt(name);
        }
    }

    /// The client gives up its subscription to `name`.
    pub fn unsubscribe(&mut self, name: &Arc<str>) {
        self.overtake(name);
        let wildcard = self.wildcard;
        self.ledger.update(name, |entry| {
            entry.named = false;
            // Who still subscribes to everything is told again what there is under the name.
            entry.held = match std::mem::take(&mut entry.held) {
                held if wildcard => held.unsure(),
                _ => Held::Nothing,
            };
        });
    }

    /// The client subscribes to everything, once more: it is told everything again.
    pub fn subscribe_again_to_all(&mut self) {
        self.wildcard = true;
        self.ledger.doubt_all();
        let pending = self.pending.iter().flat_map(|pending| &pending.items);
        let under_way: Vec<_> = pending.map(|(item, _)| Arc::clone(item.name())).collect();
        for name in under_way {
            self.doubt(&name);
        }
    }

    /// The client gives up its subscription to everything; names that it asked for stay.
    pub fn unsubscribe_from_all(&mut self) {
        if self.wildcard {
            self.wildcard = false;
            let pending = self.pending.take();
            self.ledger.keep_named();
            self.pending = pending;
            self.overtake_unnamed();
        }
    }

    fn overtake_unnamed(&mut self) {
        if let Some(pending) = &mut self.pending {
            for (item, counts) in &mut pending.items {
                *counts &= self.ledger.entry(item.name()).named;
            }
        }
    }

    /// Lets go of old generations when nothing is under way.
    pub fn settle(&mut self, wanted: &ResourceSet) {
        if self.open && self.pending.is_none() {
            self.ledger.rebase(wanted, self.wildcard);
        }
    }
}
