//! What `/v1/agent/metrics` shows: values of the last whole interval of ten seconds. Pure: time is an interval's number.

use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;

/// Length of an interval in seconds, as in Consul.
pub(super) const INTERVAL_SECONDS: u64 = 10;

/// The metrics of an interval in the shape of Consul's `/v1/agent/metrics`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Snapshot {
    /// Begin of the interval (`2026-11-30 22:42:50 +0000 UTC`).
    pub timestamp: String,
    /// Latest values.
    pub gauges: Vec<Gauge>,
    /// Always empty, as in Consul.
    pub points: Vec<Gauge>,
    /// Sums of increments.
    pub counters: Vec<Aggregate>,
    /// Measurements; times are in milliseconds.
    pub samples: Vec<Aggregate>,
}

/// One gauge.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Gauge {
    /// Name with dots.
    pub name: String,
    /// Latest value.
    pub value: f64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// One counter or sample over an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Aggregate {
    /// Name with dots.
    pub name: String,
    /// Number of increments or measurements.
    pub count: u64,
    /// Sum per second.
    pub rate: f64,
    /// Sum.
    pub sum: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample.
    pub stddev: f64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Running sums of one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    interval: u64,
    count: u64,
    sum: f64,
    sum_of_squares: f64,
    min: f64,
    max: f64,
}

impl Sums {
    fn add(&mut self, value: f64) {
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = if self.count == 0 {
            value
        } else {
            self.max.max(value)
        };
        self.count += 1;
        self.sum += value;
        self.sum_of_squares += value * value;
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "counts within ten seconds stay far below 2^53"
    )]
    fn aggregate(&self, name: String, labels: BTreeMap<String, String>) -> Aggregate {
        let count = self.count as f64;
        let variance =
            (count * self.sum_of_squares - self.sum * self.sum) / (count * (count - 1.0));
        Aggregate {
            name,
            labels,
            count: self.count,
            rate: self.sum / INTERVAL_SECONDS as f64,
            sum: self.sum,
            min: self.min,
            max: self.max,
            mean: self.sum / count,
            stddev: if self.count > 1 {
                variance.max(0.0).sqrt()
            } else {
                0.0
            },
        }
    }
}

/// The current interval and the one before it.
#[derive(Debug, Default)]
pub(super) struct Window {
    current: Mutex<(Sums, Sums)>,
}

impl Window {
    /// Counts a value; true when it is the first of its interval.
    pub(super) fn add(&self, interval: u64, value: f64) -> bool {
        let mut guard = self.current.lock();
        let (current, before) = &mut *guard;
        let first = current.interval != interval;
        if first {
            *before = *current;
            *current = Sums {
                interval,
                ..Sums::default()
            };
        }
        current.add(value);
        first
    }

    /// The values of an interval, when there were any.
    pub(super) fn of(
        &self,
        interval: u64,
        name: &str,
        labels: &BTreeMap<String, String>,
    ) -> Option<Aggregate> {
        let (current, before) = *self.current.lock();
        let sums = [current, before]
            .into_iter()
            .find(|sums| sums.interval == interval && sums.count > 0)?;
        Some(sums.aggregate(name.to_owned(), labels.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_belong_to_their_interval() {
        let window = Window::default();
        let labels = BTreeMap::new();
        for (interval, value, first) in [
            (7, 2.0, true),
            (7, 4.0, false),
            (7, 4.0, false),
            (8, 1.0, true),
        ] {
            assert_eq!(window.add(interval, value), first);
        }
        let old = window.of(7, "a", &labels).unwrap();
        assert_eq!(
            (old.count, old.sum, old.min, old.max, old.rate),
            (3, 10.0, 2.0, 4.0, 1.0)
        );
        assert!((old.stddev - 1.154_700_538).abs() < 1e-6, "{old:?}");
        assert_eq!(window.of(8, "a", &labels).unwrap().count, 1);
        assert_eq!(window.of(6, "a", &labels), None);
        window.add(20, 1.0);
        assert_eq!(window.of(7, "a", &labels), None);
    }
}
