//! Where an instance is reached, and whether it should be.

use crate::model::check::SERF_HEALTH;
use crate::model::{CheckServiceNode, CheckStatus, Node, NodeService};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Largest weight that Envoy is given.
const MAX_WEIGHT: i64 = 128;

/// An address or a name to resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address: can be sent by EDS.
    Ip(IpAddr),
    /// A DNS name: its cluster must resolve it, because Envoy refuses a whole EDS response that holds one (C036).
    Name(Arc<str>),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl Host {
    /// An IP address (IPv6 also in brackets) or a host name; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Ok(ip) = inner.unwrap_or(text).parse::<IpAddr>() {
            return Some(Self::Ip(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let label = |l: &str| !l.is_empty() && l.len() <= 63 && l.chars().all(word);
        // A name whose last label is a number is a mistyped IPv4 address (RFC 1123 2.1).
        let number = |l: &str| l.chars().all(|c| c.is_ascii_digit());
        let ok = name.len() <= 253
            && name.split('.').all(label)
            && !name.rsplit('.').next().is_none_or(number);
        ok.then(|| Self::Name(Arc::from(text)))
    }
}

/// What Envoy is told about an instance's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing: Envoy treats it as healthy.
    Unknown,
    /// May be used.
    Healthy,
    /// Is not to be used, except when the cluster panics.
    Unhealthy,
}

/// One instance in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub host: Host,
    /// Its port, never 0.
    pub port: u16,
    /// Whether it is to be used.
    pub health: Health,
    /// Share of the load, 1 to 128; 0: not stated.
    pub weight: u32,
}

/// Why an instance cannot be an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instance {id:?} of service {service:?} on node {node:?} is left out: {why}")]
pub struct Unusable {
    node: String,
    service: String,
    id: String,
    why: String,
}

impl Endpoint {
    /// The endpoint of an instance; `wan` if it is dialled from another datacenter.
    pub fn of(
        instance: &CheckServiceNode,
        wan: bool,
        only_passing: bool,
    ) -> Result<Self, Unusable> {
        let (health, weight) = health_and_weight(instance, only_passing);
        let (host, port) = place_of(instance, wan)?;
        Ok(Self {
            host,
            port,
            health,
            weight,
        })
    }

    /// The endpoint of a server: no health and no weight is stated.
    pub fn of_server(instance: &CheckServiceNode) -> Result<Self, Unusable> {
        let (host, port) = place_of(instance, false)?;
        Ok(Self {
            host,
            port,
            health: Health::Unknown,
            weight: 0,
        })
    }

    /// Whether the host must be resolved.
    pub fn is_name(&self) -> bool {
        matches!(self.host, Host::Name(_))
    }
}

fn place_of(instance: &CheckServiceNode, wan: bool) -> Result<(Host, u16), Unusable> {
    let unusable = |why: String| {
        let service = instance.service.as_deref();
        let node = instance.node.as_deref();
        Unusable {
            node: node.map_or_else(String::new, |n| n.node.to_string()),
            service: service.map_or_else(String::new, |s| s.service.to_string()),
            id: service.map_or_else(String::new, |s| s.id.to_string()),
            why,
        }
    };
    let (Some(node), Some(service)) = (&instance.node, &instance.service) else {
        return Err(unusable("the record lacks its node or service".to_owned()));
    };
    let (address, port) = best_address(node, service, wan);
    let host = Host::parse(address).ok_or_else(|| {
        unusable(format!(
            "address {address:?} is neither an IP address nor a host name"
        ))
    })?;
    if port == 0 {
        return Err(unusable("its port is 0".to_owned()));
    }
    Ok((host, port))
}

/// The address at which an instance is reached from its own datacenter, or from another one (`wan`).
///
/// The tagged address `wan` of the service goes before its address (its port only if not 0); without any, the node's
/// tagged address `wan`, then its address. The tags `wan_ipv4` and the like do not count.
pub fn best_address<'a>(node: &'a Node, service: &'a NodeService, wan: bool) -> (&'a str, u16) {
    let (mut address, mut port) = (service.address.as_str(), service.port);
    if wan && let Some(tagged) = service.tagged_addresses.get("wan") {
        address = &tagged.address;
        if tagged.port != 0 {
            port = tagged.port;
        }
    }
    if address.is_empty() {
        let tagged = node.tagged_addresses.get("wan").filter(|_| wan);
        address = tagged.map_or(node.address.as_str(), String::as_str);
    }
    (address, port)
}

/// Health and weight of an instance from the checks of its node and its own.
///
/// A critical check makes it unhealthy, and so does any that does not pass if `only_passing`. A warning selects the
/// other weight. A weight below 1 means that it is not to be used.
pub fn health_and_weight(instance: &CheckServiceNode, only_passing: bool) -> (Health, u32) {
    let weights = instance.service.as_ref().and_then(|s| s.weights);
    let mut weight = weights.map_or(1, |w| w.passing);
    let mut health = Health::Healthy;
    for check in &instance.checks {
        if check.status == CheckStatus::Critical
            || (only_passing && check.status != CheckStatus::Passing)
        {
            health = Health::Unhealthy;
        }
        if check.status == CheckStatus::Warning
            && let Some(weights) = weights
        {
            weight = weights.warning;
        }
    }
    if weight < 1 {
        return (Health::Unhealthy, 1);
    }
    (health, u32::try_from(weight.min(MAX_WEIGHT)).unwrap_or(1))
}

/// Whether the agent of the instance's node is known to be dead.
pub fn node_is_dead(instance: &CheckServiceNode) -> bool {
    let dead = |status| status == CheckStatus::Critical;
    let mut checks = instance.checks.iter();
    checks.any(|check| check.check_id == SERF_HEALTH && dead(check.status))
}
