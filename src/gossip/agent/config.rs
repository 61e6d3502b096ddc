//! What an agent is set up with.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::gossip::Member;
use crate::gossip::Tags;
use crate::gossip::serf;
use crate::gossip::swim;

use crate::model::NodeName;

/// What an agent is set up with.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the core is set up with: name, address, tags, timing, keys (`encrypt`). Its snapshot and filter are set by
    /// the agent.
    pub serf: serf::Config,
    /// Refuses what is not encrypted, when there are keys (`encrypt_verify_incoming`).
    pub verify_incoming: bool,
    /// Encrypts what is sent, when there are keys (`encrypt_verify_outgoing`).
    pub verify_outgoing: bool,
    /// Compresses what is sent, where that makes it shorter.
    pub compress: bool,
    /// Remembers the keys over a restart (`serf/local.keyring`). If it exists, its keys count, not the configured ones.
    pub keyring_file: Option<PathBuf>,
    /// Remembers the members over a restart (`serf/local.snapshot`).
    pub snapshot_file: Option<PathBuf>,
}

impl Config {
    /// An agent of a pool in one datacenter that remembers and encrypts nothing, as Consul sets it up.
    pub fn new(name: NodeName, advertise: SocketAddr, tags: Tags) -> Self {
        Self {
            serf: serf::Config::new(swim::Config::new(name, advertise), tags),
            verify_incoming: true,
            verify_outgoing: true,
            compress: true,
            keyring_file: None,
            snapshot_file: None,
        }
    }
}

/// Decides who may be in a pool, beyond what gossip itself demands.
pub trait Admission: Send + Sync + 'static {
    /// Looks at one member that is said to be alive, or at all members of a pool that joins this one. It is called often
    /// and while the agent is locked: it must be quick, and must not call the agent.
    ///
    /// # Errors
    /// Why they may not be in the pool.
    fn admit(&self, members: &[Member]) -> Result<(), String>;
}

/// Admits everybody.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdmitAll;

impl Admission for AdmitAll {
    fn admit(&self, _: &[Member]) -> Result<(), String> {
        Ok(())
    }
}
