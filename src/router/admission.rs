//! Who may be in the pool of this datacenter.

use crate::gossip::{Member, MemberStatus, ServerTags};
use crate::model::{Datacenter, NodeId, NodeName};
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
}

impl LanAdmission {
    /// Looks at members that want in, or that a join would bring together.
    ///
    /// # Errors
    /// The first member that may not be in the pool, and why.
    pub fn check(&self, members: &[Member]) -> Result<(), String> {
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

    fn place(&self, member: &Member) -> Result<(), String> {
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
