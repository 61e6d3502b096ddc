//! Who leads and who takes part.

use crate::api::Api;
use crate::api::error::Error;
use crate::model::Datacenter;

impl Api {
    /// RPC address of the leader; empty while there is none.
    pub fn leader(&self) -> String {
        let leader = self.consensus().leader();
        leader.map_or_else(String::new, |peer| peer.address)
    }

    /// Checks that a request is for this datacenter, without waiting for a leader.
    ///
    /// # Errors
    /// No path to the datacenter.
    pub fn reach_datacenter(&self, datacenter: &Datacenter) -> Result<(), Error> {
        let here = self.settings().datacenter.as_str();
        match datacenter.is_empty() || datacenter.as_str().eq_ignore_ascii_case(here) {
            true => Ok(()),
            false => Err(Error::NoPath(datacenter.clone())),
        }
    }

    /// RPC addresses of the servers in the Raft configuration.
    pub fn peers(&self) -> Vec<String> {
        let peers = self.consensus().peers().into_iter();
        peers.map(|status| status.peer.address).collect()
    }
}
