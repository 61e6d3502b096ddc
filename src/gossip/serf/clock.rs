//! Lamport clocks: they order what members say without a clock that all agree on.

use crate::gossip::wire::serf::LamportTime;

/// Times from here on are lies: a clock that ticks a million times per second gets here in 146,000 years. Believed once,
/// such a time would stop the clocks of the whole pool.
const LIMIT: LamportTime = 1 << 62;

/// Whether any clock may show such a time.
pub(super) fn is_believed(time: LamportTime) -> bool {
    time < LIMIT
}

/// A clock that moves when something happens, and past every time it hears of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(LamportTime);

impl Clock {
    /// A clock that goes on where it stopped at `last`; without a past, at 1, because peers take 0 for never.
    pub(super) fn after(last: LamportTime) -> Self {
        let mut clock = Self(1);
        clock.witness(last);
        clock
    }

    /// The time that the next thing happens at.
    pub(super) fn time(self) -> LamportTime {
        self.0
    }

    /// Moves past the time of something that happened elsewhere. Says whether the time can be believed.
    pub(super) fn witness(&mut self, time: LamportTime) -> bool {
        let believed = is_believed(time);
        if believed && time >= self.0 {
            self.0 = time + 1;
        }
        believed
    }

    /// Moves to the time of another clock, at which nothing has happened yet.
    pub(super) fn witness_clock(&mut self, time: LamportTime) {
        if let Some(last) = time.checked_sub(1) {
            self.witness(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_moves_past_what_it_hears_of() {
        let mut clock = Clock::after(0);
        assert_eq!(clock.time(), 1);
        assert!(clock.witness(1));
        assert_eq!(clock.time(), 2);
        assert!(clock.witness(9));
        assert!(clock.witness(3));
        assert_eq!(clock.time(), 10);
        clock.witness_clock(12);
        clock.witness_clock(0);
        assert_eq!(clock.time(), 12);
        assert_eq!(Clock::after(41).time(), 42);
    }

    #[test]
    fn times_that_would_stop_the_clock_are_not_believed() {
        let mut clock = Clock::after(0);
        assert!(!clock.witness(u64::MAX));
        assert!(!clock.witness(LIMIT));
        assert!(clock.witness(LIMIT - 1));
        assert_eq!(clock.time(), LIMIT);
    }
}
