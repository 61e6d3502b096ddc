//! What bounds a client of the RPC port.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::rpc::{MAX_HELD_PER_CLIENT, MAX_HELD_PER_GATEWAY};

/// What bounds a client of the RPC port; can change while the server runs.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `limits.rpc_handshake_timeout`: for the first byte and for each TLS handshake; zero is no limit.
    pub handshake_timeout: Duration,
    /// `limits.rpc_max_conns_per_client`: connections from one address; zero is no limit.
    pub max_conns_per_client: usize,
    /// Connections from one local mesh gateway, through which all other datacenters come; zero is no limit.
    pub max_conns_per_gateway: usize,
    /// Bytes of requests under way of one address in sum; zero is no limit.
    pub max_held_per_client: usize,
    /// Bytes of requests under way of one local mesh gateway in sum; zero is no limit.
    pub max_held_per_gateway: usize,
    /// Addresses of the local mesh gateways.
    pub gateways: HashSet<IpAddr>,
}

impl Default for Limits {
    /// Consul's defaults, and room for a hundred busy clients behind each gateway.
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(5),
            max_conns_per_client: 100,
            max_conns_per_gateway: 10_000,
            max_held_per_client: MAX_HELD_PER_CLIENT,
            max_held_per_gateway: MAX_HELD_PER_GATEWAY,
            gateways: HashSet::new(),
        }
    }
}

impl Limits {
    /// The bytes of requests that `address` may have under way; zero is no limit.
    pub(super) fn held(&self, address: IpAddr) -> usize {
        if self.gateways.contains(&address) {
            self.max_held_per_gateway
        } else {
            self.max_held_per_client
        }
    }

    /// The number of connections `address` may have, and the name of that limit; zero is no limit.
    pub(super) fn of(&self, address: IpAddr) -> (usize, &'static str) {
        if self.gateways.contains(&address) {
            (self.max_conns_per_gateway, "the limit for local gateways")
        } else {
            (self.max_conns_per_client, "limits.rpc_max_conns_per_client")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_have_their_own_limit() {
        let gateway: IpAddr = "10.0.0.9".parse().unwrap();
        let limits = Limits {
            gateways: HashSet::from([gateway]),
            ..Limits::default()
        };
        assert_eq!(limits.of(gateway).0, 10_000);
        assert_eq!(limits.of("10.0.0.1".parse().unwrap()).0, 100);
    }
}
