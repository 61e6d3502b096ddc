//! Whether a server of the old ACL system changes to the new one: a decision over all known servers.

use crate::gossip::server_tags::AclMode;
use crate::model::Datacenter;
use crate::router::{Router, Server};

/// The ACL mode of a datacenter as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenAcls {
    /// The mode.
    pub mode: AclMode,
    /// Whether there was any server to ask.
    pub found: bool,
}

/// The mode of several servers together. One with ACLs off decides; otherwise one whose mode is unknown, otherwise one
/// in legacy mode. Servers that left or are leaving do not count.
pub fn acl_mode<'a>(servers: impl IntoIterator<Item = &'a Server>) -> SeenAcls {
    let rank = |mode: AclMode| match mode {
        AclMode::Enabled => 0,
        AclMode::Legacy => 1,
        AclMode::Unknown => 2,
        AclMode::Disabled => 3,
    };
    let counted = servers.into_iter().filter(|server| server.counts());
    let worst = counted
        .map(|server| server.tags.acls)
        .max_by_key(|mode| rank(*mode));
    SeenAcls {
        mode: worst.unwrap_or(AclMode::Enabled),
        found: worst.is_some(),
    }
}

/// What the decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Upgrade {
    /// Whether this server leads.
    pub leads: bool,
    /// The own datacenter, over the server lookup.
    pub local: SeenAcls,
    /// What the leader advertises; unknown without a leader.
    pub leader: AclMode,
    /// The primary datacenter; `None` in the primary itself.
    pub primary: Option<SeenAcls>,
}

/// Whether to change to the new ACL system now. A secondary waits for its primary. The leader goes first, when all
/// servers are able to follow: its own tag still says legacy then, so the whole is exactly legacy. The others follow it.
pub fn upgrade_is_due(upgrade: &Upgrade) -> bool {
    let new = SeenAcls {
        mode: AclMode::Enabled,
        found: true,
    };
    let primary_is_new = upgrade.primary.is_none_or(|primary| primary == new);
    let local_is_ready = match upgrade.leads {
        true => upgrade.local.found && upgrade.local.mode == AclMode::Legacy,
        false => upgrade.leader == AclMode::Enabled,
    };
    primary_is_new && local_is_ready
}

impl Router {
    /// The ACL mode of a datacenter: at home over the server lookup, elsewhere over all servers that may come back.
    pub fn acls(&self, datacenter: &Datacenter) -> SeenAcls {
        match datacenter == self.local() {
            true => acl_mode(self.lookup()),
            false => acl_mode(self.servers(datacenter)),
        }
    }
}
