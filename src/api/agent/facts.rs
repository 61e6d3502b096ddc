//! What this server tells about itself.

use crate::api::Api;
use crate::api::error::Error;
use crate::consensus::{PeerStatus, Role};
use crate::model::catalog::StringMap;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Ports of this server; 0 for those that are off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ports {
    /// HTTP.
    pub http: u16,
    /// HTTP over TLS.
    pub https: u16,
    /// gRPC: xDS.
    pub grpc: u16,
    /// gRPC over TLS.
    pub grpc_tls: u16,
    /// RPC between servers.
    pub server: u16,
    /// LAN gossip.
    pub serf_lan: u16,
    /// WAN gossip.
    pub serf_wan: u16,
}

/// What does not change while the server runs.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The API level: the version of Consul that clients may take this server for, such as `1.8.7`.
    pub api_level: String,
    /// The own version.
    pub version: String,
    /// The source revision, or empty.
    pub revision: String,
    /// Ports.
    pub ports: Ports,
    /// This server's gossip tags.
    pub tags: StringMap,
    /// Further settings to show under `DebugConfig`, without secrets.
    pub settings: Map<String, Value>,
}

/// A member of a pool, in the shape clients know.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// The node's name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its gossip port.
    pub port: u16,
    /// Its tags.
    pub tags: StringMap,
    /// 1 is alive, 2 leaving, 3 left, 4 failed.
    pub status: u8,
    /// Lowest, highest and current version of memberlist's protocol.
    pub protocol: [u8; 3],
    /// Lowest, highest and current version of serf's protocol.
    pub delegate: [u8; 3],
}

/// Envoy versions that the control plane is made for.
const ENVOY: [&str; 1] = ["1.40.0"];

impl Api {
    /// This server as the member of a pool in which it does not gossip.
    pub(super) fn alone(&self, wan: bool) -> Result<Member, Error> {
        let agent = self.agent()?;
        let identity = agent.local.identity();
        let mut member = Member {
            name: identity.node.to_string(),
            address: identity.address.clone(),
            port: agent.facts.ports.serf_lan,
            tags: agent.facts.tags.clone(),
            status: 1,
            protocol: [1, 5, 2],
            delegate: [2, 5, 4],
        };
        if wan {
            member.name = format!("{}.{}", member.name, self.settings().datacenter);
            member.port = agent.facts.ports.serf_wan;
            member.tags.remove("wan_join_port");
        }
        Ok(member)
    }

    /// The `Config` part of what the agent tells about itself.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_config(&self) -> Result<Value, Error> {
        let agent = self.agent()?;
        let identity = agent.local.identity();
        Ok(json!({
            "Datacenter": identity.datacenter,
            "NodeName": identity.node,
            "NodeID": identity.id,
            "Revision": agent.facts.revision,
            "Server": true,
            "Version": agent.facts.api_level,
        }))
    }

    /// The `DebugConfig` part: the settings that tools read, and whatever else was given, in key order.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_debug_config(&self) -> Result<BTreeMap<String, Value>, Error> {
        let agent = self.agent()?;
        let (identity, facts) = (agent.local.identity(), &agent.facts);
        let given = facts.settings.iter();
        let mut out: BTreeMap<String, Value> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
        // As in Consul a port that is off is -1.
        let port = |port: u16| match port {
            0 => json!(-1),
            on => json!(on),
        };
        let ports = facts.ports;
        let own = [
            ("Datacenter", json!(identity.datacenter)),
            ("NodeName", json!(identity.node)),
            ("NodeID", json!(identity.id)),
            ("NodeMeta", json!(identity.meta)),
            ("TaggedAddresses", json!(identity.tagged_addresses)),
            ("AdvertiseAddrLAN", json!(identity.address)),
            ("ServerMode", json!(true)),
            ("Version", json!(facts.api_level)),
            ("Revision", json!(facts.revision)),
            ("CrosswayVersion", json!(facts.version)),
            ("HTTPPort", port(ports.http)),
            ("HTTPSPort", port(ports.https)),
            ("GRPCPort", port(ports.grpc)),
            ("GRPCTLSPort", port(ports.grpc_tls)),
            ("ServerPort", port(ports.server)),
            ("SerfPortLAN", port(ports.serf_lan)),
            ("SerfPortWAN", port(ports.serf_wan)),
        ];
        out.extend(own.map(|(key, value)| (key.to_owned(), value)));
        Ok(out)
    }

    /// Where and for whom xDS is served. A port that is off is -1.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_xds(&self) -> Result<Value, Error> {
        let ports = self.agent()?.facts.ports;
        let port = |port: u16| match port {
            0 => -1,
            on => i32::from(on),
        };
        Ok(json!({
            "SupportedProxies": {"envoy": ENVOY},
            "Ports": {"TLS": port(ports.grpc_tls), "Plaintext": port(ports.grpc)},
        }))
    }

    /// Metadata of this server's node.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_meta(&self) -> Result<StringMap, Error> {
        Ok(self.agent()?.local.identity().meta.clone())
    }

    /// Figures by group, all as text, as `consul info` shows them.
    ///
    /// # Errors
    /// There is no agent.
    pub fn agent_stats(&self) -> Result<BTreeMap<&'static str, StringMap>, Error> {
        let agent = self.agent()?;
        let checks = agent.local.checks();
        let ttls = checks.iter().filter(|check| check.is_ttl()).count();
        let alone = self.consensus().peers().len() <= 1;
        let leads = matches!(&*self.consensus().role().borrow(), Role::Leader { .. });
        let datacenters = self.datacenters().len();
        let mut stats = BTreeMap::from([
            (
                "agent",
                texts([
                    ("check_monitors", "0".to_owned()),
                    ("check_ttls", ttls.to_string()),
                    ("checks", checks.len().to_string()),
                    ("services", agent.local.services().len().to_string()),
                ]),
            ),
            (
                "build",
                texts([
                    ("prerelease", String::new()),
                    ("revision", agent.facts.revision.clone()),
                    ("version", agent.facts.api_level.clone()),
                ]),
            ),
            (
                "consul",
                texts([
                    ("acl", "disabled".to_owned()),
                    ("bootstrap", alone.to_string()),
                    ("known_datacenters", datacenters.to_string()),
                    ("leader", leads.to_string()),
                    ("leader_addr", self.leader()),
                    ("server", "true".to_owned()),
                ]),
            ),
            ("raft", self.raft_stats()),
            (
                "runtime",
                texts([
                    ("arch", std::env::consts::ARCH.to_owned()),
                    ("os", std::env::consts::OS.to_owned()),
                    ("version", format!("crossway {}", agent.facts.version)),
                ]),
            ),
        ]);
        let pools = [
            ("serf_lan", &agent.pools.lan),
            ("serf_wan", &agent.pools.wan),
        ];
        let pools = pools.into_iter();
        stats.extend(pools.filter_map(|(name, pool)| Some((name, pool.as_ref()?.stats()))));
        Ok(stats)
    }

    fn raft_stats(&self) -> StringMap {
        let raft = self.consensus().stats();
        let last_contact = match raft.last_contact {
            None => "never".to_owned(),
            Some(d) if d.is_zero() => "0".to_owned(),
            Some(d) => format!("{d:?}"),
        };
        let server = |server: &PeerStatus| {
            let suffrage = if server.voter { "Voter" } else { "Nonvoter" };
            let (id, address) = (&server.peer.id, &server.peer.address);
            format!("{{Suffrage:{suffrage} ID:{id} Address:{address}}}")
        };
        let servers: Vec<String> = raft.peers.iter().map(server).collect();
        texts([
            ("applied_index", raft.applied_index.to_string()),
            ("commit_index", raft.commit_index.to_string()),
            ("last_contact", last_contact),
            ("last_log_index", raft.last_log_index.to_string()),
            ("last_log_term", raft.last_log_term.to_string()),
            ("last_snapshot_index", raft.last_snapshot_index.to_string()),
            ("last_snapshot_term", raft.last_snapshot_term.to_string()),
            ("latest_configuration", format!("[{}]", servers.join(" "))),
            ("num_peers", raft.num_peers.to_string()),
            ("state", raft.state.to_owned()),
            ("term", raft.term.to_string()),
        ])
    }
}

fn texts<const N: usize>(pairs: [(&str, String); N]) -> StringMap {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
