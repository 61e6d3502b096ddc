//! Statistics: tags cut out of the names of clusters, and the sinks that statistics are sent to.

use crate::bootstrap::Error;
use crate::bootstrap::Lookup;
use crate::bootstrap::Options;
use crate::bootstrap::ProxyConfig;
use crate::bootstrap::set;
use crate::bootstrap::socket_address;
use crate::model::GoDuration;
use serde_json::Value;
use serde_json::json;
use std::net::SocketAddr;

const STATSD: (&str, &str) = (
    "envoy.stat_sinks.statsd",
    "type.googleapis.com/envoy.config.metrics.v3.StatsdSink",
);
const DOGSTATSD: (&str, &str) = (
    "envoy.stat_sinks.dog_statsd",
    "type.googleapis.com/envoy.config.metrics.v3.DogStatsdSink",
);

/// One label of a service's SNI, which is its cluster's name:
/// `[<hash>~][<subset>.]<service>.<namespace>.[<partition>.]<datacenter>.<routing type>.<trust domain>.consul`.
struct Label {
    tag: &'static str,
    pattern: &'static str,
    separator: &'static str,
    optional: bool,
}

const LABELS: [Label; 8] = [
    label("custom_hash", "~", true),
    label("service_subset", r"\.", true),
    label("service", r"\.", false),
    label("namespace", r"\.", false),
    label("partition", r"\.", true),
    label("datacenter", r"\.", false),
    Label {
        tag: "routing_type",
        // A fixed set, so that the optional labels before it have one reading.
        pattern: "(?:internal[^.]*|external|query)",
        separator: r"\.",
        optional: false,
    },
    label("trust_domain", r"\.", false),
];

/// Tags over several labels: all from the first one to the label at this index.
const SPANS: [(&str, usize); 2] = [("target", 5), ("full_target", 7)];

const fn label(tag: &'static str, separator: &'static str, optional: bool) -> Label {
    Label {
        tag,
        pattern: "[^.]+",
        separator,
        optional,
    }
}

/// The section `stats_config`.
pub(super) fn config(options: &Options, config: ProxyConfig<'_>) -> Result<Value, Error> {
    if let Some(own) = config.json("envoy_stats_config_json")? {
        return Ok(own);
    }
    let mut tags = user_tags(config)?;
    tags.extend(label_tags("consul.destination."));
    if !options.stats.omit_deprecated_tags {
        // Consul before 1.9 had no partitions.
        let old = label_tags("consul.").filter(|tag| tag["tag_name"] != "consul.partition");
        tags.extend(old);
    }
    let node = &options.node;
    tags.extend([
        fixed("local_cluster", &node.cluster),
        fixed("consul.source.service", &node.cluster),
        fixed("consul.source.namespace", "default"),
        fixed("consul.source.partition", "default"),
        fixed("consul.source.datacenter", &node.datacenter),
    ]);
    Ok(json!({ "stats_tags": tags, "use_all_default_tags": true }))
}

fn fixed(name: &str, value: &str) -> Value {
    json!({ "tag_name": name, "fixed_value": value })
}

fn label_tags(prefix: &'static str) -> impl Iterator<Item = Value> {
    let tag = move |name: &str, first: usize, last: usize| json!({ "tag_name": format!("{prefix}{name}"), "regex": regex(first, last) });
    let single = LABELS.iter().enumerate();
    let single = single.map(move |(index, label)| tag(label.tag, index, index));
    single.chain(SPANS.iter().map(move |(name, last)| tag(name, 0, *last)))
}

/// A pattern whose first group is the whole cluster name with its dot (which Envoy cuts out of the statistic's name)
/// and whose second group, the tag's value, spans the labels `first` to `last`.
fn regex(first: usize, last: usize) -> String {
    let mut regex = String::from(r"^cluster\.(?:passthrough~)?(");
    for (index, label) in LABELS.iter().enumerate() {
        let single = first == last && index == first;
        let opens = if index == first { "(" } else { "" };
        let closes = if index == last { ")" } else { "" };
        let Label {
            pattern, separator, ..
        } = label;
        // An optional label's group lies within it; a span's opening stands before the optional part.
        regex.push_str(&match (label.optional, single) {
            (true, true) => format!("(?:({pattern}){separator})?"),
            (true, false) => format!("{opens}(?:{pattern}{separator})?{closes}"),
            (false, _) => format!("{opens}{pattern}{closes}{separator}"),
        });
    }
    regex.push_str(r"consul\.)");
    regex
}

/// `envoy_stats_tags`: a list of `name=value`, or of `name` alone with the value 1.
fn user_tags(config: ProxyConfig<'_>) -> Result<Vec<Value>, Error> {
    const KEY: &str = "envoy_stats_tags";
    let Some(value) = config.get(KEY) else {
        return Ok(Vec::new());
    };
    let wrong = || Error::key(KEY, value, "write a list of texts such as \"name=value\"");
    let list = value.as_array().ok_or_else(wrong)?;
    list.iter()
        .map(|item| {
            let text = item.as_str().filter(|t| !t.is_empty()).ok_or_else(wrong)?;
            let (name, value) = text.split_once('=').unwrap_or((text, "1"));
            Ok(fixed(&name.to_lowercase(), value))
        })
        .collect()
}

/// The section `stats_sinks`.
pub(super) fn sinks(config: ProxyConfig<'_>, lookup: Lookup<'_>) -> Result<Vec<Value>, Error> {
    let mut sinks = Vec::new();
    for (key, kind) in [
        ("envoy_statsd_url", STATSD),
        ("envoy_dogstatsd_url", DOGSTATSD),
    ] {
        if let Some(url) = config.text(key)? {
            sinks.push(sink(key, url, kind, lookup)?);
        }
    }
    sinks.extend(config.json_list("envoy_extra_stats_sinks_json")?);
    Ok(sinks)
}

fn sink(
    key: &str,
    url: &str,
    (name, kind): (&str, &str),
    lookup: Lookup<'_>,
) -> Result<Value, Error> {
    let wrong = |remedy: &str| Error::key(key, &url.into(), remedy);
    let expanded =
        expand(url, lookup).map_err(|name| wrong(&format!("the variable {name} is not set")))?;
    let address = match expanded.split_once("://") {
        Some(("udp", rest)) => {
            let address: SocketAddr = rest
                .trim_end_matches('/')
                .parse()
                .map_err(|_| wrong("write udp://ip:port"))?;
            let mut address = socket_address(&address);
            if let Some(socket) = address.get_mut("socket_address") {
                set(socket, "protocol", Some("UDP".into()));
            }
            address
        }
        Some(("unix", path)) if kind == DOGSTATSD.1 => json!({ "pipe": { "path": path } }),
        _ if kind == DOGSTATSD.1 => return Err(wrong("write udp://ip:port or unix:///path")),
        _ => return Err(wrong("write udp://ip:port")),
    };
    Ok(json!({ "name": name, "typed_config": { "@type": kind, "address": address } }))
}

/// Replaces `$NAME` (the whole text) and `${NAME}` (anywhere) by variables; the error is a missing one's name.
fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
    if let Some(name) = text.strip_prefix('$').filter(|n| !n.starts_with('{')) {
        return lookup(name).ok_or_else(|| name.to_owned());
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or_else(|| after.to_owned())?;
        out.push_str(before);
        out.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// `envoy_stats_flush_interval` in the form of Envoy's JSON: seconds with decimals.
pub(super) fn flush_interval(config: ProxyConfig<'_>) -> Result<Option<Value>, Error> {
    const KEY: &str = "envoy_stats_flush_interval";
    let Some(text) = config.text(KEY)? else {
        return Ok(None);
    };
    let wrong = |remedy: &str| Error::key(KEY, &text.into(), remedy);
    let interval: GoDuration = text
        .parse()
        .map_err(|_| wrong("write a duration such as 5s"))?;
    let interval = interval.to_std();
    if interval.as_millis() == 0 || interval.as_secs() >= 300 {
        return Err(wrong("Envoy wants at least 1ms and less than 5m"));
    }
    Ok(Some(format!("{}s", interval.as_secs_f64()).into()))
}
