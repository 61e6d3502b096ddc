//! The live streams of this server: for CSDS, the operator API, the health prober and metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};

use crate::proto::crossway::v1 as api;
use crate::xds::life::Phase;
use crate::xds::resources::ResourceType;
use crate::xds::session::{Protocol, Session};
use crate::xds::source::{EnvoyNode, ProxyKey};
use crate::xds::status;
use crate::xds::wire::Node;

/// How many events a slow subscriber may be behind before it loses some.
const EVENT_BACKLOG: usize = 1024;

/// A proxy's stream was opened or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    /// Whose stream.
    pub proxy: ProxyKey,
    /// Opened (and the proxy is registered), or ended.
    pub opened: bool,
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For measuring.
    pub instant: Instant,
    /// For people.
    pub wall: SystemTime,
}

impl Now {
    /// The time of day at `instant`.
    pub fn wall_at(&self, instant: Instant) -> SystemTime {
        self.wall - self.instant.saturating_duration_since(instant)
    }
}

/// One live stream.
#[derive(Debug)]
pub struct LiveStream {
    /// Unique for the life of the process.
    pub id: u64,
    /// The other end.
    pub peer: Option<SocketAddr>,
    /// The form of the protocol.
    pub protocol: Protocol,
    /// When it was opened.
    pub opened: Now,
    /// What the Envoy said about itself.
    pub node: Node,
    /// What changes.
    pub state: Mutex<StreamState>,
}

/// The changing part of a stream. The stream's task holds the lock for each event, readers for a look.
#[derive(Debug)]
pub struct StreamState {
    /// The protocol.
    pub session: Session,
    /// Where the stream stands.
    pub phase: Phase,
}

/// How many streams there are, by what became of their proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All streams.
    pub streams: usize,
    /// Streams of proxies that nobody registered.
    pub unregistered: usize,
    /// Streams of proxies that were deregistered.
    pub deregistered: usize,
}

/// All live streams.
#[derive(Debug)]
pub struct Registry {
    streams: DashMap<u64, Arc<LiveStream>>,
    next_id: AtomicU64,
    events: broadcast::Sender<StreamEvent>,
    changes: watch::Sender<()>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            streams: DashMap::new(),
            next_id: AtomicU64::new(1),
            events: broadcast::Sender::new(EVENT_BACKLOG),
            changes: watch::Sender::new(()),
        }
    }
}

impl Registry {
    /// Tells when streams of registered proxies are opened and end.
    pub fn events(&self) -> broadcast::Receiver<StreamEvent> {
        self.events.subscribe()
    }

    /// Tells that something about the streams changed, such as an acknowledgement.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// How many streams there are.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for stream in &self.streams {
            counts.streams += 1;
            match stream.state.lock().phase {
                Phase::Unregistered(_) => counts.unregistered += 1,
                Phase::Deregistered(..) => counts.deregistered += 1,
                Phase::NotReady(..) | Phase::Running(..) => {}
            }
        }
        counts
    }

    /// All live streams, oldest first.
    pub fn streams(&self) -> Vec<Arc<LiveStream>> {
        let all = self.streams.iter().map(|entry| Arc::clone(entry.value()));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|stream| stream.id);
        all
    }

    /// Adds a stream; it is removed when the guard goes.
    pub(crate) fn open(self: &Arc<Self>, make: impl FnOnce(u64) -> LiveStream) -> StreamGuard {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let stream = Arc::new(make(id));
        self.streams.insert(id, Arc::clone(&stream));
        metrics::gauge!("consul.xds.server.streams", "version" => "v3").increment(1.0);
        self.changed();
        StreamGuard {
            registry: Arc::clone(self),
            stream,
            known: None,
        }
    }

    fn changed(&self) {
        if self.changes.receiver_count() > 0 {
            self.changes.send_replace(());
        }
    }

    fn tell(&self, proxy: ProxyKey, opened: bool) {
        // Without a subscriber there is nobody to tell.
        let _ = self.events.send(StreamEvent { proxy, opened });
    }

    /// The proxies with their streams, ordered by node and service id.
    pub fn proxies(&self, now: Now) -> Vec<api::Proxy> {
        let mut proxies: BTreeMap<(String, String), api::Proxy> = BTreeMap::new();
        for stream in self.streams() {
            let state = stream.state.lock();
            let (node_name, service_id) = match state.phase.key() {
                Some(key) => (key.node.to_string(), key.service.to_string()),
                None => (
                    EnvoyNode::from(&stream.node).node_name.unwrap_or_default(),
                    stream.node.id.clone(),
                ),
            };
            let proxy = proxies
                .entry((node_name.clone(), service_id.clone()))
                .or_insert_with(|| api::Proxy {
                    node_name,
                    service_id,
                    streams: Vec::new(),
                });
            proxy.streams.push(describe(&stream, &state, now));
        }
        proxies.into_values().collect()
    }
}

fn describe(stream: &LiveStream, state: &StreamState, now: Now) -> api::ProxyStream {
    let types = ResourceType::ALL.into_iter().filter_map(|kind| {
        let status = status::of_type(&state.session, kind)?;
        Some((kind, status))
    });
    let types: Vec<_> = types.collect();
    let (sync, reason) = sync_state(&state.phase, types.iter().map(|(_, status)| status));
    let node = EnvoyNode::from(&stream.node);
    api::ProxyStream {
        id: stream.id,
        remote_address: stream.peer.map(|peer| peer.to_string()).unwrap_or_default(),
        protocol: stream.protocol.label().to_owned(),
        opened_at: Some(stream.opened.wall.into()),
        envoy_version: node
            .version
            .map(|version| version.to_string())
            .unwrap_or_default(),
        state: sync.into(),
        reason,
        types: types
            .into_iter()
            .map(|(kind, status)| of_type(kind, status, now))
            .collect(),
    }
}

fn of_type(kind: ResourceType, status: status::TypeStatus, now: Now) -> api::TypeSync {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let refused = status
        .refused
        .into_iter()
        .map(|(name, refusal)| api::Refusal {
            name: name.to_string(),
            version: refusal.version.to_string(),
            detail: refusal.detail.to_string(),
            refused_at: Some(now.wall_at(refusal.at).into()),
        });
    api::TypeSync {
        type_url: kind.url().to_owned(),
        wanted: count(status.wanted),
        acknowledged: count(status.acked),
        refused: refused.collect(),
    }
}

fn sync_state<'a>(
    phase: &Phase,
    mut types: impl Iterator<Item = &'a status::TypeStatus> + Clone,
) -> (api::SyncState, String) {
    let waits = "waits for the proxy's registration";
    match phase {
        Phase::Unregistered(_) => (api::SyncState::Unregistered, waits.to_owned()),
        Phase::Deregistered(..) => (api::SyncState::Deregistered, waits.to_owned()),
        Phase::NotReady(_, why) => (api::SyncState::NotReady, why.clone()),
        Phase::Running(_, why) => {
            let behind = |status: &status::TypeStatus| {
                status.pending || status.acked + status.refused.len() < status.wanted
            };
            let sync = if types.clone().any(|status| !status.refused.is_empty()) {
                api::SyncState::Refused
            } else if types.any(behind) {
                api::SyncState::Syncing
            } else {
                api::SyncState::Synced
            };
            (sync, why.clone().unwrap_or_default())
        }
    }
}

/// Keeps a stream in the registry.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    registry: Arc<Registry>,
    stream: Arc<LiveStream>,
    known: Option<ProxyKey>,
}

impl StreamGuard {
    /// The stream.
    pub(crate) const fn stream(&self) -> &Arc<LiveStream> {
        &self.stream
    }

    /// Something about the stream changed.
    pub(crate) fn changed(&self) {
        self.registry.changed();
    }

    /// The stream belongs to this proxy.
    pub(crate) fn belongs_to(&mut self, key: &ProxyKey) {
        if self.known.as_ref() != Some(key) {
            if let Some(old) = self.known.replace(key.clone()) {
                self.registry.tell(old, false);
            }
            self.registry.tell(key.clone(), true);
        }
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.registry.streams.remove(&self.stream.id);
        metrics::gauge!("consul.xds.server.streams", "version" => "v3").decrement(1.0);
        if let Some(key) = self.known.take() {
            self.registry.tell(key, false);
        }
        self.registry.changed();
    }
}
