//! What all servers of a datacenter can do.

use crate::gossip::MemberStatus;
use crate::gossip::server_tags::BuildVersion;
use crate::model::Datacenter;
use crate::router::{Router, Server};
use std::sync::atomic::{AtomicBool, Ordering};

/// The feature of servers that keep federation states (tag `ft_fs`).
pub const FEDERATION_STATES: &str = "fs";

impl Router {
    /// The servers of a datacenter whose word counts. At home a failed server is out of the lookup; elsewhere it counts
    /// until it leaves or is reaped, because it may come back as it was.
    fn counted(&self, datacenter: &Datacenter) -> impl Iterator<Item = &Server> {
        let home = datacenter == self.local();
        let servers = self.servers(datacenter).into_iter();
        servers.filter(move |server| {
            server.counts() && !(home && server.status == MemberStatus::Failed)
        })
    }

    /// Whether every server of each of these datacenters advertises the feature, and each has a server at all.
    pub fn all_support(&self, feature: &str, datacenters: &[&Datacenter]) -> bool {
        self.all(datacenters, |server| server.tags.has_feature(feature))
    }

    /// Whether every server of each of these datacenters has at least this build, and each has a server at all.
    pub fn all_at_least(&self, build: BuildVersion, datacenters: &[&Datacenter]) -> bool {
        self.all(datacenters, |server| server.tags.build >= build)
    }

    fn all(&self, datacenters: &[&Datacenter], holds: impl Fn(&Server) -> bool) -> bool {
        datacenters.iter().all(|datacenter| {
            let mut servers = self.counted(datacenter).peekable();
            servers.peek().is_some() && servers.all(&holds)
        })
    }

    /// Who keeps the feature off: servers that count and do not advertise it.
    pub fn without(&self, feature: &str, datacenter: &Datacenter) -> Vec<&Server> {
        let servers = self.counted(datacenter);
        servers.filter(|s| !s.tags.has_feature(feature)).collect()
    }
}

/// A feature that stays on once it was: servers that do not know it cannot come back in the middle.
#[derive(Debug, Default)]
pub struct Gate {
    open: AtomicBool,
}

impl Gate {
    /// Whether the feature may be used. `proof` is something that only exists because it was used before, such as a
    /// stored federation state: after a restart nobody waits for gossip then (case C004).
    pub fn is_open(&self, proof: bool, supported: impl FnOnce() -> bool) -> bool {
        if self.open.load(Ordering::Acquire) {
            return true;
        }
        let open = proof || supported();
        if open {
            self.open.store(true, Ordering::Release);
        }
        open
    }
}
