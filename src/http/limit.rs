//! How many connections one client may have.

use dashmap::DashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Counts connections by client address. Cloning it shares the counts.
#[derive(Clone)]
pub struct ClientLimit {
    counts: Arc<DashMap<IpAddr, usize>>,
    max: usize,
}

impl ClientLimit {
    /// Allows each client this many connections; 0 for any number.
    pub fn new(max: usize) -> Self {
        Self {
            counts: Arc::default(),
            max,
        }
    }

    /// Counts one more connection, unless the client has its share already.
    pub fn admit(&self, client: IpAddr) -> Option<Admission> {
        if self.max > 0 {
            let mut count = self.counts.entry(client).or_insert(0);
            if *count >= self.max {
                return None;
            }
            *count += 1;
        }
        Some(Admission {
            limit: self.clone(),
            client,
        })
    }
}

/// One counted connection; dropping it gives it back.
pub struct Admission {
    limit: ClientLimit,
    client: IpAddr,
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.limit.max > 0 {
            self.limit.counts.remove_if_mut(&self.client, |_, count| {
                *count = count.saturating_sub(1);
                *count == 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_its_share_and_gives_it_back() {
        let limit = ClientLimit::new(2);
        let (a, b): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let first = limit.admit(a).unwrap();
        let _second = limit.admit(a).unwrap();
        assert!(limit.admit(a).is_none());
        assert!(limit.admit(b).is_some());
        drop(first);
        assert!(limit.admit(a).is_some());
        assert_eq!(
            limit.counts.len(),
            1,
            "clients without connections are forgotten"
        );
    }
}
