//! Counts the live connections of each address, so that none can take all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

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
}
