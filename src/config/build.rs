//! Typed values to the nested [`Config`]. Nothing is refused here but what cannot be turned into its type.

use crate::config::addresses;
use crate::config::ca_config;
use crate::config::duration;
use crate::config::host::Host;
use crate::config::layer::Settings;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::settings::Acl;
use crate::config::settings::AclTokens;
use crate::config::settings::Autopilot;
use crate::config::settings::CheckRules;
use crate::config::settings::Config;
use crate::config::settings::Connect;
use crate::config::settings::Definition;
use crate::config::settings::Dns;
use crate::config::settings::Federation;
use crate::config::settings::Gossip;
use crate::config::settings::GossipTuning;
use crate::config::settings::Http;
use crate::config::settings::Identity;
use crate::config::settings::Join;
use crate::config::settings::Limits;
use crate::config::settings::Log;
use crate::config::settings::PortRange;
use crate::config::settings::Ports;
use crate::config::settings::Raft;
use crate::config::settings::Telemetry;
use crate::config::settings::Tls;
use crate::config::settings::TlsVersion;
use crate::discovery::Source;
use base64::Engine;
use std::path::PathBuf;

/// Default xDS ports.
const GRPC_PORT: u16 = 8502;
const GRPC_TLS_PORT: u16 = 8503;

/// Builds the configuration of one server.
pub(super) fn build(dev: bool, s: &Settings, host: &Host, problems: &mut Problems) -> Config {
    let tls = tls(s);
    let server = s.bool("server");
    let ports = ports(s, server, tls.has_certificate());
    let expect = s.uint::<u32>("bootstrap_expect");
    Config {
        dev,
        identity: identity(s, host),
        server,
        bootstrap: s.bool("bootstrap") || expect == 1,
        bootstrap_expect: if expect == 1 { 0 } else { expect },
        data_dir: path(s, "data_dir"),
        pid_file: path(s, "pid_file"),
        addresses: addresses::resolve(s, &ports, host, problems),
        ports,
        connect: connect(s),
        federation: federation(s, problems),
        join: join(s, problems),
        gossip: gossip(s, problems),
        raft: raft(s),
        limits: limits(s),
        acl: acl(s),
        dns: dns(s),
        http: Http {
            block_endpoints: s.texts("http_config.block_endpoints"),
            response_headers: s.text_map("http_config.response_headers"),
            allow_write_from: addresses::networks(s, "http_config.allow_write_http_from", problems),
            allow_unprintable: s.bool("disable_http_unprintable_char_filter"),
            enable_debug: s.bool("enable_debug"),
        },
        telemetry: telemetry(s),
        log: log(s),
        autopilot: autopilot(s),
        checks: checks(s),
        service_definitions: definitions(s, &["service", "services"]),
        check_definitions: definitions(s, &["check", "checks"]),
        bootstrap_entries: definitions(s, &["config_entries.bootstrap"]),
        leave_on_terminate: s.bool_or("leave_on_terminate", !server),
        skip_leave_on_interrupt: s.bool_or("skip_leave_on_interrupt", server),
        rejoin_after_leave: s.bool("rejoin_after_leave"),
        tls,
    }
}

fn path(s: &Settings, key: &str) -> Option<PathBuf> {
    s.some_text(key).map(PathBuf::from)
}

fn bare_domain(text: &str) -> String {
    text.trim_matches('.').to_lowercase()
}

fn identity(s: &Settings, host: &Host) -> Identity {
    let datacenter = s.text("datacenter").to_lowercase();
    let primary = s
        .some_text("primary_datacenter")
        .map(|dc| dc.to_lowercase());
    let name = s
        .some_text("node_name")
        .unwrap_or_else(|| host.name.clone());
    Identity {
        node_name: name.trim().to_owned(),
        node_id: s.some_text("node_id").map(|id| id.to_lowercase()),
        node_meta: s.text_map("node_meta"),
        primary_datacenter: primary.unwrap_or_else(|| datacenter.clone()),
        datacenter,
        domain: bare_domain(&s.text("domain")),
        alt_domain: s.some_text("alt_domain").map(|domain| bare_domain(&domain)),
        protocol: s.uint("protocol"),
    }
}

fn ports(s: &Settings, server: bool, certificate: bool) -> Ports {
    let or = |key, default: Option<u16>| if s.has(key) { s.port(key) } else { default };
    let range = |min, max| PortRange {
        min: s.port(min).unwrap_or(0),
        max: s.port(max).unwrap_or(0),
    };
    Ports {
        dns: s.port("ports.dns"),
        http: s.port("ports.http"),
        https: s.port("ports.https"),
        grpc: or("ports.grpc", server.then_some(GRPC_PORT)),
        grpc_tls: or(
            "ports.grpc_tls",
            (server && certificate).then_some(GRPC_TLS_PORT),
        ),
        server: s.port("ports.server").unwrap_or(0),
        serf_lan: s.port("ports.serf_lan").unwrap_or(0),
        serf_wan: s.port("ports.serf_wan"),
        proxy: range("ports.proxy_min_port", "ports.proxy_max_port"),
        sidecar: range("ports.sidecar_min_port", "ports.sidecar_max_port"),
        expose: range("ports.expose_min_port", "ports.expose_max_port"),
    }
}

fn tls(s: &Settings) -> Tls {
    let incoming = s.bool("verify_incoming");
    let hostname = s.bool("verify_server_hostname");
    let suites = s.text("tls_cipher_suites");
    Tls {
        ca_file: path(s, "ca_file"),
        ca_path: path(s, "ca_path"),
        cert_file: path(s, "cert_file"),
        key_file: path(s, "key_file"),
        verify_incoming_rpc: incoming || s.bool("verify_incoming_rpc"),
        verify_incoming_https: incoming || s.bool("verify_incoming_https"),
        verify_outgoing: hostname || s.bool("verify_outgoing"),
        verify_server_hostname: hostname,
        min_version: match s.text("tls_min_version").as_str() {
            "tls13" => TlsVersion::Tls13,
            _ => TlsVersion::Tls12,
        },
        cipher_suites: suites
            .split(',')
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .map(str::to_owned)
            .collect(),
    }
}

fn connect(s: &Settings) -> Connect {
    Connect {
        enabled: s.bool("connect.enabled") || s.bool("auto_encrypt.allow_tls"),
        ca_provider: s
            .some_text("connect.ca_provider")
            .unwrap_or_else(|| "consul".to_owned()),
        ca_config: ca_config::with_provider_names(s.free("connect.ca_config")),
    }
}

fn federation(s: &Settings, problems: &mut Problems) -> Federation {
    Federation {
        through_gateways: s.bool("connect.enable_mesh_gateway_wan_federation"),
        primary_gateways: sources(s, "primary_gateways", problems),
        primary_gateways_interval: s.duration("primary_gateways_interval"),
        disable_primary_gateway_fallback: s.bool("connect.disable_primary_gateway_fallback"),
    }
}

fn join(s: &Settings, problems: &mut Problems) -> Join {
    Join {
        start: sources(s, "start_join", problems),
        start_wan: sources(s, "start_join_wan", problems),
        retry: sources(s, "retry_join", problems),
        retry_wan: sources(s, "retry_join_wan", problems),
        retry_interval: s.duration("retry_interval"),
        retry_interval_wan: s.duration("retry_interval_wan"),
        retry_max: s.uint("retry_max"),
        retry_max_wan: s.uint("retry_max_wan"),
        reconnect_timeout: s.duration("reconnect_timeout"),
        reconnect_timeout_wan: s.duration("reconnect_timeout_wan"),
    }
}

/// Places to find servers and gateways; each wrong entry is a problem of its own (case C018).
fn sources(s: &Settings, key: &str, problems: &mut Problems) -> Vec<Source> {
    let mut sources = Vec::new();
    for (text, origin) in s.texts_with_origin(key) {
        match Source::parse(&text) {
            Ok(source) => sources.push(source),
            Err(error) => {
                let what = format!("{key}: {:?}: {}", error.value, error.what);
                problems.push(Problem::new(origin, key, what).remedy(error.remedy));
            }
        }
    }
    sources
}

fn gossip(s: &Settings, problems: &mut Problems) -> Gossip {
    let tuning = |pool: &str| {
        let key = |name: &str| format!("{pool}.{name}");
        GossipTuning {
            gossip_nodes: s.uint(&key("gossip_nodes")),
            gossip_interval: s.duration(&key("gossip_interval")),
            probe_interval: s.duration(&key("probe_interval")),
            probe_timeout: s.duration(&key("probe_timeout")),
            suspicion_mult: s.uint(&key("suspicion_mult")),
            retransmit_mult: s.uint(&key("retransmit_mult")),
        }
    };
    Gossip {
        encrypt: gossip_key(s, problems),
        encrypt_verify_incoming: s.bool("encrypt_verify_incoming"),
        encrypt_verify_outgoing: s.bool("encrypt_verify_outgoing"),
        disable_keyring_file: s.bool("disable_keyring_file"),
        lan: tuning("gossip_lan"),
        wan: tuning("gossip_wan"),
    }
}

/// The key's bytes. The value itself is a secret and never part of a message.
fn gossip_key(s: &Settings, problems: &mut Problems) -> Option<Vec<u8>> {
    let text = s.some_text("encrypt")?;
    let why = match base64::engine::general_purpose::STANDARD.decode(&text) {
        Ok(key) if matches!(key.len(), 16 | 24 | 32) => return Some(key),
        Ok(key) => format!("key size must be 16, 24 or 32 bytes, it has {}", key.len()),
        Err(base64::DecodeError::InvalidByte(at, _)) => {
            format!("illegal base64 data at input byte {at}")
        }
        Err(_) => format!("illegal base64 data at input byte {}", text.len() / 4 * 4),
    };
    let problem = Problem::new(
        s.origin("encrypt"),
        "encrypt",
        format!("encrypt has invalid key: {why}"),
    );
    problems.push(problem.remedy("make one with: openssl rand -base64 32"));
    None
}

fn raft(s: &Settings) -> Raft {
    Raft {
        multiplier: s.uint("performance.raft_multiplier"),
        snapshot_interval: s.duration("raft_snapshot_interval"),
        snapshot_threshold: s.uint("raft_snapshot_threshold"),
        trailing_logs: s.uint("raft_trailing_logs"),
        leave_drain_time: s.duration("performance.leave_drain_time"),
        rpc_hold_timeout: s.duration("performance.rpc_hold_timeout"),
    }
}

fn limits(s: &Settings) -> Limits {
    Limits {
        rpc_rate: s.rate("limits.rpc_rate"),
        rpc_max_burst: s.uint("limits.rpc_max_burst"),
        rpc_handshake_timeout: s.duration("limits.rpc_handshake_timeout"),
        rpc_max_conns_per_client: s.uint("limits.rpc_max_conns_per_client"),
        https_handshake_timeout: s.duration("limits.https_handshake_timeout"),
        http_max_conns_per_client: s.uint("limits.http_max_conns_per_client"),
        grpc_max_conns_per_client: s.uint("limits.grpc_max_conns_per_client"),
        kv_max_value_size: s.uint("limits.kv_max_value_size"),
        txn_max_req_len: s.uint("limits.txn_max_req_len"),
        default_query_time: s.duration("default_query_time"),
        max_query_time: s.duration("max_query_time"),
        discovery_max_stale: s.duration("discovery_max_stale"),
    }
}

fn acl(s: &Settings) -> Acl {
    Acl {
        enabled: s.bool("acl.enabled"),
        default_allow: s.text("acl.default_policy").eq_ignore_ascii_case("allow"),
        down_policy: s.text("acl.down_policy").to_lowercase(),
        token_ttl: s.duration("acl.token_ttl"),
        policy_ttl: s.duration("acl.policy_ttl"),
        role_ttl: s.duration("acl.role_ttl"),
        disabled_ttl: s.duration("acl.disabled_ttl"),
        enable_token_replication: s.bool("acl.enable_token_replication"),
        enable_key_list_policy: s.bool("acl.enable_key_list_policy"),
        enable_token_persistence: s.bool("acl.enable_token_persistence"),
        tokens: AclTokens {
            master: s.some_text("acl.tokens.master"),
            agent: s.some_text("acl.tokens.agent"),
            agent_master: s.some_text("acl.tokens.agent_master"),
            default: s.some_text("acl.tokens.default"),
            replication: s.some_text("acl.tokens.replication"),
        },
    }
}

fn dns(s: &Settings) -> Dns {
    let ttl = |(name, text): (String, String)| Some((name, duration::parse(&text).ok()?));
    Dns {
        a_record_limit: s.uint("dns_config.a_record_limit"),
        allow_stale: s.bool("dns_config.allow_stale"),
        max_stale: s.duration("dns_config.max_stale"),
        cache_max_age: s.duration("dns_config.cache_max_age"),
        disable_compression: s.bool("dns_config.disable_compression"),
        enable_truncate: s.bool("dns_config.enable_truncate"),
        node_ttl: s.duration("dns_config.node_ttl"),
        service_ttl: s
            .text_map("dns_config.service_ttl")
            .into_iter()
            .filter_map(ttl)
            .collect(),
        only_passing: s.bool("dns_config.only_passing"),
        udp_answer_limit: s.uint("dns_config.udp_answer_limit"),
        node_meta_txt: s.bool("dns_config.enable_additional_node_meta_txt"),
        recursors: s.texts("recursors"),
        recursor_timeout: s.duration("dns_config.recursor_timeout"),
        soa: ["expire", "min_ttl", "refresh", "retry"]
            .map(|name| s.uint(&format!("dns_config.soa.{name}"))),
    }
}

fn telemetry(s: &Settings) -> Telemetry {
    let rules = s.texts("telemetry.prefix_filter");
    let with = |sign: char| {
        rules
            .iter()
            .filter_map(|r| r.strip_prefix(sign))
            .map(str::to_owned)
            .collect()
    };
    Telemetry {
        prefix: s.text("telemetry.metrics_prefix"),
        filter_default: s.bool("telemetry.filter_default"),
        allowed_prefixes: with('+'),
        blocked_prefixes: with('-'),
        disable_hostname: s.bool("telemetry.disable_hostname"),
        prometheus_retention: s.duration("telemetry.prometheus_retention_time"),
    }
}

fn log(s: &Settings) -> Log {
    let level = s.text("log_level").to_lowercase();
    Log {
        level: if level == "err" {
            "error".to_owned()
        } else {
            level
        },
        json: s.bool("log_json"),
        file: path(s, "log_file"),
    }
}

fn autopilot(s: &Settings) -> Autopilot {
    Autopilot {
        cleanup_dead_servers: s.bool("autopilot.cleanup_dead_servers"),
        last_contact_threshold: s.duration("autopilot.last_contact_threshold"),
        max_trailing_logs: s.uint("autopilot.max_trailing_logs"),
        min_quorum: s.uint("autopilot.min_quorum"),
        server_stabilization_time: s.duration("autopilot.server_stabilization_time"),
    }
}

fn checks(s: &Settings) -> CheckRules {
    CheckRules {
        update_interval: s.duration("check_update_interval"),
        output_max_size: s.uint("check_output_max_size"),
        discard_output: s.bool("discard_check_output"),
        enable_script_checks: s.bool("enable_script_checks"),
        enable_local_script_checks: s.bool("enable_local_script_checks")
            || s.bool("enable_script_checks"),
        use_agent_tls: s.bool("enable_agent_tls_for_checks"),
        deregister_interval_min: s.duration("check_deregister_interval_min"),
        reap_interval: s.duration("check_reap_interval"),
    }
}

fn definitions(s: &Settings, keys: &[&str]) -> Vec<Definition> {
    let blocks = keys.iter().flat_map(|key| s.blocks(key));
    blocks
        .map(|(json, origin)| Definition { json, origin })
        .collect()
}
