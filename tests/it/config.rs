//! Configuration as operators write it: recorded answers of Consul 1.8.7, every rule, and merging.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use crossway::config::Format;
use crossway::config::Loaded;
use crossway::config::Problems;
use crossway::config::Sources;
use crossway::config::flags;
use crossway::config::host::Host;
use crossway::config::host::Interface;
use crossway::config::load_on;
use crossway::config::settings::ListenAddr;
use proptest::prelude::*;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

mod certificates;

/// What every valid configuration needs.
const BASE: &str = "data_dir = \"/nonexistent\"\nserver = true\n";

/// Prefix of the rules about federation in Consul's words.
const WANFED: &str = "'connect.enable_mesh_gateway_wan_federation = true'";

fn host(addresses: &[&str]) -> Host {
    let interface = |(index, addr): (usize, &&str)| Interface {
        name: format!("eth{index}"),
        addr: addr.parse().unwrap(),
        prefix: 24,
        up: true,
        default_route: index == 0,
    };
    Host {
        name: "n1".to_owned(),
        interfaces: addresses.iter().enumerate().map(interface).collect(),
    }
}

fn load(hcl: &str) -> Result<Loaded, Problems> {
    load_on(&Sources::default().with_fragment(hcl), &host(&["10.0.0.5"]))
}

fn valid(hcl: &str) -> Loaded {
    load(&format!("{BASE}{hcl}")).unwrap_or_else(|problems| panic!("{hcl}\n{problems}"))
}

/// The configuration is refused, and the report has all of `wanted`.
fn refused(hcl: &str, wanted: &[&str]) {
    let Err(problems) = load(hcl) else {
        panic!("accepted: {hcl}")
    };
    for text in wanted {
        assert!(
            problems.to_string().contains(text),
            "{hcl}\nwanted: {text}\n{problems}"
        );
    }
}

fn warned(hcl: &str, wanted: &str) {
    let warnings = valid(hcl).warnings;
    assert!(
        warnings.to_string().contains(wanted),
        "{hcl}\nwanted: {wanted}\n{warnings}"
    );
}

/// One recorded run of `consul validate`.
struct Recorded {
    name: String,
    hcl: String,
    messages: Vec<String>,
    valid: bool,
}

fn recorded() -> Vec<Recorded> {
    let mut list = Vec::new();
    for entry in fs::read_dir("tests/data/config").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "out") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (hcl, output) = text.split_once("# ---- output\n").unwrap();
        let message = |line: &str| {
            let line = line
                .trim()
                .trim_start_matches("* ")
                .trim_start_matches("Config validation failed: ");
            let line = line.split(" See https://").next().unwrap();
            let frame = line.ends_with("occurred:")
                || line.starts_with("exit=")
                || line == "Configuration is valid!";
            (!line.is_empty() && !frame).then(|| line.to_owned())
        };
        list.push(Recorded {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            hcl: hcl.to_owned(),
            messages: output.lines().filter_map(message).collect(),
            valid: output.contains("exit=0"),
        });
    }
    assert_eq!(list.len(), 22);
    list
}

/// Configurations that Consul accepts and then fails with; here they are refused with this text.
const REFUSED_HERE: &[(&str, &str)] = &[
    ("ok", "requires a CA, a certificate and its key"),
    ("node_dot", "requires a CA, a certificate and its key"),
    ("wanfed_no_tls", "requires a CA, a certificate and its key"),
    (
        "verify_incoming_no_cert",
        "VerifyIncoming set, and no Cert/Key pair provided!",
    ),
    (
        "verify_no_ca",
        "VerifyOutgoing set, and no CA certificate provided!",
    ),
];

#[test]
fn recorded_configurations_get_consuls_answer_or_a_better_one() {
    for Recorded {
        name,
        hcl,
        messages,
        valid,
    } in recorded()
    {
        let here = REFUSED_HERE.iter().find(|(refused, _)| *refused == name);
        match (load(&hcl), valid) {
            (Ok(loaded), true) if here.is_none() => {
                let warnings = loaded.warnings.to_string();
                assert!(
                    messages.iter().all(|message| warnings.contains(message)),
                    "{name}: {messages:?}\n{warnings}"
                );
            }
            (Err(problems), false) => {
                let text = problems.to_string();
                assert!(
                    messages.iter().all(|message| text.contains(message)),
                    "{name}: {messages:?}\n{text}"
                );
            }
            (Err(problems), true) => {
                let (_, wanted) = here.unwrap_or_else(|| panic!("{name}: {problems}"));
                assert!(problems.to_string().contains(wanted), "{name}: {problems}");
            }
            (Ok(_), _) => panic!("{name} is accepted"),
        }
    }
}

#[test]
fn validate_names_five_mistakes_with_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("server.hcl");
    let text = "datacenter = \"dc 1\"\ndata_dri = \"/x\"\nports {\n  http = \"8500\"\n}\nprimary_gateways_interval = \"x\"\n\
                server = true\nbind_addr = \"10.0.0.5\"\nconnect { enable_mesh_gateway_wan_federation = true }\n";
    fs::write(&file, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_crossway"))
        .arg("validate")
        .arg(&file)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    let place = |line: u32| format!("{}:{line}: ", file.display());
    for (line, what) in [
        (
            1,
            "datacenter cannot be \"dc 1\". Please use only [a-z0-9-_]",
        ),
        (2, "invalid config key data_dri (did you mean data_dir?)"),
        (
            4,
            "ports.http: expected type 'int', got \"8500\" (string) (write 8500 without quotes)",
        ),
        (
            6,
            "primary_gateways_interval: invalid duration: \"x\": time: invalid duration \"x\"",
        ),
        (
            9,
            "'connect.enable_mesh_gateway_wan_federation=true' requires 'connect.enabled=true'",
        ),
    ] {
        assert!(
            stdout.contains(&format!("{}{what}", place(line))),
            "{line} {what}\n{stdout}"
        );
    }
}

#[test]
fn validate_says_when_all_is_well() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("a.hcl"),
        format!("{BASE}bind_addr = \"10.0.0.5\"\nbootstrap = true\n"),
    )
    .unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crossway"));
        let output = command
            .arg("validate")
            .args(arguments)
            .arg(dir.path())
            .output()
            .unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            output.status.code(),
        )
    };
    assert_eq!(run(&[]), ("Configuration is valid!\n".to_owned(), Some(0)));
    assert_eq!(run(&["-quiet"]), (String::new(), Some(0)));
    fs::write(dir.path().join("b.json"), "{\"node_name\": \"a_b\"}").unwrap();
    let (text, code) = run(&[]);
    assert!(
        text.contains("b.json:1: ")
            && text.contains("a_b")
            && text.ends_with("Configuration is valid!\n"),
        "{text}"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn unread_files_are_not_missing_keys() {
    refused(
        "data_dir = \"/x\nserver = true",
        &["-hcl[0]:1: failed to parse: At 1:", "1 error occurred"],
    );
    refused(
        "server = \"yes\"\ndata_dir = 5\nconnect { enabled = 1 enable_mesh_gateway_wan_federation = true }",
        &["server: expected type 'bool'"],
    );
    let problems = load("data_dir = 5").unwrap_err();
    assert!(
        !problems.to_string().contains("cannot be empty"),
        "{problems}"
    );
    let missing = Sources::from_paths(vec!["/nonexistent/x.hcl".into()], None);
    let text = load_on(&missing, &host(&[])).unwrap_err().to_string();
    assert!(
        text.contains("/nonexistent/x.hcl: cannot be read"),
        "{text}"
    );
}

#[test]
fn federation_rules_name_keys_and_values() {
    let on = "connect { enabled = true enable_mesh_gateway_wan_federation = true }\n";
    // Case C012: five mistakes, each naming both settings and the values seen.
    refused(
        "data_dir = \"/x\"\nprimary_datacenter = \"dc0\"\nprimary_gateways = [\"1.2.3.4:8443\"]",
        &[
            "'primary_gateways' requires 'server = true' (primary_gateways is [\"1.2.3.4:8443\"], server is false)",
        ],
    );
    refused(
        &format!("{BASE}primary_gateways = [\"1.2.3.4:8443\"]"),
        &[
            "'primary_gateways' should only be configured in a secondary datacenter (datacenter and primary_datacenter are both \"dc1\")",
        ],
    );
    refused(
        &format!("{BASE}connect {{ enable_mesh_gateway_wan_federation = true }}"),
        &[
            "'connect.enable_mesh_gateway_wan_federation=true' requires 'connect.enabled=true' (connect.enabled is false)",
        ],
    );
    refused(
        &format!("data_dir = \"/x\"\n{on}"),
        &[&format!(
            "{WANFED} requires 'server = true' (server is false)"
        )],
    );
    for key in ["retry_join_wan", "start_join_wan"] {
        let wanted = format!("'{key}' is incompatible with {WANFED} ({key} is [\"1.2.3.4\"]");
        refused(&format!("{BASE}{on}{key} = [\"1.2.3.4\"]"), &[&wanted]);
    }
    // Case C007.
    refused(
        &format!("{BASE}{on}node_name = \"rack1/host2\""),
        &[&format!(
            "{WANFED} requires that 'node_name' not contain '/' characters (node_name is \"rack1/host2\")"
        )],
    );
    refused(
        &format!("{BASE}{on}ports {{ serf_wan = -1 }}"),
        &[&format!("{WANFED} requires 'ports.serf_wan'")],
    );
    refused(
        &format!("{BASE}{on}cert_file = \"/x\""),
        &["set ca_file or ca_path, key_file"],
    );
    warned(
        "primary_datacenter = \"dc0\"\nprimary_gateways = [\"1.2.3.4:8443\"]",
        "the gateways are not used",
    );
}

#[test]
fn names_of_datacenters() {
    // Case C049.
    for (name, wanted) in [
        ("dc.1", "Please use only [a-z0-9-_] (a dot would split"),
        ("-dc1", "must begin and end with a letter or digit"),
        ("dc1_", "must begin and end with a letter or digit"),
        ("", "datacenter cannot be empty"),
        ("dc 1", "datacenter cannot be \"dc 1\""),
    ] {
        refused(&format!("{BASE}datacenter = \"{name}\""), &[wanted]);
    }
    let loaded = valid("datacenter = \"Orion_SA\"");
    assert_eq!(loaded.config.identity.datacenter, "orion_sa");
    let warnings = loaded.warnings.to_string();
    for wanted in [
        "taken as \"orion_sa\"",
        "underscore",
        "server.orion_sa.consul",
        "*.orion_sa.internal.<trust domain>",
    ] {
        assert!(warnings.contains(wanted), "{wanted}\n{warnings}");
    }
    refused(
        &format!("{BASE}primary_datacenter = \"a b\""),
        &["primary_datacenter cannot be \"a b\""],
    );
}

/// Case C018: brackets and ports in addresses.
#[test]
fn spellings_of_addresses() {
    let v6 = "2001:db8::1";
    for (key, value, expected) in [
        ("advertise_addr", "2001:db8::1", Ok(v6)),
        ("advertise_addr", "[2001:db8::1]", Ok(v6)),
        ("advertise_addr", "2001:DB8:0::1", Ok(v6)),
        (
            "advertise_addr",
            "[2001:db8::1",
            Err("write both brackets or none"),
        ),
        ("advertise_addr", "[10.0.0.1]", Err("brackets are for IPv6")),
        (
            "advertise_addr",
            "[2001:db8::1]:8300",
            Err("leave the port out"),
        ),
        ("advertise_addr", "10.0.0.1:8300", Err("leave the port out")),
        (
            "advertise_addr",
            "::",
            Err("Advertise address cannot be 0.0.0.0, :: or [::]"),
        ),
        ("advertise_addr", "host.example.com", Err("not a host name")),
        ("bind_addr", "[2001:db8::1]", Ok(v6)),
        (
            "bind_addr",
            "10.0.0.1 10.0.0.2",
            Err("bind_addr cannot contain multiple addresses"),
        ),
        (
            "bind_addr",
            "unix:///x",
            Err("a Unix socket cannot stand here"),
        ),
        ("bind_addr", "fe80::1%eth0", Err("leave the zone out")),
        ("primary_gateways", "2001:db8::1:8443", Ok("")),
        ("primary_gateways", "[2001:db8::1]:8443", Ok("")),
        (
            "primary_gateways",
            "gw:8443:1",
            Err("write an IPv6 address with a port as [2001:db8::1]:8301"),
        ),
    ] {
        let value = if key == "primary_gateways" {
            format!("[\"{value}\"]")
        } else {
            format!("\"{value}\"")
        };
        let secondary = "primary_datacenter = \"dc0\"\n";
        let hcl = format!("{BASE}{secondary}{key} = {value}");
        match expected {
            Ok("") => drop(valid(&format!("{secondary}{key} = {value}"))),
            Ok(ip) => assert_eq!(
                load(&hcl).unwrap().config.addresses.advertise,
                ip.parse::<IpAddr>().unwrap(),
                "{hcl}"
            ),
            Err(wanted) => refused(&hcl, &[wanted]),
        }
    }
}

/// The specification's CFG-9, and every list of places to join.
#[test]
fn entries_of_joining_are_read() {
    for key in ["start_join", "retry_join", "retry_join_wan"] {
        refused(
            &format!("{BASE}{key} = [\"10.0.0.1\", \"provider=gce tag_value=x\"]"),
            &[
                &format!("{key}: \"provider=gce tag_value=x\": provider \"gce\" is not built in"),
                "exec=/path/to/program",
            ],
        );
    }
    let double = "[\"provider=aws tag_key=a tag_key=b tag_value=c\"]";
    refused(
        &format!("{BASE}retry_join = {double}"),
        &["duplicate key \"tag_key\""],
    );
    let list =
        "[\"1.2.3.4:443\", \"provider=aws tag_key=a tag_value=b\", \"exec=/bin/list --all\"]";
    let sources = valid(&format!("retry_join = {list}")).config.join.retry;
    let texts: Vec<_> = sources.iter().map(ToString::to_string).collect();
    let expected = [
        "1.2.3.4:443",
        "provider=aws tag_key=a tag_value=b",
        "exec=/bin/list --all",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn the_advertised_address_is_of_the_bound_family() {
    let advertise = |hcl: &str, addresses: &[&str]| {
        let sources = Sources::default().with_fragment(format!("{BASE}{hcl}"));
        load_on(&sources, &host(addresses))
            .map(|loaded| loaded.config.addresses.advertise.to_string())
            .map_err(|p| p.to_string())
    };
    let both = ["127.0.0.1", "10.0.0.5", "2001:db8::5", "fe80::1"];
    assert_eq!(advertise("", &both).as_deref(), Ok("10.0.0.5"));
    assert_eq!(
        advertise("bind_addr = \"::\"", &both).as_deref(),
        Ok("2001:db8::5")
    );
    assert_eq!(
        advertise("bind_addr = \"{{ GetInterfaceIP \\\"eth1\\\" }}\"", &both).as_deref(),
        Ok("10.0.0.5")
    );
    let several = advertise("", &["10.0.0.5", "192.168.1.5"]).unwrap_err();
    assert!(
        several.contains("Multiple private IPv4 addresses found")
            && several.contains("10.0.0.5, 192.168.1.5"),
        "{several}"
    );
    assert!(
        advertise("", &["8.8.8.8"])
            .unwrap_err()
            .contains("No private IPv4 address found")
    );
    assert!(
        advertise("bind_addr = \"{{ GetPublicIP }}\"", &["10.0.0.5"])
            .unwrap_err()
            .contains("bind_addr cannot be empty")
    );
}

/// A line that breaks one rule, and what is said.
const BROKEN: &[(&str, &str)] = &[
    (
        "bootstrap = true\nserver = false",
        "'bootstrap = true' requires 'server = true'",
    ),
    (
        "bootstrap_expect = -1",
        "bootstrap_expect cannot be -1. Must be greater than or equal to zero",
    ),
    (
        "bootstrap_expect = 3\nserver = false",
        "'bootstrap_expect > 0' requires 'server = true'",
    ),
    ("ports { http = 70000 }", "ports.http: invalid port: 70000"),
    (
        "ports { dns = 8500 }",
        "HTTP address 127.0.0.1:8500 already configured for DNS",
    ),
    (
        "ports { serf_lan = 8302 }",
        "Serf WAN address 0.0.0.0:8302 already configured for Serf LAN",
    ),
    (
        "client_addr = \"10.0.0.5\"\nports { http = 8300 }",
        "HTTP listens on 10.0.0.5:8300",
    ),
    (
        "ports { sidecar_min_port = 5 sidecar_max_port = 3 }",
        "sidecar_min_port must be less than sidecar_max_port",
    ),
    (
        "ports { https = 8501 }",
        "ports.https is set without a certificate",
    ),
    (
        "connect { ca_provider = \"x\" }",
        "x is not a valid CA provider",
    ),
    (
        "connect { ca_config { private_key_bits = 224 } }",
        "P-256, P-384, P-521",
    ),
    (
        "connect { ca_config { leaf_cert_ttl = \"1m\" } }",
        "leaf_cert_ttl must be between 1h and 8760h",
    ),
    (
        "connect { ca_config { intermediate_cert_ttl = \"4h\" } }",
        "must be at least 216h0m0s",
    ),
    (
        "connect { ca_config { cluster_id = \"x\" } }",
        "cluster_id must be a UUID string",
    ),
    (
        "auto_encrypt { tls = true }",
        "auto_encrypt.tls can only be used on a client.",
    ),
    (
        "auto_encrypt { allow_tls = true }\nserver = false",
        "auto_encrypt.allow_tls can only be used on a server.",
    ),
    (
        "performance { raft_multiplier = 11 }",
        "performance.raft_multiplier cannot be 11. Must be between 1 and 10",
    ),
    (
        "node_meta { \"consul-x\" = \"y\" }",
        "Key prefix 'consul-' is reserved for internal use",
    ),
    (
        "node_meta { \"a b\" = \"y\" }",
        "Couldn't load metadata pair ('a b', 'y'): Key contains invalid characters",
    ),
    ("node_id = \"x\"", "node_id \"x\" is not a UUID"),
    (
        "dns_config { udp_answer_limit = -1 }",
        "dns_config.udp_answer_limit cannot be -1.",
    ),
    (
        "cache { entry_fetch_rate = 0 }",
        "cache.entry_fetch_rate must be strictly positive, was: 0",
    ),
    (
        "cache { entry_fetch_max_burst = 0 }",
        "cache.entry_fetch_max_burst must be strictly positive, was: 0",
    ),
    ("acl { default_policy = \"x\" }", "use one of: allow, deny"),
    (
        "segment = \"a\"",
        "Network segments are not supported in this version of Consul",
    ),
    (
        "segments = [{ name = \"a\" }]",
        "Network segments are not supported",
    ),
    (
        "autopilot { max_trailing_logs = -1 }",
        "autopilot.max_trailing_logs cannot be -1.",
    ),
    (
        "reconnect_timeout = \"1h\"",
        "reconnect_timeout cannot be 1h0m0s. Must be at least 8h0m0s",
    ),
    (
        "log_level = \"loud\"",
        "use one of: TRACE, DEBUG, INFO, WARN, ERR",
    ),
    (
        "encrypt = \"YWJj\"",
        "key size must be 16, 24 or 32 bytes, it has 3",
    ),
    (
        "verify_incoming = true\nca_file = \"/x\"\ncert_file = \"/y\"",
        "no Cert/Key pair provided! (set key_file)",
    ),
    (
        "verify_server_hostname = true",
        "VerifyOutgoing set, and no CA certificate provided!",
    ),
    (
        "ca_file = \"/nonexistent/ca.pem\"",
        "ca_file \"/nonexistent/ca.pem\" cannot be read",
    ),
    (
        "tls_cipher_suites = \"x\"",
        "invalid tls cipher suites: unsupported cipher \"x\"",
    ),
    ("serf_lan_allowed_cidrs = [\"x\"]", "invalid cidr: x"),
    (
        "ui = true\nui_dir = \"/x\"",
        "Both the ui and ui-dir flags were specified",
    ),
    (
        "data_dir = \"/etc/passwd\"",
        "data_dir \"/etc/passwd\" is not a directory",
    ),
    (
        "addresses { dns = \"unix:///x\" }",
        "DNS address cannot be a unix socket",
    ),
    (
        "client_addr = \"unix:///x\"",
        "client_addr cannot be a unix socket",
    ),
    (
        "dns_config { service_ttl { \"*\" = \"x\" } }",
        "dns_config.service_ttl[\"*\"]: invalid duration: \"x\"",
    ),
    (
        "config_entries { bootstrap = [{ kind = \"x\" }] }",
        "config_entries.bootstrap[0]: invalid config entry kind: x",
    ),
    (
        "default_query_time = \"20m\"",
        "default_query_time is longer than max_query_time",
    ),
    ("unix_sockets { mode = \"9\" }", "write it in octal"),
    ("retry_join = \"a\"", "write a list: [\"a\"]"),
    (
        "primary_gateways_interval = 5",
        "write a duration with its unit, such as \"5s\"",
    ),
    (
        "services { name = \"a\" enabletagoverride = true }",
        "did you mean enable_tag_override?",
    ),
    (
        "services { name = \"a\" check { interval = 5 } }",
        "services[0].check.interval: expected type 'string', got 5 (int)",
    ),
    (
        "services { name = \"a\" check { tcp = \"x:1\" } }",
        "Interval must be > 0 for Script, HTTP, or TCP checks",
    ),
    (
        "services { name = \"a\" port = 99999 }",
        "invalid port: 99999",
    ),
    ("services { id = \"a\" }", "a service needs a name"),
    ("check { name = \"x\" }", "the check has no kind"),
    ("domain = \"a b\"", "domain \"a b\" is not a DNS name"),
    (
        "enable_mesh_gateway_wan_federation = true",
        "did you mean connect.enable_mesh_gateway_wan_federation?",
    ),
];

#[test]
fn every_other_rule() {
    for (hcl, wanted) in BROKEN {
        refused(&format!("{BASE}{hcl}"), &[wanted]);
    }
    refused("server = true", &["data_dir cannot be empty"]);
}

#[test]
fn what_is_odd_is_warned_about() {
    for (hcl, wanted) in [
        (
            "bootstrap_expect = 1",
            "BootstrapExpect is set to 1; this is the same as Bootstrap mode.",
        ),
        (
            "bootstrap_expect = 4",
            "even number of servers does not achieve optimum fault tolerance",
        ),
        (
            "node_name = \"a_b\"",
            "will not be discoverable via DNS due to invalid characters",
        ),
        (
            "telemetry { prefix_filter = [\"x\"] }",
            "Filter rule must begin with either '+' or '-': \"x\"",
        ),
        (
            "acl_enforce_version_8 = true",
            "config key \"acl_enforce_version_8\" is deprecated and should be removed",
        ),
        (
            "acl_datacenter = \"dc1\"",
            "The 'acl_datacenter' field is deprecated. Use the 'primary_datacenter' field instead.",
        ),
        ("acl { enabled = true }", "does not enforce ACLs"),
        (
            "audit { enabled = true }",
            "Enterprise configuration and will have no effect",
        ),
        ("tls_min_version = \"tls10\"", "tls12 is used"),
        (
            "node_name = \"a\"\nnode_name = \"b\"",
            "-hcl[0]:4: node_name is set twice",
        ),
        (
            "services { name = \"a\" } services { name = \"a\" }",
            "service id \"a\" is defined twice",
        ),
        // Case C016.
        (
            "services { name = \"gw\" kind = \"mesh-gateway\" port = 1 meta { consul-wan-federation = \"true\" } }",
            "only \"1\" does",
        ),
    ] {
        warned(hcl, wanted);
    }
    assert!(valid("services { name = \"gw\" kind = \"mesh-gateway\" port = 1 meta { consul-wan-federation = \"1\" } }").warnings.is_empty());
    let client = load("data_dir = \"/x\"").unwrap();
    assert!(client.warnings.to_string().contains("no client agents"));
    assert_eq!(client.config.ports.grpc, None);
}

#[test]
fn defaults_are_consuls() {
    let config = valid("").config;
    let port = |list: &[ListenAddr]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(config.identity.node_name, "n1");
    assert_eq!(
        (
            config.identity.datacenter.as_str(),
            config.identity.domain.as_str()
        ),
        ("dc1", "consul")
    );
    assert!(
        config.identity.is_primary()
            && config.skip_leave_on_interrupt
            && !config.leave_on_terminate
    );
    assert_eq!(port(&config.addresses.http), ["127.0.0.1:8500"]);
    assert_eq!(port(&config.addresses.grpc), ["127.0.0.1:8502"]);
    assert!(config.addresses.https.is_empty() && config.addresses.grpc_tls.is_empty());
    assert_eq!(config.addresses.rpc_bind.to_string(), "0.0.0.0:8300");
    assert_eq!(config.addresses.rpc_advertise.to_string(), "10.0.0.5:8300");
    assert_eq!(config.addresses.tagged["wan_ipv4"], "10.0.0.5");
    assert_eq!(config.limits.rpc_handshake_timeout, Duration::from_secs(5));
    assert_eq!(
        (
            config.limits.rpc_max_conns_per_client,
            config.limits.http_max_conns_per_client
        ),
        (100, 200)
    );
    assert_eq!(config.limits.rpc_rate, None);
    assert_eq!(config.checks.update_interval, Duration::from_secs(300));
    assert_eq!(config.dns.max_stale, Duration::from_secs(87_600 * 3600));
    assert_eq!(
        (
            config.gossip.lan.suspicion_mult,
            config.gossip.wan.suspicion_mult
        ),
        (4, 6)
    );
    assert_eq!(
        (config.connect.ca_provider.as_str(), config.connect.enabled),
        ("consul", false)
    );
    assert_eq!(
        (config.log.level.as_str(), config.log.json),
        ("info", false)
    );
    assert!(config.acl.default_allow);
}

#[test]
fn dev_mode() {
    let sources = flags::parse_agent(["-dev"].map(OsString::from)).unwrap();
    let loaded = load_on(&sources, &host(&[])).unwrap();
    let config = loaded.config;
    assert!(
        config.dev
            && config.server
            && config.bootstrap
            && config.connect.enabled
            && config.data_dir.is_none()
    );
    assert_eq!(
        (
            config.addresses.bind.to_string().as_str(),
            config.raft.multiplier
        ),
        ("127.0.0.1", 1)
    );
    assert_eq!(config.gossip.lan.probe_interval, Duration::from_millis(100));
    assert_eq!(config.log.level, "debug");
    assert!(loaded.not_yet_active.is_empty() && loaded.without_effect.is_empty());
    let args = ["-dev", "-bootstrap-expect=3"].map(OsString::from);
    let problems = load_on(&flags::parse_agent(args).unwrap(), &host(&[])).unwrap_err();
    assert!(
        problems
            .to_string()
            .contains("flag -bootstrap-expect: 'bootstrap_expect > 0' not allowed in dev mode"),
        "{problems}"
    );
}

#[test]
fn tests_get_free_ports() {
    let dir = tempfile::tempdir().unwrap();
    let config =
        crossway::testing::config::on_free_ports(dir.path(), "datacenter = \"dc7\"").unwrap();
    assert_eq!(config.identity.datacenter, "dc7");
    assert_eq!(config.addresses.rpc_bind.to_string(), "127.0.0.1:0");
    assert_eq!(config.addresses.http[0].to_string(), "127.0.0.1:0");
    assert_eq!(config.addresses.serf_wan_bind.unwrap().port(), 0);
}

#[test]
fn later_sources_win_and_lists_grow() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(
        "a.hcl",
        "node_name = \"file\"\nretry_join = [\"a\"]\nnode_meta { a = \"1\" b = \"1\" }\nserver = true",
    );
    write(
        "b.json",
        "{\"datacenter\": \"DC2\", \"retry_join\": [\"b\"], \"node_meta\": {\"b\": \"2\"}, \"data_dir\": \"/nonexistent\"}",
    );
    write("c.txt", "this is not read");
    fs::create_dir(dir.path().join("d.hcl")).unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    let args = [
        "-config-dir",
        &path,
        "-node=flag",
        "-retry-join",
        "c",
        "-hcl",
        "domain = \"Example.COM.\"",
        "-http-port=-1",
    ];
    let loaded = load_on(
        &flags::parse_agent(args.map(OsString::from)).unwrap(),
        &host(&["10.0.0.5"]),
    )
    .unwrap();
    let config = loaded.config;
    assert_eq!(config.identity.node_name, "flag");
    assert_eq!(
        (
            config.identity.datacenter.as_str(),
            config.identity.domain.as_str()
        ),
        ("dc2", "example.com")
    );
    let retry: Vec<_> = config.join.retry.iter().map(ToString::to_string).collect();
    assert_eq!(retry, ["a", "b", "c"]);
    assert_eq!(
        (
            config.identity.node_meta["a"].as_str(),
            config.identity.node_meta["b"].as_str()
        ),
        ("1", "2")
    );
    assert!(config.addresses.http.is_empty());
    assert_eq!(loaded.not_yet_active, [""; 0]);
    let text = load_on(
        &Sources::from_paths(vec![dir.path().join("c.txt")], None),
        &host(&[]),
    )
    .unwrap_err()
    .to_string();
    assert!(
        text.contains("c.txt: has neither .hcl nor .json") && text.contains("-config-format"),
        "{text}"
    );
    write("c.txt", BASE);
    let forced = Sources::from_paths(vec![dir.path().join("c.txt")], Some(Format::Hcl));
    assert!(load_on(&forced, &host(&["10.0.0.5"])).is_ok());
}

#[test]
fn hcl_oddities_and_json_mean_the_same() {
    for text in [
        "ports { http = 1234 }\nports { dns = 8601 }",
        "\"ports\" = [{ http = 1234, dns = 8601 }]",
        "Ports {\n  HTTP = 1234.0\n  dns = 0x2199\n}",
    ] {
        let config = valid(text).config;
        assert_eq!(
            (config.ports.http, config.ports.dns),
            (Some(1234), Some(8601)),
            "{text}"
        );
    }
    let json = "{\"data_dir\": \"/nonexistent\", \"server\": true, \"ports\": {\"http\": 1234}, \"node_name\": null}";
    assert_eq!(load(json).unwrap().config.ports.http, Some(1234));
}

#[test]
fn definitions_keep_their_place_and_get_one_shape() {
    let hcl = "service {\n  Name = \"web\"\n  port = 80\n  check { tcp = \"x:80\" Interval = \"10s\" deregisterCriticalServiceAfter = \"90m\" }\n  proxy { config { Free = [{ a = 1 }] } }\n}\nservices = [{ name = \"db\" checks = [{ ttl = \"5s\" }] }]";
    let definitions = valid(hcl).config.service_definitions;
    assert_eq!(definitions.len(), 2);
    assert_eq!(definitions[0].origin.to_string(), "-hcl[0]:3");
    assert_eq!(
        definitions[0].json,
        serde_json::json!({
            "name": "web", "port": 80,
            "check": {"tcp": "x:80", "interval": "10s", "deregister_critical_service_after": "90m"},
            "proxy": {"config": {"Free": [{"a": 1}]}},
        })
    );
    assert_eq!(definitions[1].json["checks"][0]["ttl"], "5s");
}

#[test]
fn keys_for_later_and_keys_without_effect_are_named() {
    let loaded = valid(
        "recursors = [\"8.8.8.8\"]\nui = true\nenable_syslog = false\nacl { enabled = true }\nsnapshot_agent { a = 1 }",
    );
    assert_eq!(loaded.not_yet_active, ["acl.enabled", "recursors"]);
    assert_eq!(loaded.without_effect, ["snapshot_agent", "ui"]);
}

#[test]
fn secrets_are_not_shown() {
    let secret = "11111111-1111-1111-1111-111111111111";
    let key = "pUqJrVyVRj5jsiYEkM/tFQYfWyJIv4s3XkvDwy7Cu5s=";
    let hcl = format!(
        "acl {{ tokens {{ agent = \"{secret}\" }} }}\nencrypt = \"{key}\"\nconnect {{ ca_config {{ private_key = \"{secret}\" }} }}\nservices {{ name = \"a\" token = \"{secret}\" }}"
    );
    let loaded = valid(&hcl);
    let shown = format!("{:?}", loaded.config);
    assert_eq!(loaded.config.acl.tokens.agent.as_deref(), Some(secret));
    assert_eq!(loaded.config.connect.ca_config["PrivateKey"], secret);
    assert!(!shown.contains(secret) && !shown.contains(key), "{shown}");
    assert!(
        !load(&format!("{BASE}encrypt = \"{key}x\""))
            .unwrap_err()
            .to_string()
            .contains(key)
    );
}

#[test]
fn xds_ports() {
    let ports = |hcl: &str| {
        load(&format!("data_dir = \"/x\"\n{hcl}"))
            .map(|loaded| (loaded.config.ports.grpc, loaded.config.ports.grpc_tls))
    };
    assert_eq!(ports("server = true").unwrap(), (Some(8502), None));
    assert_eq!(
        ports("server = true\nports { grpc = -1 }").unwrap(),
        (None, None)
    );
    assert_eq!(
        ports("server = true\nports { grpc = 0 }").unwrap(),
        (None, None)
    );
    assert_eq!(ports("server = false").unwrap(), (None, None));
    assert!(
        ports("server = true\nports { grpc_tls = 8503 }")
            .unwrap_err()
            .to_string()
            .contains("ports.grpc_tls is set without a certificate")
    );
}

/// Files in the tests' directory are found from the package's root.
#[test]
fn recorded_files_are_there() {
    assert!(Path::new("tests/data/config/ok.out").exists());
}

proptest! {
    #[test]
    fn any_configuration_is_read_or_refused(
        keys in proptest::collection::vec(0..crossway::config::schema::KEYS.len(), 0..6),
        values in proptest::collection::vec("(true|-?[0-9]{1,6}|\"[a-z0-9:.\\[\\]{} -]{0,12}\"|\\[\"[a-z.:]{0,5}\"\\]|\\{ [a-z]{1,8} = \"[0-9a-z]{0,4}\" \\})", 6),
    ) {
        let line = |(key, value): (&usize, &String)| {
            let path: Vec<_> = crossway::config::schema::KEYS[*key].path.split('.').collect();
            let (leaf, blocks) = path.split_last().unwrap();
            format!("{}{leaf} = {value}{}\n", blocks.iter().map(|b| format!("{b} {{ ")).collect::<String>(), " }".repeat(blocks.len()))
        };
        let text: String = keys.iter().zip(&values).map(line).collect();
        crossway::testing::fuzz::fuzz_config(text.as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        crossway::testing::fuzz::fuzz_config(&bytes);
    }
}
