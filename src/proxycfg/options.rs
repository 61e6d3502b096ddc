//! What a gateway's registration says about all its clusters.

use crate::model::{GoDuration, ProxyDefaults};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Milliseconds after which connecting to an endpoint has failed, unless configured.
const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// Longest time that is taken from a configuration: a day.
const MAX_MS: u64 = 86_400_000;
/// How often DNS names are resolved again, unless configured.
const DNS_REFRESH_MS: u64 = 10_000;

/// Options of one gateway that shape its clusters. Gateways with equal options share all clusters and endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayOptions {
    /// Whether the servers are reached through it (service meta `consul-wan-federation` = `1`).
    pub federation: bool,
    /// `connect_timeout_ms`: 1 ms to a day, 5000 by default.
    pub connect_timeout_ms: u64,
    /// `envoy_dns_lookup_family`: which addresses of a host name are used.
    pub dns_family: DnsFamily,
    /// `envoy_dns_refresh_ms`: 1000 ms to a day, 10000 by default.
    pub dns_refresh_ms: u64,
    /// `envoy_gateway_remote_tcp_enable_keepalive` and its siblings, for connections to other datacenters.
    pub keepalive: Option<Keepalive>,
    /// `passive_health_check`: `None` if it is switched off.
    pub outlier: Option<OutlierDetection>,
}

/// Which addresses of a host name are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DnsFamily {
    /// `v4_preferred`: IPv4 if there is one, else IPv6. A name with only an AAAA record works too (C040).
    #[default]
    V4Preferred,
    /// `v4_only`.
    V4Only,
    /// `v6_only`.
    V6Only,
    /// `auto`: IPv6 if there is one, else IPv4.
    Auto,
    /// `all`: both.
    All,
}

/// TCP keep-alive; 0 leaves a value to the operating system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Keepalive {
    /// Seconds of silence before the first probe.
    pub time_s: u32,
    /// Seconds between probes.
    pub interval_s: u32,
    /// Unanswered probes after which the connection is dead.
    pub probes: u32,
}

/// When Envoy stops using an endpoint that fails; `None` leaves a value to Envoy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutlierDetection {
    /// `interval`: milliseconds between two looks.
    pub interval_ms: Option<u64>,
    /// `max_failures`: failures in a row.
    pub max_failures: Option<u32>,
    /// `enforcing_consecutive_5xx`: chance in percent that an endpoint found so is ejected, 0 to 100.
    pub enforcing_percent: Option<u32>,
    /// `max_ejection_percent`: at most this share is ejected, 0 to 100.
    pub max_ejection_percent: Option<u32>,
    /// `base_ejection_time`: milliseconds of the first ejection.
    pub base_ejection_ms: Option<u64>,
}

/// The opaque configuration of a proxy over that of all proxies. Keys are found whatever their case, and numbers and
/// booleans may be given as text, as Consul's decoder allows.
pub(crate) struct Opaque<'a> {
    layers: [Option<&'a BTreeMap<String, Value>>; 2],
    warnings: Vec<String>,
}

impl<'a> Opaque<'a> {
    pub(crate) fn new(
        own: &'a BTreeMap<String, Value>,
        defaults: Option<&'a ProxyDefaults>,
    ) -> Self {
        Self {
            layers: [Some(own), defaults.map(|d| &d.config)],
            warnings: Vec::new(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        let layers = self.layers.iter().flatten();
        let found =
            layers.flat_map(|layer| layer.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)));
        found.map(|(_, value)| value).find(|value| !value.is_null())
    }

    pub(crate) fn flag(&mut self, key: &str) -> bool {
        let Some(value) = self.get(key) else {
            return false;
        };
        match value {
            Value::Bool(on) => *on,
            Value::Number(n) => n.as_f64() != Some(0.0),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "1" | "t" | "true" => true,
                "" | "0" | "f" | "false" => false,
                _ => self.wrong(key, value, "true or false").is_some(),
            },
            _ => self.wrong(key, value, "true or false").is_some(),
        }
    }

    fn number(&mut self, key: &str, max: u64) -> Option<u64> {
        let value = self.get(key)?;
        match whole_number(value).filter(|n| *n <= max) {
            None => {
                self.wrong(key, value, &format!("a whole number from 0 to {max}"));
                None
            }
            some => some,
        }
    }

    pub(crate) fn wrong(&mut self, key: &str, value: &Value, expected: &str) -> Option<()> {
        let warning = format!("{key} = {value} is ignored: give {expected}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
        None
    }

    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    pub(crate) fn into_warnings(self) -> Vec<String> {
        self.warnings
    }
}

/// A number, or a text that is one.
pub(crate) fn whole_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n.as_u64().or_else(|| {
            let n = n.as_f64()?;
            ((0.0..=1e15).contains(&n) && n.fract() == 0.0).then_some(n as u64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A value of a JSON object, whatever the case of its key.
pub(crate) fn member<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let members = value.as_object()?;
    members
        .iter()
        .find(|(k, _)| k.eq_ignore_ascii_case(key))
        .map(|(_, v)| v)
}

impl GatewayOptions {
    pub(crate) fn read(opaque: &mut Opaque<'_>, federation: bool) -> Self {
        let timeout = opaque.number("connect_timeout_ms", MAX_MS);
        let refresh = opaque.number("envoy_dns_refresh_ms", MAX_MS);
        Self {
            federation,
            connect_timeout_ms: timeout.filter(|ms| *ms > 0).unwrap_or(CONNECT_TIMEOUT_MS),
            dns_family: dns_family(opaque),
            dns_refresh_ms: refresh.map_or(DNS_REFRESH_MS, |ms| ms.max(1_000)),
            keepalive: keepalive(opaque),
            outlier: outlier(opaque),
        }
    }
}

fn dns_family(opaque: &mut Opaque<'_>) -> DnsFamily {
    let key = "envoy_dns_lookup_family";
    let Some(value) = opaque.get(key) else {
        return DnsFamily::default();
    };
    match value
        .as_str()
        .unwrap_or_default()
        .to_ascii_lowercase()
        .as_str()
    {
        "v4_preferred" => DnsFamily::V4Preferred,
        "v4_only" => DnsFamily::V4Only,
        "v6_only" => DnsFamily::V6Only,
        "auto" => DnsFamily::Auto,
        "all" => DnsFamily::All,
        _ => {
            opaque.wrong(key, value, "v4_preferred, v4_only, v6_only, auto or all");
            DnsFamily::default()
        }
    }
}

fn keepalive(opaque: &mut Opaque<'_>) -> Option<Keepalive> {
    let on = opaque.flag("envoy_gateway_remote_tcp_enable_keepalive");
    let mut part = |name: &str| {
        let key = format!("envoy_gateway_remote_tcp_keepalive_{name}");
        let number = opaque.number(&key, u64::from(u32::MAX));
        number.map_or(0, |n| u32::try_from(n).unwrap_or(u32::MAX))
    };
    let keepalive = Keepalive {
        time_s: part("time"),
        interval_s: part("interval"),
        probes: part("probes"),
    };
    on.then_some(keepalive)
}

/// `passive_health_check = "off"`, or an object with the fields of [`OutlierDetection`].
fn outlier(opaque: &mut Opaque<'_>) -> Option<OutlierDetection> {
    let key = "passive_health_check";
    let mut detection = OutlierDetection::default();
    match opaque.get(key) {
        None => {}
        Some(Value::Bool(false)) => return None,
        Some(Value::String(text)) if text.eq_ignore_ascii_case("off") => return None,
        Some(given @ Value::Object(_)) => {
            let mut read = |name: &str, max: u64| {
                let value = member(given, name).filter(|v| !v.is_null())?;
                let number = whole_number(value).filter(|n| *n <= max);
                if number.is_none() {
                    let expected = format!("a whole number from 0 to {max}");
                    opaque.wrong(&format!("{key}.{name}"), value, &expected);
                }
                number.and_then(|n| u32::try_from(n).ok())
            };
            detection.max_failures = read("max_failures", u64::from(u32::MAX));
            detection.enforcing_percent = read("enforcing_consecutive_5xx", 100);
            detection.max_ejection_percent = read("max_ejection_percent", 100);
            let mut time = |name: &str| {
                let value = member(given, name).filter(|v| !v.is_null())?;
                let ms = milliseconds(value);
                if ms.is_none() {
                    let expected = "a duration from 1ms to 24h, such as \"10s\"";
                    opaque.wrong(&format!("{key}.{name}"), value, expected);
                }
                ms
            };
            detection.interval_ms = time("interval");
            detection.base_ejection_ms = time("base_ejection_time");
        }
        Some(other) => {
            opaque.wrong(key, other, "\"off\" or an object");
        }
    }
    Some(detection)
}

/// A duration as text, or as a number of nanoseconds.
fn milliseconds(value: &Value) -> Option<u64> {
    let duration = match value {
        Value::String(text) => text.parse::<GoDuration>().ok()?.to_std(),
        other => Duration::from_nanos(whole_number(other)?),
    };
    let ms = u64::try_from(duration.as_millis()).ok()?;
    (1..=MAX_MS).contains(&ms).then_some(ms)
}
