//! Counts the live connections of each address, so that none can take all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Counts the live connections of each address.
#[derive(Debug, Clone, Default)]
pub struct Counter {
    live: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Counter {
    /// Counts one more connection of `address`, unless there are `limit` already (zero: no limit).
    pub fn enter(&self, address: IpAddr, limit: usize) -> Option<Place> {
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
pub struct Place {
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

/// Counts, and a limit that can change while connections live. Cloning it shares both.
#[derive(Debug, Clone, Default)]
pub struct ClientLimit {
    counter: Counter,
    max: Arc<AtomicUsize>,
}

impl ClientLimit {
    /// Allows each address this many connections; 0 for any number.
    pub fn new(max: usize) -> Self {
        let limit = Self::default();
        limit.set(max);
        limit
    }

    /// Changes the limit for connections that open from now on.
    pub fn set(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Counts one more connection, unless the address has its share already.
    pub fn admit(&self, client: IpAddr) -> Option<Place> {
        self.counter.enter(client, self.max.load(Ordering::Relaxed))
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
    fn a_new_limit_counts_the_connections_there_are() {
        let limit = ClientLimit::new(0);
        let client: IpAddr = "10.0.0.1".parse().unwrap();
        let places: Vec<_> = (0..3).map(|_| limit.admit(client).unwrap()).collect();
        limit.set(3);
        assert!(limit.admit(client).is_none());
        drop(places);
        assert!(limit.admit(client).is_some());
    }
}
