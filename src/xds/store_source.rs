//! The [`Source`] of real streams: resources made from the replicated state.
//!
//! ```text
//!   Store --wakes--> streams --ask--> Shared --at most once per change--> Generation { View, SharedSets by options }
//!                                       |                                        |
//!                                       +--> Slot of a gateway: facts, listeners +--> Arc<ProxyResources>
//! ```
//!
//! There is no task and no timer. A change wakes the streams that it may concern; the first to ask makes the new
//! `Generation` from the one before, the others find it made. What a stream then pays is a look at its gateway's
//! `Slot`. A stream is told of a change only if its answer is another one: a check that only words its result anew wakes
//! nobody.
//!
//! Absent on purpose: access rules, protocol, delays between pushes.

use crate::model::catalog::CONSUL_SERVICE;
use crate::model::{ConfigKind, NodeName, ServiceKind};
use crate::proxycfg::identify::identify;
use crate::proxycfg::{Identity, Place};
use crate::store::{Key, Store, Topic, Watch as StoreChange};
use crate::xds::resources::ProxyResources;
use crate::xds::source::{Current, EnvoyNode, ProxyKey, Source, Watch};
use std::sync::Arc;

mod generation;
mod slot;

pub use generation::Figures;
use generation::{Generation, Shared};
use slot::{Slot, Slots};

/// Resources made from a [`Store`]. Cloning it shares everything.
#[derive(Clone)]
pub struct StoreSource {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    shared: Shared,
    slots: Arc<Slots>,
}

impl StoreSource {
    /// A source for the gateways of `place`.
    pub fn new(store: Store, place: Place) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared: Shared::new(place),
                slots: Arc::default(),
                store,
            }),
        }
    }

    /// What was made so far, for metrics and tests.
    pub fn figures(&self) -> Figures {
        self.inner.shared.figures()
    }

    /// What is left out of the resources of all gateways and why, each in one line; empty when all is well.
    pub fn problems(&self) -> Vec<String> {
        let generation = self.generation();
        generation.view.warnings().cloned().collect()
    }

    /// How many gateways have a stream here.
    pub fn gateways(&self) -> usize {
        self.inner.slots.len()
    }

    fn generation(&self) -> Arc<Generation> {
        self.inner.shared.current(&self.inner.store)
    }
}

impl Source for StoreSource {
    type Watch = StoreWatch;

    fn watch(&self, node: &EnvoyNode) -> StoreWatch {
        let at = node.node_name.as_deref().map(NodeName::from);
        StoreWatch {
            change: self.inner.store.watch(topics(at.as_ref())),
            source: self.clone(),
            id: node.id.as_str().into(),
            node: node.node_name.as_deref().map(Into::into),
            slot: None,
            seen: None,
        }
    }
}

/// What the answer for a gateway on this node depends on; without a node, that of an Envoy that is not identified yet.
fn topics(node: Option<&NodeName>) -> Vec<Topic> {
    let own = match node {
        Some(node) => Topic::Node(Key::of(node.shared())),
        None => Topic::ServiceKind(ServiceKind::MeshGateway),
    };
    vec![
        own,
        Topic::AnyConnect,
        Topic::Service(Key::from(CONSUL_SERVICE)),
        Topic::ConfigKind(ConfigKind::ServiceResolver),
        Topic::ConfigKind(ConfigKind::ProxyDefaults),
        Topic::FederationStates,
        Topic::CaRoots,
        Topic::CaConfig,
    ]
}

/// One stream's view of the state.
pub struct StoreWatch {
    source: StoreSource,
    change: StoreChange,
    id: Box<str>,
    node: Option<Box<str>>,
    /// The gateway that the Envoy turned out to be. It stays that one for as long as it is registered.
    slot: Option<Arc<Slot>>,
    seen: Option<Current>,
}

impl StoreWatch {
    /// Waits for what concerns a gateway on this node, or for the gateway to appear. The caller looks again afterwards,
    /// so that nothing is missed in between. An Envoy that named its node waits for that one in any case.
    fn wait_for(&mut self, node: Option<&NodeName>) {
        if self.node.is_none() {
            self.change = self.source.inner.store.watch(topics(node));
        }
    }

    fn look(&mut self) -> Current {
        loop {
            let generation = self.source.generation();
            if let Some(slot) = &self.slot {
                if let Some(answer) = slot.answer(&generation) {
                    return current(slot.key(), answer);
                }
                self.slot = None;
                self.wait_for(None);
                continue;
            }
            let identity = identify(&generation.state, self.node.as_deref(), &self.id);
            let (node, service) = match identity {
                Identity::Unknown => return Current::Unknown,
                Identity::Ambiguous(nodes) => return Current::Ambiguous(nodes),
                Identity::NotServed(kind) => return Current::NotAProxy { kind },
                Identity::Gateway { node, service } => (node, service),
            };
            self.wait_for(Some(&node));
            self.slot = Some(self.source.inner.slots.take(ProxyKey { node, service }));
        }
    }
}

fn current(key: &ProxyKey, answer: Result<Arc<ProxyResources>, Arc<str>>) -> Current {
    match answer {
        Ok(resources) => Current::Ready(key.clone(), resources),
        Err(why) => Current::NotReady(key.clone(), why.to_string()),
    }
}

impl Watch for StoreWatch {
    fn current(&mut self) -> Current {
        let found = self.look();
        self.seen = Some(found.clone());
        found
    }

    async fn changed(&mut self) {
        while self.seen.is_some() {
            self.change.changed().await;
            let found = self.look();
            if !self.seen.as_ref().is_some_and(|seen| same(seen, &found)) {
                return;
            }
        }
    }
}

fn same(a: &Current, b: &Current) -> bool {
    match (a, b) {
        (Current::Unknown, Current::Unknown) => true,
        (Current::Ambiguous(a), Current::Ambiguous(b)) => a == b,
        (Current::NotAProxy { kind: a }, Current::NotAProxy { kind: b }) => a == b,
        (Current::NotReady(a, x), Current::NotReady(b, y)) => a == b && x == y,
        (Current::Ready(a, x), Current::Ready(b, y)) => a == b && Arc::ptr_eq(x, y),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
