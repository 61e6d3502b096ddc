//! The gossip pools that this server is a member of: who is in them, who joins and leaves, their keys, and where members
//! are in the network.

use crate::api::Api;
use crate::api::agent::Member;
use crate::api::error::Error;
use crate::discovery::{self, Address, Environment, Source};
use crate::gossip::serf::KeyOperation;
use crate::gossip::wire::Key;
use crate::gossip::{self, Coordinate, Gossip, MemberStatus, Target};
use crate::model::query::{KeyringRequest, KeyringResponse, KeyringResponses};
use crate::model::{Datacenter, NodeName, QueryMeta, multierror};
use crate::router::Servers;
use serde::Serialize;

/// Members that may relay the answers of others, besides the direct way: serf's limit.
const MAX_RELAY: u8 = 5;

/// The pools of this server.
#[derive(Debug, Clone, Default)]
pub struct Pools {
    /// The members of this datacenter; `None` while this server does not gossip.
    pub lan: Option<Gossip>,
    /// The servers of all datacenters; `None` when this server does not gossip with them.
    pub wan: Option<Gossip>,
    /// The servers among the members, and what all of them can do.
    pub servers: Option<Servers>,
    /// Whether the servers of all datacenters find each other through mesh gateways. Nobody can be joined by address then.
    pub through_gateways: bool,
}

/// Where a node is, in Consul's form.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Place {
    /// Its name, without the datacenter.
    pub node: NodeName,
    /// Always empty: there are no segments.
    pub segment: String,
    /// Where it is.
    pub coord: Coordinate,
}

/// Where the servers of a datacenter are, in Consul's form.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Area {
    /// The datacenter.
    pub datacenter: Datacenter,
    /// The pool in which they are: `wan`.
    #[serde(rename = "AreaID")]
    pub area: &'static str,
    /// Its servers.
    pub coordinates: Vec<Place>,
}

impl From<&gossip::Member> for Member {
    fn from(member: &gossip::Member) -> Self {
        let tags = member.tags.iter();
        Self {
            name: member.name.to_string(),
            address: member
                .addr
                .ip()
                .map(|ip| ip.to_string())
                .unwrap_or_default(),
            port: member.port,
            tags: tags.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            status: member.status.into(),
            protocol: [
                member.protocol_min,
                member.protocol_max,
                member.protocol_cur,
            ],
            delegate: [
                member.delegate_min,
                member.delegate_max,
                member.delegate_cur,
            ],
        }
    }
}

fn no_gossip() -> Error {
    Error::refused("This server does not gossip in this pool")
}

impl Api {
    fn pool(&self, wan: bool) -> Result<Option<&Gossip>, Error> {
        let pools = &self.agent()?.pools;
        Ok(if wan { &pools.wan } else { &pools.lan }.as_ref())
    }

    /// The members of the LAN or the WAN, those that failed or left not long ago among them.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_members(&self, wan: bool) -> Result<Vec<Member>, Error> {
        match self.pool(wan)? {
            Some(pool) => Ok(pool.members().iter().map(Member::from).collect()),
            None => self.alone(wan).map(|member| vec![member]),
        }
    }

    /// This server's own member of the LAN.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_member(&self) -> Result<Member, Error> {
        let Some(pool) = self.pool(false)? else {
            return self.alone(false);
        };
        let members = pool.members();
        let own = members.iter().find(|member| member.name == *pool.name());
        own.map_or_else(|| self.alone(false), |member| Ok(member.into()))
    }

    /// Joins the pool of the member at an address, or of all members behind a name.
    ///
    /// # Errors
    /// The pool cannot be joined, what is wrong with the address, or why no member answered.
    pub async fn agent_join(&self, address: &str, wan: bool) -> Result<(), Error> {
        let agent = self.agent()?;
        if wan && agent.pools.through_gateways {
            let text = "WAN join is disabled when wan federation via mesh gateways is enabled";
            return Err(Error::refused(text));
        }
        let pool = self.pool(wan)?.ok_or_else(no_gossip)?;
        let parsed: Address = address
            .parse()
            .map_err(|error| failed_to_join(address, error))?;
        let ports = agent.facts.ports;
        let port = if wan { ports.serf_wan } else { ports.serf_lan };
        let sources = [Source::from(parsed)];
        let resolution = discovery::resolve(&sources, port, &Environment::system()).await;
        let targets: Vec<Target> = resolution.found.into_iter().map(target).collect();
        if targets.is_empty() {
            let problems = resolution.problems.into_iter();
            let problems: Vec<_> = problems
                .map(|problem| format!("Failed to resolve {address}: {}", problem.reason))
                .collect();
            return Err(Error::Refused(multierror(&problems).unwrap_or_default()));
        }
        let joined = pool.join(&targets).await;
        joined.map(drop).map_err(|error| {
            let failures = error.failures.iter();
            let problems: Vec<_> = failures
                .map(|failure| format!("Failed to join {}: {}", failure.target, failure.reason))
                .collect();
            Error::Refused(multierror(&problems).unwrap_or_default())
        })
    }

    /// Makes a member leave that failed and will not come back, in every pool where it is; with `prune`, all forget it at
    /// once. In the WAN a name counts as it is if a member has it, else with this datacenter behind it (case C027).
    ///
    /// # Errors
    /// Nobody has the name, or it is this server's.
    pub async fn agent_force_leave(
        &self,
        node: &str,
        prune: bool,
        wan_only: bool,
    ) -> Result<(), Error> {
        let here = &self.settings().datacenter;
        let full = NodeName::from(format!("{node}.{here}"));
        let node = NodeName::from(node);
        let known = |pool: &Gossip, name: &NodeName| pool.members().iter().any(|m| m.name == *name);
        let mut found = Vec::new();
        if let Some(lan) = self.pool(false)?.filter(|_| !wan_only)
            && known(lan, &node)
        {
            found.push((lan, &node));
        }
        if let Some(wan) = self.pool(true)? {
            let names = [&node, &full].into_iter();
            found.extend(
                names
                    .filter(|name| known(wan, name))
                    .take(1)
                    .map(|name| (wan, name)),
            );
        }
        if found.is_empty() {
            let text = format!("agent: No node found with name '{node}'");
            return Err(Error::Refused(text));
        }
        for (pool, name) in found {
            let left = pool.force_leave(name, prune).await;
            left.map_err(|error| Error::Refused(error.to_string()))?;
        }
        Ok(())
    }

    /// Lists or changes the gossip keys of the members of this datacenter, and of the pool of all datacenters unless only
    /// the own one is meant. What members refuse is in the answer.
    ///
    /// # Errors
    /// No path to the datacenter, an unknown operation, or a key that is none.
    pub async fn keyring(&self, request: &KeyringRequest) -> Result<KeyringResponses, Error> {
        self.reach_datacenter(&request.datacenter)?;
        if request.local_only && request.operation != "list" {
            let text = "argument error: LocalOnly can only be used for List operations";
            return Err(Error::refused(text));
        }
        if request.relay_factor > MAX_RELAY {
            return Err(Error::Refused(relay_factor_problem(request.relay_factor)));
        }
        let pools = &self.agent()?.pools;
        let lan = pools.lan.as_ref().ok_or_else(no_gossip)?;
        let wan = pools.wan.as_ref();
        let wan = wan.filter(|_| !request.local_only && !request.forwarded);
        let mut responses = Vec::new();
        for (pool, is_wan) in wan
            .map(|pool| (pool, true))
            .into_iter()
            .chain([(lan, false)])
        {
            let done = pool
                .keyring(operation(request)?, request.relay_factor)
                .await;
            responses.push(self.response(is_wan, done));
        }
        let mut all = KeyringResponses {
            responses,
            ..KeyringResponses::default()
        };
        all.set_meta(QueryMeta {
            known_leader: true,
            ..QueryMeta::default()
        });
        Ok(all)
    }

    fn response(
        &self,
        wan: bool,
        done: Result<gossip::serf::KeyReport, gossip::agent::Error>,
    ) -> KeyringResponse {
        let place = KeyringResponse {
            wan,
            datacenter: self.settings().datacenter.clone(),
            ..KeyringResponse::default()
        };
        match done {
            Ok(report) => KeyringResponse {
                error: report.failure().unwrap_or_default(),
                messages: report.messages,
                keys: report.keys,
                primary_keys: report.primary_keys,
                num_nodes: report.num_nodes,
                ..place
            },
            Err(error) => KeyringResponse {
                error: error.to_string(),
                ..place
            },
        }
    }

    /// Where the living members of this datacenter are, as far as this server knows, sorted by name.
    ///
    /// # Errors
    /// There is no agent.
    pub fn places(&self) -> Result<Vec<Place>, Error> {
        let members = self.pool(false)?.map(living).unwrap_or_default();
        Ok(members
            .into_iter()
            .map(|(node, coord)| place(node, coord))
            .collect())
    }

    /// Where the living servers of all datacenters are, as far as this server knows, by datacenter.
    ///
    /// # Errors
    /// There is no agent.
    pub fn areas(&self) -> Result<Vec<Area>, Error> {
        let mut areas: Vec<Area> = Vec::new();
        for (name, coord) in self.pool(true)?.map(living).unwrap_or_default() {
            let Some((node, datacenter)) = name.as_str().rsplit_once('.') else {
                continue; // No server has such a name.
            };
            let found = place(NodeName::from(node), coord);
            let mut known = areas.iter_mut();
            match known.find(|area| area.datacenter.as_str() == datacenter) {
                Some(area) => area.coordinates.push(found),
                None => areas.push(Area {
                    datacenter: Datacenter::from(datacenter),
                    area: "wan",
                    coordinates: vec![found],
                }),
            }
        }
        Ok(areas)
    }
}

/// What is wrong with a relay factor, in Consul's words.
pub fn relay_factor_problem(factor: impl std::fmt::Display) -> String {
    format!("Invalid relay factor: {factor}, must be in range: [0, {MAX_RELAY}]")
}

fn place(node: NodeName, coord: Coordinate) -> Place {
    Place {
        node,
        segment: String::new(),
        coord,
    }
}

fn living(pool: &Gossip) -> Vec<(NodeName, Coordinate)> {
    let members = pool.members();
    let alive = members.iter().filter(|m| m.status == MemberStatus::Alive);
    alive
        .filter_map(|m| Some((m.name.clone(), pool.coordinate_of(&m.name)?)))
        .collect()
}

fn target(found: discovery::Found) -> Target {
    Target {
        name: found.node.unwrap_or_default(),
        address: found.address,
    }
}

fn failed_to_join(address: &str, error: impl std::fmt::Display) -> Error {
    let problem = format!("Failed to join {address}: {error}");
    Error::Refused(multierror(&[problem]).unwrap_or_default())
}

fn operation(request: &KeyringRequest) -> Result<KeyOperation, Error> {
    let key = || {
        let key = Key::from_base64(&request.key);
        key.map_err(|error| Error::Refused(error.to_string()))
    };
    match request.operation.as_str() {
        "list" => Ok(KeyOperation::List),
        "install" => Ok(KeyOperation::Install(key()?)),
        "use" => Ok(KeyOperation::Use(key()?)),
        "remove" => Ok(KeyOperation::Remove(key()?)),
        other => Err(Error::Refused(format!(
            "unknown operation {other:?}: use list, install, use or remove"
        ))),
    }
}
