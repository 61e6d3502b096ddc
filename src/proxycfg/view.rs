//! What all mesh gateways of a datacenter share.

use crate::model::catalog::CONSUL_SERVICE;
use crate::model::ids::Datacenter;
use crate::model::{ConfigKind, FederationState};
use crate::proxycfg::endpoint::{Endpoint, Health, node_is_dead};
use crate::proxycfg::service::MeshService;
use crate::proxycfg::sni;
use crate::store::State;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where this server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The own datacenter, lower case.
    pub datacenter: Arc<str>,
    /// The DNS domain, lower case, without a trailing dot.
    pub domain: Arc<str>,
}

impl Place {
    /// From configuration: the datacenter and the domain as written there.
    pub fn new(datacenter: &Datacenter, domain: &str) -> Self {
        Self {
            datacenter: Arc::from(datacenter.as_str().to_ascii_lowercase()),
            domain: Arc::from(domain.trim_end_matches('.').to_ascii_lowercase()),
        }
    }
}

/// Another datacenter with at least one usable gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// All its gateways, at their WAN addresses.
    pub gateways: Vec<Endpoint>,
    /// Those that lead to its servers: the ones marked so, or all if none is.
    pub to_servers: Vec<Endpoint>,
}

/// A local server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its node's name, lower case.
    pub name: Arc<str>,
    /// Its RPC address on the LAN.
    pub endpoint: Endpoint,
}

/// The local servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Servers {
    /// Each node once, by name.
    pub list: Vec<Server>,
    /// All instances; those whose node is known to be dead are unhealthy.
    pub pool: Vec<Endpoint>,
    /// The catalog lists none any more: these are the last ones it did.
    pub outdated: bool,
    /// What was left out, and why.
    pub warnings: Vec<String>,
}

/// All names of which listeners are made: gateways with equal addresses and the same topology have equal listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Where this server is.
    pub place: Place,
    /// The trust domain, if it is known.
    pub trust_domain: Option<Arc<str>>,
    /// Other datacenters with usable gateways, by name.
    pub remotes: Vec<Arc<str>>,
    /// Local servers, by name.
    pub servers: Vec<Arc<str>>,
}

/// Parts by lower-case name, shared between views.
pub type Named<T> = OrdMap<Arc<str>, Arc<T>>;

/// What all gateways of the datacenter share, as a value whose parts are shared with its predecessor.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Where this server is.
    pub place: Place,
    /// The trust domain; until it is known, nothing that would be named after it exists (C091).
    pub trust_domain: Option<Arc<str>>,
    /// Other datacenters with usable gateways.
    pub remotes: Named<Remote>,
    /// The local servers.
    pub servers: Arc<Servers>,
    /// Local services of the mesh.
    pub services: Named<MeshService>,
    /// The names of all that.
    pub topology: Arc<Topology>,
    remote_warnings: Arc<Vec<String>>,
}

impl View {
    /// The view of a state. `last` is the view before it, if any, of which only the servers are used: when the catalog
    /// lists no server any more, the last known ones stay.
    pub fn build(place: &Place, state: &State, last: Option<&Self>) -> Self {
        let mut services = OrdMap::new();
        for key in state.connect_names() {
            if let Some(service) = MeshService::of(state, key.as_str()) {
                services.insert(Arc::from(key.as_str()), Arc::new(service));
            }
        }
        let (remotes, remote_warnings) = remotes(place, state, None);
        let servers = servers(place, state, last.map(|last| &last.servers));
        Self::assemble(
            place.clone(),
            state,
            (remotes, remote_warnings),
            (servers, services),
            None,
        )
    }

    /// As [`View::build`], at the cost of what changed since `older`, the state that this view shows. Both states must
    /// come from the same log.
    pub fn update(&self, older: &State, state: &State) -> Self {
        let (remotes, warnings) = if older.federation_index() == state.federation_index() {
            (self.remotes.clone(), self.remote_warnings.clone())
        } else {
            remotes(&self.place, state, Some(self))
        };
        let servers = servers(&self.place, state, Some(&self.servers));
        let mut services = self.services.clone();
        for name in touched(older, state) {
            match MeshService::of(state, &name) {
                None => {
                    services.remove(name.as_str());
                }
                Some(new) => {
                    let same = services.get(name.as_str()).is_some_and(|old| **old == new);
                    if !same {
                        services.insert(Arc::from(name), Arc::new(new));
                    }
                }
            }
        }
        Self::assemble(
            self.place.clone(),
            state,
            (remotes, warnings),
            (servers, services),
            Some(self),
        )
    }

    fn assemble(
        place: Place,
        state: &State,
        (remotes, remote_warnings): Remotes,
        (servers, services): (Arc<Servers>, Named<MeshService>),
        last: Option<&Self>,
    ) -> Self {
        let trust_domain = state.trust_domain().map(Arc::from);
        let topology = Topology {
            place: place.clone(),
            trust_domain: trust_domain.clone(),
            remotes: remotes.keys().cloned().collect(),
            servers: servers.list.iter().map(|s| s.name.clone()).collect(),
        };
        let kept = last.map(|last| &last.topology).filter(|t| ***t == topology);
        Self {
            place,
            trust_domain,
            remotes,
            servers,
            services,
            topology: kept.cloned().unwrap_or_else(|| Arc::new(topology)),
            remote_warnings,
        }
    }

    /// Whether both show the same, at little cost where they share their parts.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.topology, &other.topology)
            && self.servers == other.servers
            && self.remotes.diff(&other.remotes).next().is_none()
            && self.services.diff(&other.services).next().is_none()
            && self.remote_warnings == other.remote_warnings
    }

    /// What was left out of this view and why, in a fixed order.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        let services = self.services.values().flat_map(|s| &s.warnings);
        let own = self.remote_warnings.iter().chain(&self.servers.warnings);
        own.chain(services)
    }

    /// The warnings that `older` did not have; costs what changed.
    pub fn new_warnings(&self, older: &Self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut add = |new: &[String], old: &[String]| {
            found.extend(new.iter().filter(|w| !old.contains(w)).cloned());
        };
        add(&self.remote_warnings, &older.remote_warnings);
        add(&self.servers.warnings, &older.servers.warnings);
        for item in older.services.diff(&self.services) {
            match item {
                DiffItem::Add(_, new) => add(&new.warnings, &[]),
                DiffItem::Update { old, new } => add(&new.1.warnings, &old.1.warnings),
                DiffItem::Remove(..) => {}
            }
        }
        found
    }
}

/// Lower-case names of the services whose instances or resolver differ between two states.
fn touched(older: &State, state: &State) -> BTreeSet<String> {
    let instances = state.connect_changes(older);
    let mut names: BTreeSet<String> = instances.iter().map(|k| k.as_str().to_owned()).collect();
    // A service `v1.web` takes the name of subset `v1` of `web`, so `web` looks different with it.
    let shadowed: Vec<String> = names
        .iter()
        .filter_map(|name| name.split_once('.'))
        .map(|(_, service)| service.to_owned())
        .collect();
    names.extend(shadowed);
    let resolvers = state.config_changes(older, ConfigKind::ServiceResolver);
    names.extend(resolvers.iter().map(|name| name.to_lowercase()));
    names
}

/// Other datacenters, and what was left out of them.
type Remotes = (Named<Remote>, Arc<Vec<String>>);

fn remotes(place: &Place, state: &State, last: Option<&View>) -> Remotes {
    let mut remotes = OrdMap::new();
    let mut warnings = Vec::new();
    for record in state.federation_states() {
        let name = record.datacenter.as_str().to_ascii_lowercase();
        if name == *place.datacenter {
            continue;
        }
        if let Err(error) = name.parse::<Datacenter>() {
            warnings.push(format!("a federation state is left out: {error}"));
            continue;
        }
        let Some(remote) = remote(&record, &mut warnings) else {
            continue;
        };
        let known = last.and_then(|last| last.remotes.get(name.as_str()));
        let remote = match known.filter(|known| ***known == remote) {
            Some(known) => known.clone(),
            None => Arc::new(remote),
        };
        remotes.insert(Arc::from(name), remote);
    }
    (remotes, Arc::new(warnings))
}

/// `None` without a usable gateway.
fn remote(record: &FederationState, warnings: &mut Vec<String>) -> Option<Remote> {
    let mut gateways = Vec::new();
    let mut to_servers = Vec::new();
    for gateway in &record.mesh_gateways {
        match Endpoint::of(gateway, true, false) {
            Err(unusable) => {
                warnings.push(format!("gateway of {:?}: {unusable}", record.datacenter))
            }
            Ok(endpoint) => {
                if gateway
                    .service
                    .as_ref()
                    .is_some_and(|s| s.exposes_servers())
                {
                    to_servers.push(endpoint.clone());
                }
                gateways.push(endpoint);
            }
        }
    }
    if to_servers.is_empty() {
        to_servers.clone_from(&gateways);
    }
    (!gateways.is_empty()).then_some(Remote {
        gateways,
        to_servers,
    })
}

fn servers(place: &Place, state: &State, last: Option<&Arc<Servers>>) -> Arc<Servers> {
    let mut found = Servers::default();
    for instance in state.check_service_nodes(CONSUL_SERVICE) {
        let Some(node) = &instance.node else { continue };
        let here = node.datacenter.as_str();
        if !here.is_empty() && !here.eq_ignore_ascii_case(&place.datacenter) {
            found.warnings.push(format!(
                "server {:?} is left out: it is registered as one of datacenter {here:?}",
                node.node
            ));
            continue;
        }
        match Endpoint::of_server(&instance) {
            Err(unusable) => found.warnings.push(unusable.to_string()),
            Ok(endpoint) => {
                found.pool.push(Endpoint {
                    health: match node_is_dead(&instance) {
                        true => Health::Unhealthy,
                        false => Health::Unknown,
                    },
                    ..endpoint.clone()
                });
                found.add(node.node.as_str(), endpoint);
            }
        }
    }
    found.list.sort_by(|a, b| a.name.cmp(&b.name));
    match last {
        Some(last) if found.list.is_empty() && !last.list.is_empty() => {
            found.warnings.push(format!(
                "the catalog lists no usable server of datacenter {:?} any more: the last known ones stay in use",
                place.datacenter
            ));
            let kept = Servers {
                outdated: true,
                warnings: found.warnings,
                ..(**last).clone()
            };
            if kept == **last {
                last.clone()
            } else {
                Arc::new(kept)
            }
        }
        Some(last) if **last == found => last.clone(),
        _ => Arc::new(found),
    }
}

impl Servers {
    /// Adds a server under its node's name, unless that name cannot be asked for or is taken: two equal filter chains
    /// would make Envoy refuse the listener.
    fn add(&mut self, node: &str, endpoint: Endpoint) {
        let Some(name) = sni::usable(node) else {
            self.warnings.push(format!(
                "server {node:?} cannot be reached by its name: it has characters that a TLS server name must not have"
            ));
            return;
        };
        if let Some(first) = self.list.iter().find(|s| s.name == name) {
            self.warnings.push(format!(
                "node {node:?} has several servers: {}:{} is reached by that name, {}:{} only with all others",
                first.endpoint.host, first.endpoint.port, endpoint.host, endpoint.port
            ));
            return;
        }
        self.list.push(Server { name, endpoint });
    }
}
