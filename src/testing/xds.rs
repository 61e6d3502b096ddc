//! An in-memory source of xDS resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::model::ids::NodeName;
use crate::xds::resources::ProxyResources;
use crate::xds::source::{Current, EnvoyNode, ProxyKey, Source, Watch};

/// What is registered under one key.
#[derive(Clone, Debug)]
pub enum Registered {
    /// A proxy with these resources.
    Ready(Arc<ProxyResources>),
    /// A proxy that lacks something.
    NotReady(String),
    /// A service of this kind.
    Other(String),
}

type World = BTreeMap<ProxyKey, Registered>;

/// A source whose state a test sets.
#[derive(Clone, Debug)]
pub struct MemorySource {
    world: watch::Sender<World>,
}

impl Default for MemorySource {
    fn default() -> Self {
        Self {
            world: watch::Sender::new(World::new()),
        }
    }
}

/// The key of service `service` on node `node`.
pub fn key(node: &str, service: &str) -> ProxyKey {
    ProxyKey {
        node: node.into(),
        service: service.into(),
    }
}

impl MemorySource {
    /// Registers something, or replaces it.
    pub fn set(&self, key: ProxyKey, registered: Registered) {
        self.world.send_modify(|world| {
            world.insert(key, registered);
        });
    }

    /// Registers a proxy with these resources.
    pub fn ready(&self, key: ProxyKey, resources: ProxyResources) {
        self.set(key, Registered::Ready(Arc::new(resources)));
    }

    /// Deregisters.
    pub fn remove(&self, key: &ProxyKey) {
        self.world.send_modify(|world| {
            world.remove(key);
        });
    }
}

impl Source for MemorySource {
    type Watch = MemoryWatch;

    fn watch(&self, node: &EnvoyNode) -> MemoryWatch {
        MemoryWatch {
            node: node.clone(),
            world: self.world.subscribe(),
        }
    }
}

/// The view of one stream.
#[derive(Debug)]
pub struct MemoryWatch {
    node: EnvoyNode,
    world: watch::Receiver<World>,
}

impl Watch for MemoryWatch {
    fn current(&mut self) -> Current {
        let world = self.world.borrow_and_update();
        let wanted = self.node.node_name.as_deref();
        let found = world.iter().filter(|(key, _)| {
            let node = wanted.is_none_or(|name| name == key.node.as_str());
            node && key.service.as_str() == self.node.id
        });
        let found: Vec<_> = found.collect();
        match found.as_slice() {
            [] => Current::Unknown,
            [(key, Registered::Ready(resources))] => {
                Current::Ready((*key).clone(), Arc::clone(resources))
            }
            [(key, Registered::NotReady(why))] => Current::NotReady((*key).clone(), why.clone()),
            [(_, Registered::Other(kind))] => Current::NotAProxy { kind: kind.clone() },
            several => {
                let nodes: Vec<NodeName> =
                    several.iter().map(|(key, _)| key.node.clone()).collect();
                Current::Ambiguous(nodes)
            }
        }
    }

    async fn changed(&mut self) {
        if self.world.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
