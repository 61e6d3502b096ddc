//! Where streams get their resources from: the seam between the protocol and the state.
//!
//! A [`Source`] maps what an Envoy says about itself to a [`Watch`]; the watch tells who that is and what it is to
//! have, now and after every change. The protocol side knows neither the catalog nor how resources are made.

use std::fmt;
use std::sync::Arc;

use crate::model::ids::{NodeName, ServiceId};
use crate::xds::resources::ProxyResources;

/// What an Envoy says about itself in the first message of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvoyNode {
    /// `node.id`: the proxy's service id.
    pub id: String,
    /// `node.metadata.node_name`: the catalog node on which the proxy is registered, if given.
    pub node_name: Option<String>,
    /// `node.cluster`: only for statistics.
    pub cluster: String,
    /// The version of an Envoy; `None` for other clients.
    pub version: Option<EnvoyVersion>,
}

/// A version of Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvoyVersion {
    /// 1 in 1.40.0.
    pub major: u32,
    /// 40 in 1.40.0.
    pub minor: u32,
    /// 0 in 1.40.0.
    pub patch: u32,
}

impl fmt::Display for EnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Identifies a proxy: service ids are unique on their node only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProxyKey {
    /// The catalog node.
    pub node: NodeName,
    /// The service id of the proxy on that node.
    pub service: ServiceId,
}

impl fmt::Display for ProxyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.service)
    }
}

/// Who a node is and what it is to have, at this moment.
#[derive(Clone, Debug)]
pub enum Current {
    /// No proxy with this id (on this node) is registered.
    Unknown,
    /// Several nodes have a proxy with this id and the Envoy did not name its node.
    Ambiguous(Vec<NodeName>),
    /// The id belongs to a service that is not a proxy of a kind served here.
    NotAProxy {
        /// The kind as registered; empty for an ordinary service.
        kind: String,
    },
    /// Registered, but something is missing; the text says what.
    NotReady(ProxyKey, String),
    /// Registered, with everything it is to have.
    Ready(ProxyKey, Arc<ProxyResources>),
}

/// Gives each stream its view of the state.
pub trait Source: Clone + Send + Sync + 'static {
    /// The view of one stream.
    type Watch: Watch;

    /// Starts to watch the proxy that `node` describes. Must not block; the proxy may be unknown yet.
    fn watch(&self, node: &EnvoyNode) -> Self::Watch;
}

/// The view of one stream: always the newest value, intermediate ones are skipped.
pub trait Watch: Send + 'static {
    /// The present answer; marks it as seen. Streams of equal proxies get the same `Arc`s.
    fn current(&mut self) -> Current;

    /// Ends when [`Watch::current`] may give something not seen yet. Must be cancel-safe.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}
