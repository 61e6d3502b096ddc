//! One recorder for the process: Prometheus's registry, and the ten-second windows that Consul's JSON shows.

use crate::telemetry::window::Aggregate;
use crate::telemetry::window::Gauge as GaugeValue;
use crate::telemetry::window::INTERVAL_SECONDS;
use crate::telemetry::window::Snapshot;
use crate::telemetry::window::Window;
use arc_swap::ArcSwap;
use dashmap::DashMap;
use metrics::Counter;
use metrics::CounterFn;
use metrics::Gauge;
use metrics::Histogram;
use metrics::HistogramFn;
use metrics::Key;
use metrics::KeyName;
use metrics::Metadata;
use metrics::Recorder;
use metrics::SharedString;
use metrics::Unit;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_exporter_prometheus::PrometheusHandle;
use metrics_exporter_prometheus::PrometheusRecorder;
use metrics_exporter_prometheus::formatting::sanitize_metric_name;
use std::collections::BTreeMap;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

/// First part of every name in the code.
const PREFIX: &str = "consul";

/// Quantiles of measurements in Prometheus's form, as in Consul.
const QUANTILES: &[f64] = &[0.5, 0.9, 0.99];

/// Which metrics are kept, and under which names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Takes the place of `consul` at the beginning of names.
    pub prefix: String,
    /// Whether metrics that match no rule are kept.
    pub filter_default: bool,
    /// Prefixes to keep.
    pub allowed_prefixes: Vec<String>,
    /// Prefixes to drop.
    pub blocked_prefixes: Vec<String>,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            prefix: PREFIX.to_owned(),
            filter_default: true,
            allowed_prefixes: Vec::new(),
            blocked_prefixes: Vec::new(),
        }
    }
}

impl MetricsOptions {
    /// The longest matching rule decides, as in Consul.
    fn keeps(&self, name: &str) -> bool {
        let longest = |rules: &[String]| {
            let matching = rules.iter().filter(|rule| name.starts_with(rule.as_str()));
            matching.map(String::len).max()
        };
        match (
            longest(&self.allowed_prefixes),
            longest(&self.blocked_prefixes),
        ) {
            (None, None) => self.filter_default,
            (allowed, blocked) => allowed > blocked,
        }
    }

    fn renamed(&self, name: &str) -> Option<String> {
        let rest = name
            .strip_prefix(PREFIX)
            .filter(|rest| rest.starts_with('.'))?;
        (self.prefix != PREFIX).then(|| match self.prefix.as_str() {
            "" => rest.trim_start_matches('.').to_owned(),
            prefix => format!("{prefix}{rest}"),
        })
    }
}

/// Reads the process's metrics.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    options: Arc<ArcSwap<MetricsOptions>>,
    prometheus: PrometheusHandle,
    windows: Arc<Windows>,
}

static INSTALLED: OnceLock<Metrics> = OnceLock::new();

/// Installs the process's recorder, or gives the one that is there (with the options of the first call).
///
/// A recorder that something else installed before keeps receiving the process's metrics; the
/// handle then shows none.
pub fn init(options: &MetricsOptions) -> Metrics {
    let install = || {
        let (recorder, metrics) = recorder(options.clone());
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another metrics recorder is installed: /v1/agent/metrics stays empty");
        }
        metrics
    };
    INSTALLED.get_or_init(install).clone()
}

fn recorder(options: MetricsOptions) -> (Both, Metrics) {
    let builder = PrometheusBuilder::new();
    // Fails on an empty list of quantiles only.
    let builder = builder.set_quantiles(QUANTILES).unwrap_or_default();
    let prometheus = builder.build_recorder();
    let handle = prometheus.handle();
    let windows = Arc::new(Windows::default());
    let upkeep = Arc::new(Upkeep {
        handle: handle.clone(),
        done_in: AtomicU64::new(0),
    });
    let options = Arc::new(ArcSwap::from_pointee(options));
    let inner = Inner {
        options: Arc::clone(&options),
        prometheus: handle,
        windows: Arc::clone(&windows),
    };
    (
        Both {
            options,
            prometheus,
            windows,
            upkeep,
        },
        Metrics {
            inner: Arc::new(inner),
        },
    )
}

impl Metrics {
    /// Filters by the rules of `newer` from now on. The prefix stays: other names would begin at zero.
    pub fn set_filter(&self, newer: &MetricsOptions) {
        self.inner.options.rcu(|old| MetricsOptions {
            prefix: old.prefix.clone(),
            ..newer.clone()
        });
    }

    /// All metrics in Prometheus's text form.
    #[must_use]
    pub fn render_prometheus(&self) -> String {
        let text = self.inner.prometheus.render();
        let hidden = self.hidden();
        if hidden.is_empty() {
            return text;
        }
        let mut kept = String::with_capacity(text.len());
        let mut shows = true;
        for line in text.lines() {
            let begins = ["# HELP ", "# TYPE "]
                .iter()
                .find_map(|mark| line.strip_prefix(mark));
            if let Some(name) = begins.and_then(|rest| rest.split(' ').next()) {
                shows = !hidden.contains(name);
            }
            if shows {
                kept.push_str(line);
                kept.push('\n');
            }
        }
        kept
    }

    /// What was recorded before the filter dropped it, under the names of Prometheus's form.
    fn hidden(&self) -> HashSet<String> {
        let (options, windows) = (self.inner.options.load(), &self.inner.windows);
        let counters = windows.counters.iter().map(|row| row.key().clone());
        let gauges = windows.gauges.iter().map(|row| row.key().clone());
        let samples = windows.samples.iter().map(|row| row.key().clone());
        counters
            .chain(gauges)
            .chain(samples)
            .filter(|key| !options.keeps(key.name()))
            .map(|key| sanitize_metric_name(key.name()))
            .collect()
    }

    /// The last whole interval of ten seconds in Consul's form; gauges show their latest value.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_at(interval_now())
    }

    fn snapshot_at(&self, now: u64) -> Snapshot {
        let windows = &self.inner.windows;
        let shown = now.saturating_sub(1);
        let options = self.inner.options.load();
        let mut gauges: Vec<_> = windows
            .gauges
            .iter()
            .filter(|row| options.keeps(row.key().name()))
            .map(|row| gauge_value(row.key(), row.value()))
            .collect();
        gauges.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
        let of = |key: &Key, window: &Window| {
            let kept = options.keeps(key.name());
            kept.then(|| window.of(shown, key.name(), &labels(key)))
                .flatten()
        };
        Snapshot {
            timestamp: timestamp(shown),
            gauges,
            points: Vec::new(),
            counters: sorted(
                windows
                    .counters
                    .iter()
                    .filter_map(|row| of(row.key(), &row.value().window)),
            ),
            samples: sorted(
                windows
                    .samples
                    .iter()
                    .filter_map(|row| of(row.key(), row.value())),
            ),
        }
    }
}

fn gauge_value(key: &Key, cell: &AtomicU64) -> GaugeValue {
    GaugeValue {
        name: key.name().to_owned(),
        value: f64::from_bits(cell.load(Ordering::Acquire)),
        labels: labels(key),
    }
}

fn sorted(list: impl Iterator<Item = Aggregate>) -> Vec<Aggregate> {
    let mut list: Vec<_> = list.collect();
    list.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
    list
}

fn labels(key: &Key) -> BTreeMap<String, String> {
    let pair = |label: &metrics::Label| (label.key().to_owned(), label.value().to_owned());
    key.labels().map(pair).collect()
}

/// The interval that is running, counted from the Unix epoch.
fn interval_now() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "metrics are stamped where they are recorded"
    )]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs() / INTERVAL_SECONDS)
}

/// Go's default form of a time in UTC.
fn timestamp(interval: u64) -> String {
    let seconds = i64::try_from(interval.saturating_mul(INTERVAL_SECONDS)).unwrap_or(0);
    let Ok(time) = time::OffsetDateTime::from_unix_timestamp(seconds) else {
        return String::new();
    };
    format!(
        "{} {:02}:{:02}:{:02} +0000 UTC",
        time.date(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// Feeds Prometheus's registry and the windows.
struct Both {
    options: Arc<ArcSwap<MetricsOptions>>,
    prometheus: PrometheusRecorder,
    windows: Arc<Windows>,
    upkeep: Arc<Upkeep>,
}

#[derive(Default)]
struct Windows {
    counters: DashMap<Key, Arc<CounterCell>>,
    gauges: DashMap<Key, Arc<AtomicU64>>,
    samples: DashMap<Key, Arc<Window>>,
}

#[derive(Default)]
struct CounterCell {
    window: Window,
    /// Highest value given as a total.
    total: AtomicU64,
}

/// The cell of a key; an existing one is found without a write lock.
fn cell<T: Default>(map: &DashMap<Key, Arc<T>>, key: &Key) -> Arc<T> {
    if let Some(found) = map.get(key) {
        return Arc::clone(&found);
    }
    Arc::clone(&map.entry(key.clone()).or_default())
}

impl Both {
    /// The key under its configured name, unless the filter drops it.
    fn kept(&self, key: &Key) -> Option<Key> {
        let options = self.options.load();
        let renamed = options.renamed(key.name());
        let name = renamed.as_deref().unwrap_or(key.name());
        if !options.keeps(name) {
            return None;
        }
        Some(match renamed {
            Some(name) => Key::from_parts(name, key.labels().cloned().collect::<Vec<_>>()),
            None => key.clone(),
        })
    }
}

impl Recorder for Both {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_counter(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_gauge(name, unit, description);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.prometheus.describe_histogram(name, unit, description);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        let Some(key) = self.kept(key) else {
            return Counter::noop();
        };
        let prometheus = self.prometheus.register_counter(&key, metadata);
        let cell = cell(&self.windows.counters, &key);
        Counter::from_arc(Arc::new(CounterOfBoth { prometheus, cell }))
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        let Some(key) = self.kept(key) else {
            return Gauge::noop();
        };
        let prometheus = self.prometheus.register_gauge(&key, metadata);
        let own = Gauge::from_arc(cell(&self.windows.gauges, &key));
        Gauge::from_arc(Arc::new(GaugeOfBoth { prometheus, own }))
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        let Some(key) = self.kept(key) else {
            return Histogram::noop();
        };
        let prometheus = self.prometheus.register_histogram(&key, metadata);
        let window = cell(&self.windows.samples, &key);
        let upkeep = Arc::clone(&self.upkeep);
        Histogram::from_arc(Arc::new(HistogramOfBoth {
            prometheus,
            window,
            upkeep,
        }))
    }
}

struct CounterOfBoth {
    prometheus: Counter,
    cell: Arc<CounterCell>,
}

impl CounterFn for CounterOfBoth {
    #[expect(clippy::cast_precision_loss, reason = "increments stay far below 2^53")]
    fn increment(&self, value: u64) {
        self.prometheus.increment(value);
        self.cell.window.add(interval_now(), value as f64);
    }

    #[expect(clippy::cast_precision_loss, reason = "increments stay far below 2^53")]
    fn absolute(&self, value: u64) {
        self.prometheus.absolute(value);
        let before = self.cell.total.fetch_max(value, Ordering::Relaxed);
        self.cell
            .window
            .add(interval_now(), value.saturating_sub(before) as f64);
    }
}

struct GaugeOfBoth {
    prometheus: Gauge,
    own: Gauge,
}

impl metrics::GaugeFn for GaugeOfBoth {
    fn increment(&self, value: f64) {
        self.prometheus.increment(value);
        self.own.increment(value);
    }

    fn decrement(&self, value: f64) {
        self.prometheus.decrement(value);
        self.own.decrement(value);
    }

    fn set(&self, value: f64) {
        self.prometheus.set(value);
        self.own.set(value);
    }
}

struct HistogramOfBoth {
    prometheus: Histogram,
    window: Arc<Window>,
    upkeep: Arc<Upkeep>,
}

impl HistogramFn for HistogramOfBoth {
    fn record(&self, value: f64) {
        self.prometheus.record(value);
        let interval = interval_now();
        if self.window.add(interval, value) {
            self.upkeep.run_once_in(interval);
        }
    }
}

/// Prometheus's registry keeps every measurement until somebody reads or tidies it; this tidies once an interval.
struct Upkeep {
    handle: PrometheusHandle,
    done_in: AtomicU64,
}

impl Upkeep {
    fn run_once_in(&self, interval: u64) {
        if self.done_in.swap(interval, Ordering::Relaxed) == interval {
            return;
        }
        let handle = self.handle.clone();
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || handle.run_upkeep())),
            Err(_) => handle.run_upkeep(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: MetricsOptions, name: &'static str, expected: &[&str]) {
        let (recorder, metrics) = recorder(options);
        metrics::with_local_recorder(&recorder, || metrics::gauge!(name).set(1.0));
        let names: Vec<_> = metrics
            .snapshot()
            .gauges
            .into_iter()
            .map(|gauge| gauge.name)
            .collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn both_forms_show_what_was_recorded() {
        let (recorder, metrics) = recorder(MetricsOptions::default());
        let before = interval_now();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("consul.rpc.query").increment(2);
            metrics::counter!("consul.rpc.query").increment(1);
            metrics::gauge!("consul.xds.streams", "type" => "delta").set(3.0);
            metrics::histogram!("consul.raft.commitTime").record(1.5);
        });
        let shown = (before..=interval_now()).map(|interval| metrics.snapshot_at(interval + 1));
        let counters: Vec<_> = shown
            .clone()
            .flat_map(|snapshot| snapshot.counters)
            .collect();
        assert_eq!(counters.iter().map(|c| c.count).sum::<u64>(), 2);
        assert!((counters.iter().map(|c| c.sum).sum::<f64>() - 3.0).abs() < 1e-9);
        assert_eq!(counters[0].name, "consul.rpc.query");
        assert_eq!(shown.flat_map(|snapshot| snapshot.samples).count(), 1);
        let gauge = &metrics.snapshot().gauges[0];
        assert_eq!(
            (
                gauge.name.as_str(),
                gauge.value,
                gauge.labels["type"].as_str()
            ),
            ("consul.xds.streams", 3.0, "delta")
        );
        let text = metrics.render_prometheus();
        for line in [
            "consul_rpc_query 3",
            "consul_xds_streams{type=\"delta\"} 3",
            "consul_raft_commitTime_count 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_json_has_consuls_shape() {
        let (recorder, metrics) = recorder(MetricsOptions::default());
        metrics::with_local_recorder(&recorder, || metrics::gauge!("consul.a").set(1.0));
        let json = serde_json::to_value(metrics.snapshot_at(179_609_054)).unwrap();
        let expected = serde_json::json!({
            "Timestamp": "2026-11-30 22:42:10 +0000 UTC",
            "Gauges": [{"Name": "consul.a", "Value": 1.0, "Labels": {}}],
            "Points": [], "Counters": [], "Samples": [],
        });
        assert_eq!(json["Gauges"], expected["Gauges"]);
        assert_eq!(
            json.as_object().unwrap().keys().collect::<Vec<_>>(),
            ["Timestamp", "Gauges", "Points", "Counters", "Samples"]
        );
        assert!(
            json["Timestamp"].as_str().unwrap().ends_with("0 +0000 UTC"),
            "{json}"
        );
    }

    #[test]
    fn names_and_filters() {
        let with =
            |prefix: &str, allowed: &[&str], blocked: &[&str], filter_default| MetricsOptions {
                prefix: prefix.to_owned(),
                filter_default,
                allowed_prefixes: allowed.iter().map(|rule| (*rule).to_owned()).collect(),
                blocked_prefixes: blocked.iter().map(|rule| (*rule).to_owned()).collect(),
            };
        check(
            with("mesh", &[], &[], true),
            "consul.rpc.query",
            &["mesh.rpc.query"],
        );
        check(
            with("consul", &[], &["consul.rpc"], true),
            "consul.rpc.query",
            &[],
        );
        check(
            with("consul", &["consul.rpc.q"], &["consul.rpc"], true),
            "consul.rpc.query",
            &["consul.rpc.query"],
        );
        check(with("consul", &[], &[], false), "consul.rpc.query", &[]);
    }

    #[test]
    fn a_new_filter_acts_on_what_was_recorded_before() {
        let (recorder, metrics) = recorder(MetricsOptions::default());
        let record = || {
            metrics::with_local_recorder(&recorder, || {
                metrics::gauge!("consul.raft.peers").set(1.0);
                metrics::counter!("consul.rpc.query").increment(1);
                metrics::histogram!("consul.rpc.time").record(1.5);
            });
        };
        record();
        let shown = |metrics: &Metrics| {
            let text = metrics.render_prometheus();
            [
                "consul_raft_peers",
                "consul_rpc_query",
                "consul_rpc_time_sum",
            ]
            .map(|name| text.contains(name))
        };
        assert_eq!(shown(&metrics), [true; 3]);
        metrics.set_filter(&MetricsOptions {
            prefix: "not.taken".to_owned(),
            blocked_prefixes: vec!["consul.rpc".to_owned()],
            ..MetricsOptions::default()
        });
        record();
        assert_eq!(shown(&metrics), [true, false, false]);
        assert_eq!(metrics.snapshot().gauges.len(), 1);
        metrics.set_filter(&MetricsOptions::default());
        assert_eq!(shown(&metrics), [true; 3]);
        assert!(
            metrics.render_prometheus().contains("consul_rpc_query 1"),
            "not counted meanwhile"
        );
    }

    #[test]
    fn a_second_set_up_gives_the_same_handle() {
        let first = init(&MetricsOptions::default());
        let second = init(&MetricsOptions::default());
        assert!(Arc::ptr_eq(&first.inner, &second.inner));
    }
}
