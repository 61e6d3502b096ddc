//! How results become a status: thresholds. Pure.

use crate::model::CheckStatus;

/// What one run, or one report of a service about itself, came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The status.
    pub status: CheckStatus,
    /// What there is to say about it.
    pub output: String,
}

/// Successes and failures in a row, and how many of them count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    success_before_passing: u32,
    failures_before_critical: u32,
    successes: u32,
    failures: u32,
}

impl Progress {
    /// Counting starts at zero; a threshold of 0 counts as 1.
    pub fn new(success_before_passing: u32, failures_before_critical: u32) -> Self {
        Self {
            success_before_passing,
            failures_before_critical,
            ..Self::default()
        }
    }

    /// Counts a result. Returns whether it changes the check: as in Consul, neither status nor output move before the
    /// threshold is reached.
    pub fn counts(&mut self, status: CheckStatus) -> bool {
        match status {
            CheckStatus::Passing | CheckStatus::Warning => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                self.successes >= self.success_before_passing
            }
            CheckStatus::Critical | CheckStatus::Maintenance => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                self.failures >= self.failures_before_critical
            }
        }
    }
}

/// What a check says when nobody reported in time, as Consul words it.
pub fn expired_output(last: &str) -> String {
    const EXPIRED: &str = "TTL expired";
    // Expiring again must not nest the text.
    if last.is_empty() || last.starts_with(EXPIRED) {
        return EXPIRED.to_owned();
    }
    format!("{EXPIRED} (last output before timeout follows): {last}")
}

/// The end of `text` that fits into `max` bytes.
pub fn tail(text: &str, max: usize) -> &str {
    let mut from = text.len().saturating_sub(max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_only_in_a_row() {
        use CheckStatus::{Critical, Passing, Warning};
        let mut progress = Progress::new(2, 3);
        let seen: Vec<bool> = [
            Passing, Warning, Critical, Critical, Passing, Critical, Critical, Critical, Critical,
        ]
        .into_iter()
        .map(|status| progress.counts(status))
        .collect();
        assert_eq!(
            seen,
            [false, true, false, false, false, false, false, true, true]
        );
        assert!(Progress::default().counts(Critical));
    }

    #[test]
    fn output_is_cut_at_a_character() {
        assert_eq!(tail("abc", 2), "bc");
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("é", 9), "é");
        assert_eq!(expired_output(&expired_output("x")), "TTL expired");
    }
}
