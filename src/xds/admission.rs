//! How fast one address may open new streams: a bucket of tokens for each.
//!
//! Thousands of Envoys behind one address may come back at once after a restart; a client in a tight loop may not go on
//! like that.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// Above this many addresses, full buckets are forgotten.
const REMEMBERED: usize = 4096;

/// The limit for one address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Streams that may be opened at once.
    pub burst: u32,
    /// Streams per second after that; 0 turns the limit off.
    pub per_second: u32,
}

impl Default for Rate {
    fn default() -> Self {
        Self {
            burst: 10_000,
            per_second: 1_000,
        }
    }
}

/// The buckets of all addresses.
#[derive(Debug, Default)]
pub struct Admission {
    rate: Rate,
    buckets: HashMap<IpAddr, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Admission {
    /// Full buckets with this limit.
    pub fn new(rate: Rate) -> Self {
        Self {
            rate,
            buckets: HashMap::new(),
        }
    }

    /// Whether a new stream from `address` may be opened now.
    pub fn admit(&mut self, address: IpAddr, now: Instant) -> bool {
        if self.rate.per_second == 0 {
            return true;
        }
        let Rate { burst, per_second } = self.rate;
        let (burst, per_second) = (f64::from(burst), f64::from(per_second));
        let filled = |bucket: &Bucket| {
            let seconds = now.saturating_duration_since(bucket.at).as_secs_f64();
            (bucket.tokens + seconds * per_second).min(burst)
        };
        if self.buckets.len() >= REMEMBERED {
            self.buckets.retain(|_, bucket| filled(bucket) < burst);
        }
        let bucket = self.buckets.entry(address).or_insert(Bucket {
            tokens: burst,
            at: now,
        });
        bucket.tokens = filled(bucket);
        bucket.at = now;
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn a_burst_is_admitted_and_then_the_rate() {
        let mut now = Instant::now();
        let mut admission = Admission::new(Rate {
            burst: 3,
            per_second: 2,
        });
        let [one, two] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let got: Vec<_> = (0..4).map(|_| admission.admit(one, now)).collect();
        assert_eq!(got, [true, true, true, false]);
        assert!(admission.admit(two, now), "others are not concerned");
        now += Duration::from_millis(500);
        assert!(admission.admit(one, now));
        assert!(!admission.admit(one, now));
    }
}
