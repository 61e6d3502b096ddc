//! The state as one Envoy needs it: plain data, no resources yet.
//!
//! ```text
//!                    +--> View     what all mesh gateways of the datacenter share: remote datacenters, local servers,
//!   State, Place  ---|             services with their instances and subsets, trust domain
//!                    +--> Gateway  what one gateway's registration says: addresses to bind, options
//! ```
//!
//! A [`View`] is made once per change, from its predecessor: what did not change is the same `Arc`. Everything here is a
//! function of the state; there is no task, no subscription and no cache.
//!
//! Remote gateways come from the federation states alone; a datacenter without a usable gateway is left out, as is the
//! local one. One bad item (an address that is none, a duplicate name, a filter that cannot be read) never spoils the
//! rest: it is left out and a warning names it.

pub mod endpoint;
pub mod gateway;
pub mod identify;
mod options;
mod service;
pub mod sni;
pub mod view;

pub use endpoint::{Endpoint, Health, Host};
pub use gateway::{Bind, Gateway};
pub use identify::Identity;
pub use options::{DnsFamily, GatewayOptions, Keepalive, OutlierDetection};
pub use service::{MeshService, Target};
pub use view::{Place, Remote, Server, Servers, Topology, View};

/// Why a registered gateway cannot be served yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// The gateway is to expose the servers and none was ever seen.
    #[error(
        "no server of datacenter {0:?} is in the catalog yet (service \"consul\"), and this gateway is registered to \
         expose the servers"
    )]
    NoServer(String),
    /// Neither of the two parts of the configuration exists.
    #[error(
        "the Connect CA has no trust domain yet, and this gateway is not registered to expose the servers (service meta \
         consul-wan-federation = \"1\"): there is nothing to route"
    )]
    NoTrustDomain,
    /// The registration names no address on which Envoy could listen.
    #[error("the registration has no usable address to bind: {0}")]
    NoBind(String),
}

/// Whether this gateway can be served with what is known.
pub fn check_ready(view: &View, gateway: &Gateway) -> Result<(), NotReady> {
    if gateway.options.federation && view.servers.list.is_empty() {
        return Err(NotReady::NoServer(view.place.datacenter.to_string()));
    }
    if !gateway.options.federation && view.trust_domain.is_none() {
        return Err(NotReady::NoTrustDomain);
    }
    if gateway.binds.is_empty() {
        let why = gateway.warnings.join("; ");
        return Err(NotReady::NoBind(if why.is_empty() {
            "the default bind is switched off and no other is given".to_owned()
        } else {
            why
        }));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
