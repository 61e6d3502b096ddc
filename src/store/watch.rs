//! The newest state and who waits for the next one.
//!
//! A [`Watch`] registers first and reads afterwards, so no change between the two is missed. Waking costs one flag and
//! one notification per waiter; waiters of other topics are not even looked at.

use crate::store::command::Topic;
use crate::store::state::State;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// How many independent locks the waiters are spread over.
const SHARDS: usize = 16;

/// The newest [`State`], shared by every reader. Cloning it shares it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// Waiters of a part of the topics, by topic and number.
type Shard = Mutex<HashMap<Topic, HashMap<u64, Arc<Waiter>>>>;

struct Inner {
    state: ArcSwap<State>,
    shards: Vec<Shard>,
    hasher: RandomState,
    next_id: AtomicU64,
    prefix_waiters: AtomicU64,
    restores: AtomicU64,
    last_publish: ArcSwap<Option<std::time::Instant>>,
}

#[derive(Default)]
struct Waiter {
    fired: AtomicBool,
    abandoned: AtomicBool,
    notify: Notify,
}

impl Waiter {
    fn fire(&self) {
        if !self.fired.swap(true, Ordering::AcqRel) {
            self.notify.notify_one();
        }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new(State::default())
    }
}

impl Store {
    /// A store that begins with `state`.
    pub fn new(state: State) -> Self {
        Self {
            inner: Arc::new(Inner {
                state: ArcSwap::from_pointee(state),
                shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
                hasher: RandomState::new(),
                next_id: AtomicU64::new(0),
                prefix_waiters: AtomicU64::new(0),
                restores: AtomicU64::new(0),
                last_publish: ArcSwap::from_pointee(None),
            }),
        }
    }

    /// The newest state: a consistent picture with no lock held.
    pub fn latest(&self) -> Arc<State> {
        self.inner.state.load_full()
    }

    /// When the newest state was published; for the metric of how long a change takes to reach an Envoy.
    pub fn published_at(&self) -> Option<std::time::Instant> {
        **self.inner.last_publish.load()
    }

    /// Replaces the state and wakes whoever waits for one of `topics`. For `consensus` alone.
    pub fn publish(&self, state: State, topics: &BTreeSet<Topic>) {
        self.inner.swap(state);
        for topic in topics {
            self.inner.fire(topic);
            if let Topic::KvKey(key) = topic {
                self.inner.fire_prefixes(key);
            }
        }
    }

    /// Replaces the state by a restored one and wakes everybody: what they read before may be gone. For `consensus`
    /// alone.
    pub fn publish_restored(&self, state: State) {
        self.inner.restores.fetch_add(1, Ordering::AcqRel);
        self.inner.swap(state);
        for shard in &self.inner.shards {
            for waiter in shard.lock().values().flat_map(HashMap::values) {
                waiter.abandoned.store(true, Ordering::Release);
                waiter.fire();
            }
        }
    }

    /// How often the state was replaced by a restored one: what was derived from an index before may not hold after.
    pub fn restores(&self) -> u64 {
        self.inner.restores.load(Ordering::Acquire)
    }

    /// Waits for any of `topics` from now on. Read [`Store::latest`] after this call.
    pub fn watch(&self, topics: impl IntoIterator<Item = Topic>) -> Watch {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter::default());
        let topics: Vec<Topic> = topics.into_iter().collect();
        for topic in &topics {
            if matches!(topic, Topic::KvPrefix(_)) {
                self.inner.prefix_waiters.fetch_add(1, Ordering::AcqRel);
            }
            if let Some(shard) = self.inner.shard(topic) {
                let mut shard = shard.lock();
                shard
                    .entry(topic.clone())
                    .or_default()
                    .insert(id, waiter.clone());
            }
        }
        Watch {
            inner: self.inner.clone(),
            waiter,
            topics,
            id,
        }
    }

    /// How many waiters are registered, counted once per topic. For tests and metrics.
    pub fn waiting(&self) -> usize {
        let count = |shard: &Shard| shard.lock().values().map(HashMap::len).sum::<usize>();
        self.inner.shards.iter().map(count).sum()
    }
}

impl Inner {
    fn shard(&self, topic: &Topic) -> Option<&Shard> {
        let at = self.hasher.hash_one(topic) as usize % SHARDS;
        self.shards.get(at)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the instant feeds the apply-to-push metric; no decision reads it"
    )]
    fn swap(&self, state: State) {
        self.state.store(Arc::new(state));
        self.last_publish
            .store(Arc::new(Some(std::time::Instant::now())));
    }

    fn fire(&self, topic: &Topic) {
        let Some(shard) = self.shard(topic) else {
            return;
        };
        if let Some(waiters) = shard.lock().get(topic) {
            waiters.values().for_each(|waiter| waiter.fire());
        }
    }

    /// Keys are waited for by prefix, and every beginning of `key` is one.
    fn fire_prefixes(&self, key: &str) {
        if self.prefix_waiters.load(Ordering::Acquire) == 0 {
            return;
        }
        let ends = key.char_indices().map(|(at, _)| at).chain([key.len()]);
        for end in ends {
            if let Some(prefix) = key.get(..end) {
                self.fire(&Topic::KvPrefix(Arc::from(prefix)));
            }
        }
    }
}

/// One reader's registration; dropping it removes it.
pub struct Watch {
    inner: Arc<Inner>,
    waiter: Arc<Waiter>,
    topics: Vec<Topic>,
    id: u64,
}

impl Watch {
    /// Returns as soon as a topic was touched since the registration or the last return. Cancelling loses nothing.
    pub async fn changed(&mut self) {
        loop {
            if self.waiter.fired.swap(false, Ordering::AcqRel) {
                return;
            }
            self.waiter.notify.notified().await;
        }
    }

    /// Whether a snapshot replaced the state since the registration: indexes may have gone back.
    pub fn abandoned(&self) -> bool {
        self.waiter.abandoned.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for topic in &self.topics {
            if matches!(topic, Topic::KvPrefix(_)) {
                self.inner.prefix_waiters.fetch_sub(1, Ordering::AcqRel);
            }
            if let Some(shard) = self.inner.shard(topic) {
                let mut shard = shard.lock();
                if let Some(waiters) = shard.get_mut(topic) {
                    waiters.remove(&self.id);
                    if waiters.is_empty() {
                        shard.remove(topic);
                    }
                }
            }
        }
    }
}
