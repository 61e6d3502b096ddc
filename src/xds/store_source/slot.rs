//! What one gateway gets, shared by all its streams.

use crate::model::{ConfigEntry, NodeService, ServiceKind};
use crate::proxycfg::{Gateway, Topology, check_ready};
use crate::xds::generate::{SharedSets, listeners};
use crate::xds::resources::{ProxyResources, ResourceSet};
use crate::xds::source::ProxyKey;
use crate::xds::store_source::generation::Generation;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tracing::warn;

/// What a gateway gets, or why it gets nothing yet.
pub(super) type Answer = Result<Arc<ProxyResources>, Arc<str>>;

/// The slots of the gateways that have a stream.
#[derive(Default)]
pub(super) struct Slots {
    by_key: Mutex<HashMap<ProxyKey, Weak<Slot>>>,
}

impl Slots {
    /// How many gateways have a stream.
    pub(super) fn len(&self) -> usize {
        self.by_key.lock().len()
    }

    /// The slot of a gateway; it lives for as long as somebody holds it.
    pub(super) fn take(self: &Arc<Self>, key: ProxyKey) -> Arc<Slot> {
        let mut by_key = self.by_key.lock();
        if let Some(slot) = by_key.get(&key).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(Slot {
            key: key.clone(),
            home: Arc::downgrade(self),
            made: Mutex::default(),
        });
        by_key.insert(key, Arc::downgrade(&slot));
        slot
    }
}

/// The place where one gateway's resources are put together.
pub(super) struct Slot {
    key: ProxyKey,
    home: Weak<Slots>,
    made: Mutex<Option<Made>>,
}

/// The newest answer, and what it was made of.
struct Made {
    service: Arc<NodeService>,
    defaults: Option<Arc<ConfigEntry>>,
    facts: Gateway,
    topology: Arc<Topology>,
    sets: Arc<SharedSets>,
    listeners: ResourceSet,
    answer: Answer,
}

impl Slot {
    pub(super) fn key(&self) -> &ProxyKey {
        &self.key
    }

    /// What the gateway gets in this generation; `None` if it is not registered as a mesh gateway any more.
    pub(super) fn answer(&self, generation: &Generation) -> Option<Answer> {
        let (node, id) = (self.key.node.as_str(), self.key.service.as_str());
        let service = generation.state.service(node, id)?;
        if service.kind != ServiceKind::MeshGateway {
            return None;
        }
        let mut made = self.made.lock();
        let next = self.make(made.take(), generation, service);
        let answer = next.answer.clone();
        *made = Some(next);
        Some(answer)
    }

    fn make(
        &self,
        last: Option<Made>,
        generation: &Generation,
        service: &Arc<NodeService>,
    ) -> Made {
        let defaults = &generation.defaults;
        let same_defaults = |other: &Option<Arc<ConfigEntry>>| match (other, defaults) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let registered = |m: &Made| Arc::ptr_eq(&m.service, service) && same_defaults(&m.defaults);
        let facts = match &last {
            Some(last) if registered(last) => last.facts.clone(),
            last => self.read(generation, service, last.as_ref()),
        };
        let sets = generation.sets(&facts.options);
        let topology = &generation.view.topology;
        let routed = |m: &Made| {
            let federation = facts.options.federation == m.facts.options.federation;
            Arc::ptr_eq(&m.topology, topology) && m.facts.binds == facts.binds && federation
        };
        let listeners = match &last {
            Some(last) if routed(last) => last.listeners.clone(),
            _ => listeners(topology, facts.options.federation, &facts.binds),
        };
        let answer = match check_ready(&generation.view, &facts) {
            Err(why) => Err(Arc::from(why.to_string())),
            Ok(()) => Ok(resources(&sets, &listeners, generation, last.as_ref())),
        };
        Made {
            service: Arc::clone(service),
            defaults: defaults.clone(),
            topology: Arc::clone(topology),
            facts,
            sets,
            listeners,
            answer,
        }
    }

    fn read(&self, of: &Generation, service: &NodeService, last: Option<&Made>) -> Gateway {
        let facts = Gateway::of(service, of.proxy_defaults());
        let known = |warning| last.is_some_and(|last| last.facts.warnings.contains(warning));
        for warning in facts.warnings.iter().filter(|w| !known(w)) {
            warn!(gateway = %self.key, %warning, "ignored in a gateway's registration");
        }
        facts
    }
}

/// The last resources if they are the same, so that streams see at once that nothing changed.
fn resources(
    sets: &Arc<SharedSets>,
    listeners: &ResourceSet,
    generation: &Generation,
    last: Option<&Made>,
) -> Arc<ProxyResources> {
    if let Some(last) = last
        && let Ok(resources) = &last.answer
        && Arc::ptr_eq(&last.sets, sets)
        && last.listeners.same(listeners)
    {
        return Arc::clone(resources);
    }
    Arc::new(ProxyResources {
        clusters: sets.clusters.clone(),
        endpoints: sets.endpoints.clone(),
        listeners: listeners.clone(),
        applied_at: generation.applied_at,
        ..Default::default()
    })
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(home) = self.home.upgrade() else {
            return;
        };
        let mut by_key = home.by_key.lock();
        // Another slot may have taken the place since this one was last held.
        if by_key
            .get(&self.key)
            .is_some_and(|slot| slot.strong_count() == 0)
        {
            by_key.remove(&self.key);
        }
    }
}
