//! How long a suspect may defend itself.

use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use crate::model::NodeName;

/// The time that a suspect has to refute. It starts long and shrinks with each member that suspects it as well, so that
/// one member with a bad network of its own cannot kill others quickly (Lifeguard).
#[derive(Debug)]
pub(super) struct Suspicion {
    start: Instant,
    /// Confirmations with which only `min` is left.
    needed: u32,
    min: Duration,
    max: Duration,
    /// Who suspects it.
    accusers: BTreeSet<NodeName>,
    /// How many did so after the first.
    confirmed: u32,
    deadline: Instant,
}

impl Suspicion {
    pub(super) fn new(
        accuser: NodeName,
        needed: u32,
        (min, max): (Duration, Duration),
        now: Instant,
    ) -> Self {
        let time = if needed == 0 { min } else { max };
        Self {
            start: now,
            needed,
            min,
            max,
            accusers: BTreeSet::from([accuser]),
            confirmed: 0,
            deadline: now + time,
        }
    }

    /// When the suspect counts as dead.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How many members confirmed it.
    pub(super) fn confirmed(&self) -> u32 {
        self.confirmed
    }

    /// One more member suspects it. Says whether that is news that shall be passed on.
    pub(super) fn confirm(&mut self, accuser: &NodeName) -> bool {
        if self.confirmed >= self.needed || !self.accusers.insert(accuser.clone()) {
            return false;
        }
        self.confirmed += 1;
        self.deadline = self.start + total_time(self.confirmed, self.needed, self.min, self.max);
        true
    }

    /// Gives back time in which we did not run.
    pub(super) fn postpone(&mut self, by: Duration) {
        self.start += by;
        self.deadline += by;
    }
}

/// From `max` without confirmations to `min` with all that are `needed`, along a logarithm: the first ones count most.
fn total_time(confirmed: u32, needed: u32, min: Duration, max: Duration) -> Duration {
    let share = f64::from(confirmed).ln_1p() / f64::from(needed).ln_1p();
    let span = max.saturating_sub(min);
    let time = max.saturating_sub(span.mul_f64(share.clamp(0.0, 1.0)));
    let whole = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    whole.max(min)
}

/// The shortest time that a suspect has in a pool of `nodes`.
pub(super) fn min_time(mult: u32, nodes: usize, probe_interval: Duration) -> Duration {
    let scale = (nodes.max(1) as f64).log10().max(1.0);
    // Whole thousandths of the scale, as memberlist counts.
    let thousandths = (scale * 1000.0) as u32;
    (probe_interval / 1000)
        .saturating_mul(thousandths)
        .saturating_mul(mult)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn time_shrinks_along_a_logarithm() {
        let time = |confirmed| total_time(confirmed, 3, secs(2.0), secs(30.0));
        assert_eq!(time(0), secs(30.0));
        assert_eq!(time(1), secs(16.0));
        assert_eq!(time(2), secs(7.810));
        assert_eq!(time(3), secs(2.0));
        assert_eq!(time(4), secs(2.0));
    }

    #[test]
    fn the_shortest_time_grows_with_the_pool() {
        let time = |nodes| min_time(4, nodes, secs(1.0));
        assert_eq!(time(0), secs(4.0));
        assert_eq!(time(5), secs(4.0));
        assert_eq!(time(10), secs(4.0));
        assert_eq!(time(50), secs(6.792));
        assert_eq!(time(1000), secs(12.0));
    }

    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn each_accuser_counts_once_and_the_first_never() {
        let now = start();
        let mut suspicion = Suspicion::new("a".into(), 2, (secs(1.0), secs(6.0)), now);
        assert_eq!(suspicion.deadline(), now + secs(6.0));
        assert!(!suspicion.confirm(&"a".into()));
        assert!(suspicion.confirm(&"b".into()));
        assert_eq!(suspicion.deadline(), now + secs(2.845));
        assert!(!suspicion.confirm(&"b".into()));
        assert!(suspicion.confirm(&"c".into()));
        assert_eq!(suspicion.deadline(), now + secs(1.0));
        assert!(!suspicion.confirm(&"d".into()));
        assert_eq!(suspicion.confirmed(), 2);
    }

    #[test]
    fn with_nobody_to_confirm_the_shortest_time_counts() {
        let now = start();
        let suspicion = Suspicion::new("a".into(), 0, (secs(1.0), secs(6.0)), now);
        assert_eq!(suspicion.deadline(), now + secs(1.0));
    }
}
