//! xDS resources as immutable, shared bytes.
//!
//! A [`Resource`] is encoded **once**, in a layout of which both protocol forms are slices:
//!
//! ```text
//!   wire = 12 <len> | 1a <name> 0a <version> | 12 <len> | 0a <type url> 12 <body>
//!          `------------- field `resources` of DeltaDiscoveryResponse ----------'
//!                                             `-- of DiscoveryResponse (an Any) -'
//! ```
//!
//! Field 2 carries the resources in both responses *and* the `Any` inside the delta form, so the state-of-the-world
//! form is the tail of the delta form and no stream ever encodes or copies a resource again.
//!
//! A [`ResourceSet`] is a persistent ordered map: cloning it is free, two generations share everything that did not
//! change, and [`ResourceSet::changes`] skips what they share. Nothing here knows streams, proxies or time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};
use sha2::{Digest, Sha256};

pub use set::{Change, ResourceSet, Reuse};

mod set;

/// The kinds of resources that this control plane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// Upstream clusters (CDS).
    Cluster,
    /// Endpoints of EDS clusters (EDS).
    Endpoint,
    /// Listeners with their filter chains (LDS).
    Listener,
    /// Route configurations that listeners name (RDS).
    Route,
    /// Certificates and validation contexts (SDS).
    Secret,
}

impl ResourceType {
    /// All types, in the order in which new resources are sent.
    pub const ALL: [Self; 5] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Secret,
        Self::Listener,
        Self::Route,
    ];

    /// The type URL of xDS v3.
    pub const fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }

    /// The type with this URL; `None` for types that are not served.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url() == url)
    }

    /// The short name used in metrics and logs, such as `cds`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::Secret => "sds",
        }
    }

    /// The type whose resources depend on this one: clusters have endpoints, listeners have routes.
    pub const fn child(self) -> Option<Self> {
        match self {
            Self::Cluster => Some(Self::Endpoint),
            Self::Listener => Some(Self::Route),
            Self::Endpoint | Self::Route | Self::Secret => None,
        }
    }

    /// Whether Envoy always holds the full set (CDS, LDS) instead of names that it asks for.
    pub const fn is_full_set(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}

/// The content hash of a resource: the first 16 bytes of the SHA-256 of its encoded message.
///
/// Equal on every server and after a restart, so that a reconnecting Envoy need not be sent what it already has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 16]);

impl Version {
    /// The version of a message with these bytes.
    pub fn of(body: &[u8]) -> Self {
        Self(head(Sha256::digest(body).as_slice()))
    }

    /// The 16 bytes as a number.
    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl From<u128> for Version {
    fn from(number: u128) -> Self {
        Self(number.to_be_bytes())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.as_u128())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a version of ours: 32 hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("not a version: 32 lower-case hexadecimal digits are expected")]
pub struct NotAVersion;

impl FromStr for Version {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 32 || !text.bytes().all(hex) {
            return Err(NotAVersion);
        }
        u128::from_str_radix(text, 16)
            .map(Self::from)
            .map_err(|_| NotAVersion)
    }
}

/// One named resource with its encoded bytes. Equality is equality of type, name and version.
#[derive(Clone)]
pub struct Resource {
    kind: ResourceType,
    name: Arc<str>,
    version: Version,
    /// Hash of type, name and version: what this resource adds to the hash of a set.
    share: u128,
    wire: Bytes,
    sotw_at: usize,
    any_at: usize,
    body_at: usize,
    children: Box<[Arc<str>]>,
}

impl Resource {
    /// Encodes `message` under `name`.
    ///
    /// Equal content must give equal bytes, so a message must not hold a protobuf map with two or more entries
    /// (the generated types keep maps unordered); all other fields are encoded in one fixed way.
    pub fn new(kind: ResourceType, name: impl Into<Arc<str>>, message: &impl Message) -> Self {
        let name = name.into();
        let body = message.encode_to_vec();
        let version = Version::of(&body);
        let (wire, [sotw_at, any_at, body_at]) = encode(kind, &name, version, &body);
        Self {
            kind,
            share: share(kind, &name, version),
            name,
            version,
            wire,
            sotw_at,
            any_at,
            body_at,
            children: Box::default(),
        }
    }

    /// Encodes a cluster; its endpoints are its child when they come by EDS.
    pub fn cluster(cluster: &Cluster) -> Self {
        let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds as i32);
        let resource = Self::new(ResourceType::Cluster, cluster.name.as_str(), cluster);
        if cluster.cluster_discovery_type != Some(eds) {
            return resource;
        }
        let service = cluster.eds_cluster_config.as_ref();
        let child = match service.map(|eds| eds.service_name.as_str()) {
            None | Some("") => Arc::clone(&resource.name),
            Some(name) => Arc::from(name),
        };
        resource.with_children([child])
    }

    /// Encodes the endpoints of a cluster.
    pub fn endpoints(assignment: &ClusterLoadAssignment) -> Self {
        let name = assignment.cluster_name.as_str();
        Self::new(ResourceType::Endpoint, name, assignment)
    }

    /// The answer for a cluster that is known to have no endpoints.
    pub fn no_endpoints(cluster: &str) -> Self {
        Self::endpoints(&ClusterLoadAssignment {
            cluster_name: cluster.to_owned(),
            ..Default::default()
        })
    }

    /// Names the resources of the child type (a listener's route configurations) that depend on this one.
    #[must_use]
    pub fn with_children(mut self, names: impl IntoIterator<Item = Arc<str>>) -> Self {
        self.children = names.into_iter().collect();
        self
    }

    /// The type.
    pub const fn kind(&self) -> ResourceType {
        self.kind
    }

    /// The name, unique within its type.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The content hash.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Names in the child type that must be sent again whenever this resource is sent.
    pub fn children(&self) -> &[Arc<str>] {
        &self.children
    }

    /// Tag, length and value of field `resources` in a `DeltaDiscoveryResponse`.
    pub fn delta_field(&self) -> Bytes {
        self.wire.clone()
    }

    /// Tag, length and value of field `resources` in a `DiscoveryResponse`.
    pub fn sotw_field(&self) -> Bytes {
        self.wire.slice(self.sotw_at..)
    }

    /// The encoded `google.protobuf.Any`.
    pub fn any(&self) -> Bytes {
        self.wire.slice(self.any_at..)
    }

    /// The encoded message itself.
    pub fn body(&self) -> Bytes {
        self.wire.slice(self.body_at..)
    }

    /// Length of [`Self::delta_field`] in bytes.
    pub const fn wire_len(&self) -> usize {
        self.wire.len()
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        self.share == other.share
    }
}

impl Eq for Resource {}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}@{}", self.kind.label(), self.name, self.version)
    }
}

const NAME: u8 = 3 << 3 | 2;
const VERSION: u8 = 1 << 3 | 2;
const RESOURCE: u8 = 2 << 3 | 2;
const TYPE_URL: u8 = 1 << 3 | 2;
const VALUE: u8 = 2 << 3 | 2;

/// The wire form and where its state-of-the-world field, its `Any` and its body start.
fn encode(kind: ResourceType, name: &str, version: Version, body: &[u8]) -> (Bytes, [usize; 3]) {
    let field = |len: usize| 1 + encoded_len_varint(len as u64) + len;
    let version = version.to_string();
    let any_len = field(kind.url().len()) + field(body.len());
    let delta_len = field(name.len()) + field(version.len()) + field(any_len);
    let mut wire = BytesMut::with_capacity(field(delta_len));
    wire.put_u8(RESOURCE);
    encode_varint(delta_len as u64, &mut wire);
    put(&mut wire, NAME, name.as_bytes());
    put(&mut wire, VERSION, version.as_bytes());
    let sotw_at = wire.len();
    wire.put_u8(RESOURCE);
    encode_varint(any_len as u64, &mut wire);
    let any_at = wire.len();
    put(&mut wire, TYPE_URL, kind.url().as_bytes());
    put(&mut wire, VALUE, body);
    let body_at = wire.len() - body.len();
    (wire.freeze(), [sotw_at, any_at, body_at])
}

fn put(wire: &mut BytesMut, tag: u8, value: &[u8]) {
    wire.put_u8(tag);
    encode_varint(value.len() as u64, wire);
    wire.put_slice(value);
}

fn share(kind: ResourceType, name: &str, version: Version) -> u128 {
    let mut hash = Sha256::new();
    hash.update([kind as u8]);
    hash.update(name.as_bytes());
    hash.update(version.0);
    u128::from_be_bytes(head(hash.finalize().as_slice()))
}

fn head(digest: &[u8]) -> [u8; 16] {
    let mut out = [0; 16];
    out.iter_mut().zip(digest).for_each(|(o, d)| *o = *d);
    out
}

/// Everything one proxy is to have.
#[derive(Clone, Debug, Default)]
pub struct ProxyResources {
    /// Clusters (CDS).
    pub clusters: ResourceSet,
    /// Cluster load assignments (EDS).
    pub endpoints: ResourceSet,
    /// Listeners (LDS).
    pub listeners: ResourceSet,
    /// Route configurations (RDS).
    pub routes: ResourceSet,
    /// Secrets (SDS).
    pub secrets: ResourceSet,
    /// When the state behind these resources was applied: start of the time from apply to push.
    pub applied_at: Option<Instant>,
}

impl ProxyResources {
    /// The resources of one type.
    pub const fn of(&self, kind: ResourceType) -> &ResourceSet {
        match kind {
            ResourceType::Cluster => &self.clusters,
            ResourceType::Endpoint => &self.endpoints,
            ResourceType::Listener => &self.listeners,
            ResourceType::Route => &self.routes,
            ResourceType::Secret => &self.secrets,
        }
    }

    /// Whether both hold the same resources, in O(1).
    pub fn same(&self, other: &Self) -> bool {
        let same = |kind| self.of(kind).same(other.of(kind));
        ResourceType::ALL.into_iter().all(same)
    }
}

#[cfg(test)]
mod tests;
