//! When to try again. Pure.

use std::time::Duration;

/// How often and how many times joining is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Time between the end of an attempt and the next one.
    interval: Duration,
    /// Failed attempts after which there is no next one; `None`: there always is.
    attempts: Option<u32>,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next attempt, after this time.
    Wait(Duration),
    /// None.
    GiveUp,
}

impl Schedule {
    /// The schedule of `retry_interval` and `retry_max`. As in Consul, 0 is for ever and `retry_max` counts the attempts
    /// after the first one.
    pub fn retries(interval: Duration, retry_max: u32) -> Self {
        Self {
            interval,
            attempts: (retry_max > 0).then(|| retry_max.saturating_add(1)),
        }
    }

    /// One attempt: the schedule of `start_join`.
    pub fn once() -> Self {
        Self {
            interval: Duration::ZERO,
            attempts: Some(1),
        }
    }

    /// What follows when `failed` attempts have failed.
    pub fn after(&self, failed: u32) -> Next {
        match self.attempts {
            Some(attempts) if failed >= attempts => Next::GiveUp,
            _ => Next::Wait(self.interval),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_max_counts_attempts_after_the_first() {
        let interval = Duration::from_secs(30);
        let wait = Next::Wait(interval);
        let after = |max, failed| Schedule::retries(interval, max).after(failed);
        assert_eq!([after(0, 1), after(0, u32::MAX)], [wait, wait]);
        assert_eq!([after(1, 1), after(1, 2)], [wait, Next::GiveUp]);
        assert_eq!([after(2, 2), after(2, 3)], [wait, Next::GiveUp]);
        assert_eq!(after(u32::MAX, 5), wait);
        assert_eq!(Schedule::once().after(1), Next::GiveUp);
    }
}
