//! The life of one stream between the proxy's registration and the stream's end.
//!
//! ```text
//!                     registered, incomplete            complete
//!   Unregistered ----------------------> NotReady ----------------> Running <---.
//!        | 10 s                              |                        |          | registered again
//!        v                                   `---- deregistered ---> Deregistered
//!    NOT_FOUND                                                        | 5 s
//!                                                                     v
//!                                                                  NOT_FOUND
//! ```
//!
//! An id that several nodes have, or that is no proxy, ends the stream at once. Envoy keeps its last configuration
//! whatever the end, and comes back with a growing pause.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::envoy;
use crate::model::ids::NodeName;
use crate::xds::resources::ProxyResources;
use crate::xds::source::{Current, EnvoyNode, EnvoyVersion, ProxyKey};

/// The oldest Envoy that is served. Newer ones are never refused.
pub const MINIMUM_ENVOY: EnvoyVersion = EnvoyVersion {
    major: envoy::MINIMUM_ENVOY.0,
    minor: envoy::MINIMUM_ENVOY.1,
    patch: envoy::MINIMUM_ENVOY.2,
};

/// The longest id of a node in bytes: it is kept with the stream and goes into logs and labels of metrics.
pub const ID_LIMIT: usize = 1024;

/// How long a stream waits for things that may still come.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the registration of an unknown proxy.
    pub unknown: Duration,
    /// For a deregistered proxy to come back.
    pub deregistered: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            unknown: Duration::from_secs(10),
            deregistered: Duration::from_secs(5),
        }
    }
}

/// Why a stream ends. The text is for the operator of the Envoy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The first message does not say who it is from.
    #[error(
        "the first message of a stream must carry a node with an id: the service id of the proxy"
    )]
    NoId,
    /// An id, or the name of a node, longer than [`ID_LIMIT`].
    #[error(
        "{key} of {len} bytes is longer than the limit of {ID_LIMIT} bytes: correct Envoy's bootstrap"
    )]
    LongId {
        /// `node.id` or `node.metadata.node_name`.
        key: &'static str,
        /// Its length in bytes.
        len: usize,
    },
    /// The Envoy is too old.
    #[error("Envoy {0} is too old and is not supported: the minimum is {MINIMUM_ENVOY}")]
    TooOld(EnvoyVersion),
    /// Nobody registered such a proxy.
    #[error(
        "no proxy with service id {id:?} is registered{}: register it, or correct node.id and node.metadata.node_name in Envoy's bootstrap",
        on_node(node.as_deref())
    )]
    NotRegistered {
        /// The id that Envoy gave.
        id: String,
        /// The node that Envoy gave.
        node: Option<String>,
    },
    /// The proxy was deregistered and did not come back.
    #[error("proxy {:?} on node {:?} was deregistered", key.service.as_str(), key.node.as_str())]
    Deregistered {
        /// Who it was.
        key: ProxyKey,
    },
    /// Several proxies have this id.
    #[error(
        "service id {id:?} is registered on several nodes ({}): set node.metadata.node_name in Envoy's bootstrap",
        list(nodes)
    )]
    Ambiguous {
        /// The id that Envoy gave.
        id: String,
        /// Where it is registered.
        nodes: Vec<NodeName>,
    },
    /// The id is not that of a proxy.
    #[error(
        "service id {id:?} is not a proxy that is configured here, its kind is {kind:?}: a mesh gateway has kind \"mesh-gateway\""
    )]
    NotAProxy {
        /// The id that Envoy gave.
        id: String,
        /// The registered kind.
        kind: String,
    },
}

fn on_node(node: Option<&str>) -> String {
    node.map_or_else(String::new, |node| format!(" on node {node:?}"))
}

fn list(nodes: &[NodeName]) -> String {
    let names: Vec<_> = nodes.iter().map(NodeName::as_str).collect();
    names.join(", ")
}

/// Where a stream stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No such proxy yet; the stream ends at the given time.
    Unregistered(Instant),
    /// Registered, but incomplete for the given reason.
    NotReady(ProxyKey, String),
    /// Served. With a reason if the present state is incomplete, so that an earlier one stays in force.
    Running(ProxyKey, Option<String>),
    /// Deregistered; the stream ends at the given time.
    Deregistered(ProxyKey, Instant),
}

impl Phase {
    /// Who the stream belongs to, if that is known.
    pub const fn key(&self) -> Option<&ProxyKey> {
        match self {
            Self::Unregistered(_) => None,
            Self::NotReady(key, _) | Self::Running(key, _) | Self::Deregistered(key, _) => {
                Some(key)
            }
        }
    }

    /// When the stream ends if nothing happens.
    pub const fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Unregistered(at) | Self::Deregistered(_, at) => Some(*at),
            Self::NotReady(..) | Self::Running(..) => None,
        }
    }
}

/// What to do after an event.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Nothing.
    Wait,
    /// Give these resources to the session.
    Offer(Arc<ProxyResources>),
    /// End the stream.
    End(End),
}

/// The life of one stream.
#[derive(Clone, Debug)]
pub struct Life {
    node: EnvoyNode,
    patience: Patience,
    phase: Phase,
}

impl Life {
    /// A stream of the Envoy that describes itself as `node`.
    ///
    /// # Errors
    /// This Envoy cannot be served, whatever is registered.
    pub fn new(node: EnvoyNode, patience: Patience, now: Instant) -> Result<Self, End> {
        if node.id.is_empty() {
            return Err(End::NoId);
        }
        let name = node.node_name.as_deref().unwrap_or_default();
        for (key, text) in [
            ("node.id", node.id.as_str()),
            ("node.metadata.node_name", name),
        ] {
            let len = text.len();
            if len > ID_LIMIT {
                return Err(End::LongId { key, len });
            }
        }
        match node.version {
            Some(version) if version < MINIMUM_ENVOY => Err(End::TooOld(version)),
            _ => Ok(Self {
                node,
                patience,
                phase: Phase::Unregistered(now + patience.unknown),
            }),
        }
    }

    /// Where the stream stands.
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The state changed.
    pub fn on_current(&mut self, now: Instant, current: Current) -> Verdict {
        let id = || self.node.id.clone();
        match current {
            Current::Ambiguous(nodes) => Verdict::End(End::Ambiguous { id: id(), nodes }),
            Current::NotAProxy { kind } => Verdict::End(End::NotAProxy { id: id(), kind }),
            Current::Unknown => {
                if let Phase::NotReady(key, _) | Phase::Running(key, _) = &self.phase {
                    let until = now + self.patience.deregistered;
                    self.phase = Phase::Deregistered(key.clone(), until);
                }
                Verdict::Wait
            }
            Current::NotReady(key, why) => {
                let served = matches!(self.phase, Phase::Running(..) | Phase::Deregistered(..));
                self.phase = if served {
                    Phase::Running(key, Some(why))
                } else {
                    Phase::NotReady(key, why)
                };
                Verdict::Wait
            }
            Current::Ready(key, resources) => {
                self.phase = Phase::Running(key, None);
                Verdict::Offer(resources)
            }
        }
    }

    /// The end that is due at `now`, if there is one.
    pub fn due(&self, now: Instant) -> Option<End> {
        match &self.phase {
            Phase::Unregistered(at) if *at <= now => Some(End::NotRegistered {
                id: self.node.id.clone(),
                node: self.node.node_name.clone(),
            }),
            Phase::Deregistered(key, at) if *at <= now => {
                Some(End::Deregistered { key: key.clone() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn start() -> Instant {
        Instant::now()
    }

    fn key() -> ProxyKey {
        ProxyKey {
            node: "host-1".into(),
            service: "gw".into(),
        }
    }

    fn life(now: Instant) -> Life {
        let node = EnvoyNode {
            id: "gw".to_owned(),
            node_name: Some("host-1".to_owned()),
            ..Default::default()
        };
        Life::new(node, Patience::default(), now).unwrap()
    }

    fn ready() -> Current {
        Current::Ready(key(), Arc::default())
    }

    #[test]
    fn an_unknown_proxy_is_waited_for_ten_seconds() {
        let now = start();
        let mut life = life(now);
        let wait = life.on_current(now, Current::Unknown);
        assert!(matches!(wait, Verdict::Wait));
        assert_eq!(life.due(now + Duration::from_millis(9_999)), None);
        let end = life.due(now + Duration::from_secs(10)).unwrap();
        let text = end.to_string();
        assert!(
            text.contains("\"gw\"") && text.contains("\"host-1\""),
            "{text}"
        );
    }

    #[test]
    fn a_proxy_that_comes_back_within_the_grace_goes_on() {
        let now = start();
        let mut life = life(now);
        assert!(matches!(life.on_current(now, ready()), Verdict::Offer(_)));
        life.on_current(now, Current::Unknown);
        let deadline = life.phase().deadline().unwrap();
        assert_eq!(deadline, now + Duration::from_secs(5));
        // Events that change nothing do not prolong the grace.
        life.on_current(now + Duration::from_secs(3), Current::Unknown);
        assert_eq!(life.phase().deadline(), Some(deadline));
        assert!(matches!(life.on_current(now, ready()), Verdict::Offer(_)));
        assert_eq!(life.phase().deadline(), None);
        life.on_current(now, Current::Unknown);
        let end = life.due(deadline).unwrap();
        assert_eq!(end, End::Deregistered { key: key() });
    }

    #[test]
    fn an_incomplete_state_leaves_a_running_proxy_alone() {
        let now = start();
        let mut life = life(now);
        life.on_current(now, Current::NotReady(key(), "no roots".to_owned()));
        assert_eq!(life.phase().deadline(), None);
        assert!(matches!(life.phase(), Phase::NotReady(..)));
        life.on_current(now, ready());
        life.on_current(now, Current::NotReady(key(), "no servers".to_owned()));
        assert!(matches!(life.phase(), Phase::Running(_, Some(_))));
    }

    #[test]
    fn an_ambiguous_id_names_the_nodes() {
        let now = start();
        let nodes = vec!["a".into(), "b".into()];
        let verdict = life(now).on_current(now, Current::Ambiguous(nodes));
        let Verdict::End(end) = verdict else {
            panic!("{verdict:?}")
        };
        assert!(end.to_string().contains("(a, b)"), "{end}");
    }

    #[test]
    fn endless_names_are_refused() {
        let long = || "x".repeat(ID_LIMIT + 1);
        let id = EnvoyNode {
            id: long(),
            ..Default::default()
        };
        let name = EnvoyNode {
            id: "gw".to_owned(),
            node_name: Some(long()),
            ..Default::default()
        };
        for (node, key) in [(id, "node.id"), (name, "node.metadata.node_name")] {
            let end = Life::new(node, Patience::default(), start()).unwrap_err();
            assert!(end.to_string().starts_with(key), "{end}");
        }
    }

    #[test]
    fn old_envoys_are_told_the_minimum() {
        let version = EnvoyVersion {
            major: 1,
            minor: 18,
            patch: 0,
        };
        let node = EnvoyNode {
            id: "gw".to_owned(),
            version: Some(version),
            ..Default::default()
        };
        let end = Life::new(node, Patience::default(), start()).unwrap_err();
        assert!(end.to_string().contains("1.34.0"), "{end}");
    }
}
