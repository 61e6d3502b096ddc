//! How many connections one address may have.

use std::collections::HashMap;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// What bounds a client of the RPC port; can change while the server runs.
#[derive(Debug, Clone)]
pub struct Limits {
    /// `limits.rpc_handshake_timeout`: for the first byte and for each TLS handshake; zero is no limit.
    pub handshake_timeout: Duration,
    /// `limits.rpc_max_conns_per_client`: connections from one address; zero is no limit.
    pub max_conns_per_client: usize,
    /// Connections from one local mesh gateway, through which all other datacenters come; zero is no limit.
    pub max_conns_per_gateway: usize,
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
            gateways: HashSet::new(),
        }
    }
}

impl Limits {
    /// The number of connections `address` may have, and the name of that limit; zero is no limit.
    pub(super) fn of(&self, address: IpAddr) -> (usize, &'static str) {
        if self.gateways.contains(&address) {
            (self.max_conns_per_gateway, "the limit for local gateways")
        } else {
            (self.max_conns_per_client, "limits.rpc_max_conns_per_client")
        }
    }
}

/// Counts the live connections of each address.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter {
    live: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Counter {
    /// Counts one more connection of `address`, unless there are `limit` already (zero: no limit).
    pub(super) fn enter(&self, address: IpAddr, limit: usize) -> Option<Place> {
        let mut live = self.live.lock();
        let count = live.entry(address).or_default();
        if limit > 0 && *count >= limit {
            return None;
        }
        *count += 1;
        Some(Place {
            counter: self.clone(),
            address,
        })
    }
}

/// One counted connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct Place {
    counter: Counter,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut live = self.counter.live.lock();
        if let Some(count) = live.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                live.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_places_and_no_more() {
        let counter = Counter::default();
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let places: Vec<_> = (0..3).map(|_| counter.enter(a, 3).unwrap()).collect();
        assert!(counter.enter(a, 3).is_none());
        assert!(counter.enter(b, 3).is_some());
        assert!(counter.enter(a, 0).is_some(), "no limit");
        drop(places);
        assert!(counter.enter(a, 3).is_some());
        assert!(
            counter.live.lock().is_empty(),
            "nothing is remembered of who left"
        );
    }

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
