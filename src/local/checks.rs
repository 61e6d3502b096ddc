//! Running checks: what to do and when is pure, doing it is [`run`].

pub mod deadlines;
pub mod http;
pub mod plan;
pub mod progress;
pub mod run;

pub use deadlines::Deadlines;
pub use plan::{HttpProbe, Plan, PlanError, Probe};
pub use progress::{Progress, Report};
pub use run::Runner;

use std::time::Duration;

/// Least time between two runs of a check; smaller intervals are raised to it, as Consul does.
pub const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How long a run may take when its definition does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Least time a service stays critical before it is removed, as in Consul.
pub const MIN_DEREGISTER_AFTER: Duration = Duration::from_secs(60);

/// How many bytes of output are kept when the definition does not say, as in Consul.
pub const DEFAULT_OUTPUT_MAX: usize = 4096;

/// Bounds of what definitions may ask for. Tests lower them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Least time between two runs.
    pub min_interval: Duration,
    /// Least time before a critical service is removed.
    pub min_deregister_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            min_interval: MIN_INTERVAL,
            min_deregister_after: MIN_DEREGISTER_AFTER,
        }
    }
}

/// A share of `of`, drawn evenly from zero up to it: spreads what would otherwise happen at the same moment.
pub fn stagger(of: Duration, rng: &mut impl rand::Rng) -> Duration {
    of.mul_f64(rng.random_range(0.0..1.0))
}
