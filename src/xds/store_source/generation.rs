//! What all gateways share, made once per change.

use crate::model::{ConfigEntry, ConfigKind, ProxyDefaults};
use crate::proxycfg::{GatewayOptions, Place, View};
use crate::store::{State, Store, Topic, Watch as StoreChange};
use crate::xds::generate::SharedSets;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracing::{debug, info, warn};

/// A set of options that no gateway asked for during this many changes is forgotten.
const FORGET_AFTER: u32 = 100;

/// One state, and what gateways get from it.
pub(super) struct Generation {
    pub(super) state: Arc<State>,
    pub(super) view: Arc<View>,
    /// The defaults of all proxies.
    pub(super) defaults: Option<Arc<ConfigEntry>>,
    /// When the state was applied.
    pub(super) applied_at: Option<Instant>,
    sets: Arc<Sets>,
    figures: Arc<Counters>,
}

/// Clusters and endpoints of one view, by the options of gateways.
#[derive(Default)]
struct Sets {
    by_options: Mutex<HashMap<GatewayOptions, Kept>>,
}

#[derive(Clone)]
struct Kept {
    sets: Arc<SharedSets>,
    /// Changes since somebody asked for them.
    idle: u32,
}

/// What was made so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How often the shared view was made from a new state.
    pub views: u64,
    /// How many of these showed something new.
    pub generations: u64,
    /// Clusters and load assignments that were encoded.
    pub encoded: u64,
    /// Clusters and load assignments that a new generation took over from the one before.
    pub reused: u64,
}

#[derive(Default)]
struct Counters {
    views: AtomicU64,
    generations: AtomicU64,
    encoded: AtomicU64,
    reused: AtomicU64,
}

impl Counters {
    fn made(&self, sets: &SharedSets) {
        let (encoded, reused) = (sets.work.encoded as u64, sets.work.reused as u64);
        self.encoded.fetch_add(encoded, Ordering::Relaxed);
        self.reused.fetch_add(reused, Ordering::Relaxed);
        metrics::counter!("crossway.xds.resources_encoded_total").increment(encoded);
        metrics::counter!("crossway.xds.resources_reused_total").increment(reused);
    }
}

impl Generation {
    /// Clusters and endpoints for these options; made now if this is the first gateway with them.
    pub(super) fn sets(&self, options: &GatewayOptions) -> Arc<SharedSets> {
        let mut by_options = self.sets.by_options.lock();
        if let Some(kept) = by_options.get_mut(options) {
            kept.idle = 0;
            return Arc::clone(&kept.sets);
        }
        let sets = Arc::new(SharedSets::build(&self.view, options));
        self.figures.made(&sets);
        let kept = Kept {
            sets: Arc::clone(&sets),
            idle: 0,
        };
        by_options.insert(options.clone(), kept);
        sets
    }

    /// The defaults of all proxies, as what they are.
    pub(super) fn proxy_defaults(&self) -> Option<&ProxyDefaults> {
        match self.defaults.as_deref() {
            Some(ConfigEntry::ProxyDefaults(defaults)) => Some(defaults),
            _ => None,
        }
    }
}

/// The newest [`Generation`]. Whoever asks first after a change makes it while the others wait for it.
pub(super) struct Shared {
    place: Place,
    newest: Mutex<Newest>,
    figures: Arc<Counters>,
}

#[derive(Default)]
struct Newest {
    generation: Option<Arc<Generation>>,
    /// Tells whether the state was restored since the last generation was made.
    restored: Option<StoreChange>,
}

impl Shared {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            newest: Mutex::default(),
            figures: Arc::default(),
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            views: read(&self.figures.views),
            generations: read(&self.figures.generations),
            encoded: read(&self.figures.encoded),
            reused: read(&self.figures.reused),
        }
    }

    /// The generation of the store's newest state: the one that is there, or made now.
    pub(super) fn current(&self, store: &Store) -> Arc<Generation> {
        let mut newest = self.newest.lock();
        // A restored snapshot may hold other content at the same indexes, so nothing is concluded from those then.
        let restored = newest.restored.as_ref().is_none_or(StoreChange::abandoned);
        if restored {
            newest.restored = Some(store.watch([Topic::CaConfig]));
        }
        let applied_at = store.published_at();
        let state = store.latest();
        let next = match &newest.generation {
            Some(last) if !restored && Arc::ptr_eq(&last.state, &state) => return Arc::clone(last),
            Some(last) if !restored => self.next(last, state, applied_at),
            last => self.first(last.as_deref(), state, applied_at),
        };
        let next = Arc::new(next);
        newest.generation = Some(Arc::clone(&next));
        next
    }

    fn first(
        &self,
        last: Option<&Generation>,
        state: Arc<State>,
        applied_at: Option<Instant>,
    ) -> Generation {
        let view = View::build(&self.place, &state, last.map(|last| &*last.view));
        for warning in view.warnings() {
            warn!(%warning, "left out of the gateways' resources");
        }
        info!(
            datacenters = view.remotes.len(),
            servers = view.servers.list.len(),
            services = view.services.len(),
            trust_domain = view.trust_domain.as_deref().unwrap_or_default(),
            "view of the gateways made from the whole state"
        );
        self.figures.views.fetch_add(1, Ordering::Relaxed);
        self.figures.generations.fetch_add(1, Ordering::Relaxed);
        Generation {
            defaults: defaults(&state),
            view: Arc::new(view),
            sets: Arc::default(),
            figures: Arc::clone(&self.figures),
            state,
            applied_at,
        }
    }

    fn next(
        &self,
        last: &Generation,
        state: Arc<State>,
        applied_at: Option<Instant>,
    ) -> Generation {
        let view = last.view.update(&last.state, &state);
        self.figures.views.fetch_add(1, Ordering::Relaxed);
        let (view, sets) = if view.same(&last.view) {
            (Arc::clone(&last.view), Arc::clone(&last.sets))
        } else {
            for warning in view.new_warnings(&last.view) {
                warn!(%warning, "left out of the gateways' resources");
            }
            self.figures.generations.fetch_add(1, Ordering::Relaxed);
            let sets = self.evolve(last, &view);
            debug!(index = state.last_index(), "view of the gateways changed");
            (Arc::new(view), Arc::new(sets))
        };
        Generation {
            defaults: defaults(&state),
            view,
            sets,
            figures: Arc::clone(&self.figures),
            state,
            applied_at,
        }
    }

    fn evolve(&self, last: &Generation, view: &View) -> Sets {
        let known = last.sets.by_options.lock().clone();
        let mut by_options = HashMap::new();
        for (options, kept) in known.into_iter().filter(|(_, k)| k.idle < FORGET_AFTER) {
            let sets = kept.sets.evolve(&last.view, view, &options);
            self.figures.made(&sets);
            let unchanged = sets.clusters.same(&kept.sets.clusters)
                && sets.endpoints.same(&kept.sets.endpoints);
            let next = Kept {
                sets: if unchanged { kept.sets } else { Arc::new(sets) },
                idle: kept.idle + 1,
            };
            by_options.insert(options, next);
        }
        Sets {
            by_options: Mutex::new(by_options),
        }
    }
}

fn defaults(state: &State) -> Option<Arc<ConfigEntry>> {
    let entry = state.config_entry(ConfigKind::ProxyDefaults, "global");
    entry.cloned()
}
