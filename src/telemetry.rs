//! Log set-up and the metrics registry.
//!
//! Both are one per process, whatever the number of servers in it: setting them up again changes
//! the level and gives the same handles. Any module logs with `tracing` and counts with `metrics`;
//! names are Consul's with dots (`consul.rpc.query`), which Prometheus sees with underscores.

mod logs;
mod metrics;
mod quiet;
mod window;

pub use crate::telemetry::logs::LogError;
pub use crate::telemetry::logs::LogHandle;
pub use crate::telemetry::logs::LogOptions;
pub use crate::telemetry::logs::init as init_logs;
pub use crate::telemetry::metrics::Metrics;
pub use crate::telemetry::metrics::MetricsOptions;
pub use crate::telemetry::metrics::init as init_metrics;
pub use crate::telemetry::quiet::Quiet;
pub use crate::telemetry::window::Aggregate;
pub use crate::telemetry::window::Gauge;
pub use crate::telemetry::window::Snapshot;
