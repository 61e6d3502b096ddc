//! How well we ourselves seem to work.

use std::time::Duration;

/// Our own health: 0 is good. Probes that fail while nobody else says why, and accusations that must be refuted, raise
/// it; probes that succeed lower it. With a higher score we wait longer before we blame others (Lifeguard).
#[derive(Debug)]
pub(super) struct Awareness {
    score: u32,
    max: u32,
}

impl Awareness {
    /// Scores below `max_multiplier`, so that nothing takes longer than that many times.
    pub(super) fn new(max_multiplier: u32) -> Self {
        Self {
            score: 0,
            max: max_multiplier.saturating_sub(1),
        }
    }

    pub(super) fn score(&self) -> u32 {
        self.score
    }

    pub(super) fn improve(&mut self) {
        self.score = self.score.saturating_sub(1);
    }

    pub(super) fn worsen(&mut self, by: u32) {
        self.score = self.score.saturating_add(by).min(self.max);
    }

    pub(super) fn scale(&self, time: Duration) -> Duration {
        time.saturating_mul(self.score.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_stays_within_its_bounds_and_stretches_time() {
        let mut health = Awareness::new(8);
        let second = Duration::from_secs(1);
        health.improve();
        assert_eq!((health.score(), health.scale(second)), (0, second));
        health.worsen(3);
        assert_eq!((health.score(), health.scale(second)), (3, 4 * second));
        health.worsen(100);
        assert_eq!((health.score(), health.scale(second)), (7, 8 * second));
        health.improve();
        assert_eq!(health.score(), 6);
    }
}
