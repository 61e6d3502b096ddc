//! How long servers wait for each other (pure). All of it grows with `raft_multiplier`.
//!
//! ```text
//!  0     150      300        550 .. 850        750   ms since the leader was heard, at multiplier 1
//!  |------|--------|-----------|-------|--------|
//!   heartbeat    lease      patience          a leader that no quorum answered stops calling itself one
//! ```

use std::time::{Duration, Instant};

/// The waits at one `raft_multiplier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    /// A leader says something to everybody about this often (openraft: in the next tick after it, 1.5 times as long).
    pub(crate) heartbeat: Duration,
    /// No vote is given for so long after the leader was heard, even when it is known to be gone.
    pub(crate) lease: Duration,
    /// A follower asks for an election when it did not hear the leader for so long, and a part of `spread`.
    pub(crate) patience: Duration,
    /// So that two followers rarely ask at the same time.
    pub(crate) spread: Duration,
    /// How long a leader without an answer from a quorum goes on.
    pub(crate) quorum: Duration,
}

impl Timing {
    pub(crate) fn new(raft_multiplier: u32) -> Self {
        let scaled = |ms: u64| Duration::from_millis(ms) * raft_multiplier;
        Self {
            heartbeat: scaled(150),
            lease: scaled(300),
            patience: scaled(550),
            spread: scaled(300),
            quorum: scaled(750),
        }
    }
}

/// What a follower knows of its leader, and of others who want to lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// When the leader last said something.
    pub(crate) leader: Option<Instant>,
    /// The term in which it leads.
    pub(crate) term: u64,
    /// When the connection from it broke; `None` again once it speaks.
    pub(crate) gone: Option<Instant>,
    /// When this server last voted for another.
    pub(crate) voted: Option<Instant>,
    /// Whether the leader was silent for so long that this server names it no more.
    pub(crate) lost: bool,
}

impl Heard {
    /// When to ask for an election. `asked` is the last attempt, or the start; `part` of the spread is random, 0 to 1.
    pub(crate) fn due(&self, timing: &Timing, asked: Instant, part: f64) -> Instant {
        let spread = timing.spread.mul_f64(part.clamp(0.0, 1.0));
        let after_ask = asked + timing.lease + spread;
        if let Some(gone) = self.gone
            && gone > asked
            && self.voted < Some(gone)
        {
            // Everybody lost its connection at about the same time: one of them asks before the others.
            let lease = self.leader.map_or(gone, |heard| heard + timing.lease);
            return lease.max(gone) + spread / 4;
        }
        match self.leader.max(self.voted) {
            Some(heard) => after_ask.max(heard + timing.patience + spread),
            None => after_ask.max(asked + timing.patience + spread),
        }
    }

    /// Whether this server would help another to become leader now, were it asked to vote.
    pub(crate) fn lets_go(&self, timing: &Timing, now: Instant) -> bool {
        let Some(heard) = self.leader else {
            return true;
        };
        let patience = match self.gone {
            Some(_) => timing.lease,
            None => timing.patience,
        };
        now.saturating_duration_since(heard) >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "an instant cannot be made otherwise"
    )]
    fn start() -> Instant {
        Instant::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_silent_leader_is_given_patience_and_a_gone_one_its_lease() {
        let (timing, start) = (Timing::new(1), start());
        let at = |after| start + ms(after);
        let mut heard = Heard {
            leader: Some(at(10_000)),
            ..Heard::default()
        };
        assert_eq!(heard.due(&timing, start, 0.0), at(10_550));
        assert_eq!(heard.due(&timing, start, 1.0), at(10_850));
        assert!(!heard.lets_go(&timing, at(10_549)));
        assert!(heard.lets_go(&timing, at(10_550)));
        heard.gone = Some(at(10_020));
        assert_eq!(heard.due(&timing, start, 0.0), at(10_300));
        assert_eq!(heard.due(&timing, start, 1.0), at(10_375));
        assert!(!heard.lets_go(&timing, at(10_299)));
        assert!(heard.lets_go(&timing, at(10_300)));
        // Somebody else got our vote since: it has its time.
        heard.voted = Some(at(10_310));
        assert_eq!(heard.due(&timing, start, 0.0), at(10_860));
    }

    #[test]
    fn who_was_refused_asks_again_but_not_at_once() {
        let (timing, start) = (Timing::new(2), start());
        let heard = Heard {
            leader: Some(start),
            gone: Some(start + ms(1)),
            ..Heard::default()
        };
        let asked = start + ms(5_000);
        assert_eq!(heard.due(&timing, asked, 0.5), asked + ms(900));
        let never = Heard::default();
        assert_eq!(never.due(&timing, start, 0.0), start + ms(1_100));
        assert!(never.lets_go(&timing, start));
    }
}
