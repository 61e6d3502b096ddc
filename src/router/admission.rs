//! Who may be in the pool of this datacenter.

use crate::gossip::{Admission, Member, MemberStatus, ServerTags};
use crate::model::{Datacenter, NodeId, NodeName};
use ipnet::IpNet;
use std::collections::BTreeMap;

/// The rules of Consul's pool of one datacenter: its own datacenter and segment alone, and each node id once.
#[derive(Clone, Debug)]
pub struct LanAdmission {
    /// The own datacenter.
    pub datacenter: Datacenter,
    /// This node's UUID.
    pub id: NodeId,
    /// This node's name.
    pub node: NodeName,
    /// Networks that members must be in (`serf_lan_allowed_cidrs`); empty is all.
    pub allowed: Vec<IpNet>,
}

impl Admission for LanAdmission {
    fn admit(&self, members: &[Member]) -> Result<(), String> {
        let mut ids = BTreeMap::new();
        for member in members {
            self.place(member)?;
            let id = member.tags.get("id").unwrap_or_default();
            if id.is_empty() || member.status == MemberStatus::Left {
                continue;
            }
            let name = &member.name;
            if self.id.as_str().eq_ignore_ascii_case(id) && *name != self.node {
                return Err(format!(
                    "Member '{name}' has conflicting node ID '{id}' with this agent's ID; if '{name}' was copied from this \
                     server, remove its node-id file"
                ));
            }
            if let Some(other) = ids.insert(id.to_ascii_lowercase(), name) {
                return Err(format!(
                    "Member '{name}' has conflicting node ID '{id}' with member '{other}'; remove the node-id file of the copy"
                ));
            }
        }
        Ok(())
    }
}

impl LanAdmission {
    fn place(&self, member: &Member) -> Result<(), String> {
        let outside = |ip| !self.allowed.iter().any(|network| network.contains(&ip));
        if let Some(ip) = member
            .addr
            .ip()
            .filter(|ip| !self.allowed.is_empty() && outside(*ip))
        {
            return Err(format!(
                "Member '{}' at {ip} is in no network of serf_lan_allowed_cidrs",
                member.name
            ));
        }
        let (name, role) = (&member.name, member.tags.get("role"));
        let datacenter = match role {
            Some("node") => member.tags.get("dc").map(Datacenter::from),
            Some("consul") => {
                let tags = ServerTags::parse(&member.tags);
                let tags =
                    tags.map_err(|error| format!("Member '{name}' is no server: {error}"))?;
                Some(tags.datacenter)
            }
            _ => None, // A plain serf agent.
        };
        if let Some(other) = datacenter.filter(|dc| *dc != self.datacenter) {
            return Err(format!(
                "Member '{name}' part of wrong datacenter '{other}'"
            ));
        }
        match member.tags.get("segment") {
            None | Some("") => Ok(()),
            Some(segment) => Err(format!(
                "Member '{name}' part of wrong segment '{segment}' (expected '')"
            )),
        }
    }
}
