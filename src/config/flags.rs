//! `agent`'s command line as configuration: which flag sets which key.
//!
//! A table and a small parser of Go's flag rules do it without clap, because most flags are keys
//! of the configuration and are checked as such: `-name value`, `-name=value`, one or two dashes,
//! switches without a value or with `=true`, and `--` ends the flags.

use crate::config::Format;
use crate::config::Sources;
use crate::config::layer::Settings;
use crate::config::layer::Typed;
use crate::config::problem::Origin;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::read::check_bounds;
use crate::config::schema;
use crate::config::schema::Key;
use crate::config::schema::Kind;
use crate::config::schema::nearest_name;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// A flag that sets a key.
struct Flag {
    name: &'static str,
    key: &'static str,
}

const fn flag(name: &'static str, key: &'static str) -> Flag {
    Flag { name, key }
}

/// Consul 1.8's flags of `agent`, and `-grpc-tls-port`.
#[rustfmt::skip] // One flag a line reads as the table it is.
const FLAGS: &[Flag] = &[
    flag("advertise", "advertise_addr"),
    flag("advertise-wan", "advertise_addr_wan"),
    flag("alt-domain", "alt_domain"),
    flag("allow-write-http-from", "http_config.allow_write_http_from"),
    flag("bind", "bind_addr"),
    flag("bootstrap", "bootstrap"),
    flag("bootstrap-expect", "bootstrap_expect"),
    flag("check_output_max_size", "check_output_max_size"),
    flag("client", "client_addr"),
    flag("data-dir", "data_dir"),
    flag("datacenter", "datacenter"),
    flag("default-query-time", "default_query_time"),
    flag("disable-host-node-id", "disable_host_node_id"),
    flag("disable-keyring-file", "disable_keyring_file"),
    flag("dns-port", "ports.dns"),
    flag("domain", "domain"),
    flag("enable-local-script-checks", "enable_local_script_checks"),
    flag("enable-script-checks", "enable_script_checks"),
    flag("encrypt", "encrypt"),
    flag("grpc-port", "ports.grpc"),
    flag("grpc-tls-port", "ports.grpc_tls"),
    flag("http-port", "ports.http"),
    flag("https-port", "ports.https"),
    flag("join", "start_join"),
    flag("join-wan", "start_join_wan"),
    flag("log-file", "log_file"),
    flag("log-json", "log_json"),
    flag("log-level", "log_level"),
    flag("log-rotate-bytes", "log_rotate_bytes"),
    flag("log-rotate-duration", "log_rotate_duration"),
    flag("log-rotate-max-files", "log_rotate_max_files"),
    flag("max-query-time", "max_query_time"),
    flag("node", "node_name"),
    flag("node-id", "node_id"),
    flag("node-meta", "node_meta"),
    flag("non-voting-server", "non_voting_server"),
    flag("pid-file", "pid_file"),
    flag("primary-gateway", "primary_gateways"),
    flag("protocol", "protocol"),
    flag("raft-protocol", "raft_protocol"),
    flag("recursor", "recursors"),
    flag("rejoin", "rejoin_after_leave"),
    flag("retry-interval", "retry_interval"),
    flag("retry-interval-wan", "retry_interval_wan"),
    flag("retry-join", "retry_join"),
    flag("retry-join-wan", "retry_join_wan"),
    flag("retry-max", "retry_max"),
    flag("retry-max-wan", "retry_max_wan"),
    flag("segment", "segment"),
    flag("serf-lan-allowed-cidrs", "serf_lan_allowed_cidrs"),
    flag("serf-lan-bind", "serf_lan"),
    flag("serf-lan-port", "ports.serf_lan"),
    flag("serf-wan-allowed-cidrs", "serf_wan_allowed_cidrs"),
    flag("serf-wan-bind", "serf_wan"),
    flag("serf-wan-port", "ports.serf_wan"),
    flag("server", "server"),
    flag("server-port", "ports.server"),
    flag("syslog", "enable_syslog"),
    flag("ui", "ui"),
    flag("ui-content-path", "ui_content_path"),
    flag("ui-dir", "ui_dir"),
];

/// Flags that choose sources and set no key.
const SOURCE_FLAGS: &[&str] = &["config-dir", "config-file", "config-format", "dev", "hcl"];

/// Parses the arguments after `agent`.
///
/// # Errors
/// Every unknown flag, missing or malformed value, and left-over argument.
pub fn parse_agent(args: impl IntoIterator<Item = OsString>) -> Result<Sources, Problems> {
    let mut parser = Parser::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let Some(text) = arg
            .to_str()
            .filter(|text| text.starts_with('-') && text.len() > 1)
        else {
            parser.left_over(&arg);
            continue;
        };
        if text == "--" {
            args.by_ref().for_each(|arg| parser.left_over(&arg));
            break;
        }
        let name = text
            .strip_prefix("--")
            .or_else(|| text.strip_prefix('-'))
            .unwrap_or(text);
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        parser.flag(name, value, &mut args);
    }
    if parser.problems.is_empty() {
        Ok(parser.sources)
    } else {
        Err(parser.problems)
    }
}

/// Names and keys of all flags, for the help text.
pub fn known() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let sources = SOURCE_FLAGS.iter().map(|name| (*name, None));
    sources.chain(FLAGS.iter().map(|flag| (flag.name, Some(flag.key))))
}

/// One line per flag: its form, the key it sets, and that key's default.
#[must_use]
pub fn help() -> String {
    let mut out = String::from(
        "Usage: crossway agent [flags]\n\nFlags set keys of the configuration; files come first, flags override them.\n\n",
    );
    for (form, what) in [
        (
            "-config-dir=DIR",
            "read the .hcl and .json files of a directory; may be repeated",
        ),
        ("-config-file=FILE", "read a file; may be repeated"),
        (
            "-config-format=FORMAT",
            "hcl or json, whatever the files' names",
        ),
        ("-dev", "one server with its state in memory, on loopback"),
        ("-hcl=TEXT", "a piece of configuration; may be repeated"),
    ] {
        out.push_str(&format!("  {form:<36} {what}\n"));
    }
    for flag in FLAGS {
        let Some(key) = schema::find(flag.key) else {
            continue;
        };
        let form = match key.kind {
            Kind::Bool => format!("-{}", flag.name),
            Kind::Int | Kind::Float => format!("-{}=NUMBER", flag.name),
            Kind::Duration => format!("-{}=DURATION", flag.name),
            Kind::TextMap => format!("-{}=KEY:VALUE", flag.name),
            _ => format!("-{}=TEXT", flag.name),
        };
        let more = match (key.kind, key.default) {
            (Kind::Texts | Kind::TextMap, _) => "; may be repeated".to_owned(),
            (Kind::Bool, _) | (_, "") => String::new(),
            (_, default) => format!("; default {default}"),
        };
        out.push_str(&format!("  {form:<36} {}{more}\n", key.path));
    }
    out
}

#[derive(Default)]
struct Parser {
    sources: Sources,
    problems: Problems,
}

impl Parser {
    fn left_over(&mut self, arg: &OsString) {
        let what = format!("unexpected argument {arg:?}");
        let remedy = "flags begin with a dash; name files with -config-file and directories with -config-dir";
        self.problems
            .push(Problem::new(Origin::BuiltIn, "", what).remedy(remedy));
    }

    fn problem(&mut self, name: &str, what: impl Into<String>, remedy: impl Into<String>) {
        let origin = Origin::Flag(name.into());
        self.problems
            .push(Problem::new(origin, "", what).remedy(remedy));
    }

    fn flag(
        &mut self,
        name: &str,
        value: Option<String>,
        args: &mut impl Iterator<Item = OsString>,
    ) {
        let key = FLAGS
            .iter()
            .find(|flag| flag.name == name)
            .and_then(|flag| schema::find(flag.key));
        let is_switch = name == "dev" || key.is_some_and(|key| key.kind == Kind::Bool);
        if key.is_none() && !SOURCE_FLAGS.contains(&name) {
            let remedy = match nearest_name(name, known().map(|(name, _)| name)) {
                Some(near) => format!("did you mean -{near}?"),
                None => "see agent -help".to_owned(),
            };
            return self.problem(name, "flag provided but not defined", remedy);
        }
        let value = match value {
            Some(value) => value,
            None if is_switch => "true".to_owned(),
            None => match args.next().map(OsString::into_string) {
                Some(Ok(value)) => value,
                Some(Err(_)) => return self.problem(name, "the value is not UTF-8", ""),
                None => {
                    return self.problem(
                        name,
                        "flag needs an argument",
                        format!("write -{name}=VALUE"),
                    );
                }
            },
        };
        match key {
            Some(key) => self.set(name, key, &value),
            None => self.source(name, value),
        }
    }

    fn source(&mut self, name: &str, value: String) {
        match (name, value.as_str()) {
            ("config-dir" | "config-file", _) => self.sources.paths.push(PathBuf::from(value)),
            ("config-format", "hcl") => self.sources.format = Some(Format::Hcl),
            ("config-format", "json") => self.sources.format = Some(Format::Json),
            ("config-format", _) => {
                self.problem(
                    name,
                    format!("{value:?} is not a format"),
                    "use one of: hcl, json",
                );
            }
            ("hcl", _) => self.sources.fragments.push(value),
            _ => match switch(&value) {
                Some(on) => self.sources.dev = on,
                None => self.problem(name, format!("{value:?} is not true or false"), ""),
            },
        }
    }

    fn set(&mut self, name: &str, key: &'static Key, value: &str) {
        let origin = Origin::Flag(name.into());
        let typed = match typed(key.kind, value, &origin) {
            Ok(typed) => typed,
            Err(why) => {
                self.problems.push(Problem::new(
                    origin,
                    key.path,
                    format!("{}: {why}", key.path),
                ));
                return;
            }
        };
        match check_bounds(key, &typed) {
            Ok(()) => self.sources.flags.set(key.path, typed, origin),
            Err((what, remedy)) => self
                .problems
                .push(Problem::new(origin, key.path, what).remedy(remedy)),
        }
    }
}

fn typed(kind: Kind, value: &str, origin: &Origin) -> Result<Typed, String> {
    match kind {
        Kind::Bool => switch(value)
            .map(Typed::Bool)
            .ok_or_else(|| format!("{value:?} is not true or false")),
        Kind::Int => value
            .parse()
            .map(Typed::Int)
            .map_err(|_| format!("{value:?} is not a whole number")),
        Kind::Float => value
            .parse()
            .map(Typed::Float)
            .map_err(|_| format!("{value:?} is not a number")),
        Kind::Duration => crate::config::duration::parse(value)
            .map(Typed::Duration)
            .map_err(|why| format!("invalid duration: {value:?}: {why}")),
        Kind::Texts => Ok(Typed::Texts(vec![(value.to_owned(), origin.clone())])),
        Kind::TextMap => {
            let (key, value) = value.split_once(':').unwrap_or((value, ""));
            Ok(Typed::TextMap(BTreeMap::from([(
                key.to_owned(),
                value.to_owned(),
            )])))
        }
        _ => Ok(Typed::Text(value.to_owned())),
    }
}

/// Go's spellings of a switch.
fn switch(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Settings that `-dev` brings, below every file and flag.
#[must_use]
pub fn dev_overrides() -> Settings {
    let mut settings = Settings::default();
    let mut set = |key: &'static str, value| settings.set(key, value, Origin::BuiltIn);
    let text = |text: &str| Typed::Text(text.to_owned());
    let tenth = || Typed::Duration(std::time::Duration::from_millis(100));
    set("bind_addr", text("127.0.0.1"));
    set("connect.enabled", Typed::Bool(true));
    set("disable_keyring_file", Typed::Bool(true));
    set("enable_debug", Typed::Bool(true));
    set("ui", Typed::Bool(true));
    set("log_level", text("DEBUG"));
    set("server", Typed::Bool(true));
    set("bootstrap", Typed::Bool(true));
    set("performance.raft_multiplier", Typed::Int(1));
    set("ports.grpc", Typed::Int(8502));
    for key in [
        "gossip_lan.gossip_interval",
        "gossip_lan.probe_interval",
        "gossip_lan.probe_timeout",
    ] {
        set(key, tenth());
    }
    for key in [
        "gossip_wan.gossip_interval",
        "gossip_wan.probe_interval",
        "gossip_wan.probe_timeout",
    ] {
        set(key, tenth());
    }
    set("gossip_lan.suspicion_mult", Typed::Int(3));
    set("gossip_wan.suspicion_mult", Typed::Int(3));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Sources, Problems> {
        parse_agent(args.iter().map(OsString::from))
    }

    #[test]
    fn every_flag_sets_a_known_key() {
        for flag in FLAGS {
            assert!(schema::find(flag.key).is_some(), "-{}", flag.name);
        }
    }

    #[test]
    fn the_help_names_every_flag_with_its_key() {
        let help = help();
        for (name, key) in known() {
            let mut lines = help.lines();
            let line = lines.find(|line| {
                line.split_whitespace()
                    .next()
                    .is_some_and(|form| form.split('=').next() == Some(&format!("-{name}")))
            });
            assert!(
                line.is_some_and(|line| line.contains(key.unwrap_or(""))),
                "-{name}"
            );
        }
    }

    #[test]
    fn gos_spellings() {
        let sources = parse(&[
            "-dev",
            "-server=false",
            "--node",
            "n1",
            "-http-port=0",
            "-join",
            "a",
            "-join=b",
            "-node-meta",
            "k:v:w",
            "-config-file",
            "x.hcl",
            "-config-dir=d",
            "-hcl",
            "ports { dns = 1 }",
            "-config-format=json",
            "-retry-interval",
            "5s",
        ])
        .unwrap();
        assert!(sources.dev && sources.flags.has("server") && !sources.flags.bool("server"));
        assert_eq!(sources.flags.text("node_name"), "n1");
        assert_eq!(sources.flags.texts("start_join"), ["a", "b"]);
        assert_eq!(sources.flags.text_map("node_meta")["k"], "v:w");
        assert_eq!(sources.paths, [PathBuf::from("x.hcl"), PathBuf::from("d")]);
        assert_eq!(sources.fragments.len(), 1);
        assert_eq!(sources.flags.duration("retry_interval").as_secs(), 5);
    }

    #[test]
    fn every_mistake_is_reported() {
        let problems = parse(&[
            "-serve",
            "-http-port",
            "x",
            "stray",
            "-dns-port=70000",
            "-server=maybe",
            "-node",
        ])
        .unwrap_err();
        let text = problems.to_string();
        for wanted in [
            "6 errors",
            "flag -serve: flag provided but not defined (did you mean -server?)",
            "ports.http: \"x\" is not a whole",
            "\"stray\"",
            "ports.dns: invalid port: 70000",
            "server: \"maybe\"",
            "flag -node: flag needs an argument",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }
}
