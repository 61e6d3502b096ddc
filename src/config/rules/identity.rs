//! Names, roles and the data directory.

use crate::config::files::Surroundings;
use crate::config::rules::Check;

/// Consul's bounds on `node_meta`.
const META_PAIRS: usize = 64;
const META_KEY_BYTES: usize = 128;
const META_VALUE_BYTES: usize = 512;
/// Longest DNS label (RFC 1035).
const LABEL_BYTES: usize = 63;

pub(super) fn check(check: &mut Check<'_>, surroundings: &Surroundings) {
    roles(check);
    data_dir(check, surroundings);
    node_name(check);
    node_id(check);
    node_meta(check);
    let identity = &check.config.identity;
    datacenter(check, "datacenter", &identity.datacenter);
    if check.settings.has("primary_datacenter") {
        datacenter(check, "primary_datacenter", &identity.primary_datacenter);
    }
    domain(check, "domain", &identity.domain);
    if let Some(alt) = &identity.alt_domain {
        domain(check, "alt_domain", alt);
    }
}

fn roles(check: &mut Check<'_>) {
    let settings = check.settings;
    let bootstrap = settings.bool("bootstrap");
    let expect = settings.int("bootstrap_expect");
    let server = check.config.server;
    if !server {
        check.warn(
            "server",
            "server is not true: Crossway has no client agents",
            "set server = true to run this configuration",
        );
    }
    if bootstrap && !server {
        check.refuse(
            "bootstrap",
            "'bootstrap = true' requires 'server = true'",
            "server is false",
        );
    }
    if expect > 0 && check.config.dev {
        check.refuse(
            "bootstrap_expect",
            "'bootstrap_expect > 0' not allowed in dev mode",
            "leave out -dev or bootstrap_expect",
        );
    } else if expect > 0 && bootstrap {
        let what = "'bootstrap_expect > 0' and 'bootstrap = true' are mutually exclusive";
        check.refuse(
            "bootstrap_expect",
            what,
            format!("bootstrap_expect is {expect}; remove one of them"),
        );
    }
    if expect > 0 && !server {
        let what = "'bootstrap_expect > 0' requires 'server = true'";
        check.refuse(
            "bootstrap_expect",
            what,
            format!("bootstrap_expect is {expect}, server is false"),
        );
    }
    if expect > 1 {
        let what = format!("bootstrap_expect > 0: expecting {expect} servers");
        check.warn("bootstrap_expect", what, "");
    }
    match expect {
        1 => check.warn("bootstrap_expect", "BootstrapExpect is set to 1; this is the same as Bootstrap mode.", ""),
        2 => check.warn(
            "bootstrap_expect",
            "bootstrap_expect = 2: A cluster with 2 servers will provide no failure tolerance.",
            "use 3 or 5 servers",
        ),
        n if n > 0 && n % 2 == 0 => check.warn(
            "bootstrap_expect",
            "bootstrap_expect is even number: A cluster with an even number of servers does not achieve optimum fault tolerance.",
            "use an odd number",
        ),
        _ => {}
    }
}

fn data_dir(check: &mut Check<'_>, surroundings: &Surroundings) {
    match &check.config.data_dir {
        None if !check.config.dev => {
            check.refuse(
                "data_dir",
                "data_dir cannot be empty",
                "set data_dir to a directory of this server's own",
            );
        }
        Some(dir) if surroundings.data_dir_is_file => {
            let what = format!(
                "data_dir {:?} is not a directory",
                dir.display().to_string()
            );
            check.refuse("data_dir", what, "");
        }
        _ => {}
    }
}

/// Consul's pattern is `[a-z0-9-_]+`. A name is a DNS label and part of certificates for ever, so
/// it must begin and end with a letter or digit, and what some PKI refuses is warned about (case C049).
fn datacenter(check: &mut Check<'_>, key: &str, name: &str) {
    let domain = &check.config.identity.domain;
    let written = check.settings.text(key);
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.is_empty() {
        return check.refuse(key, format!("{key} cannot be empty"), "");
    }
    if !name
        .chars()
        .all(|c| alphanumeric(c) || c == '-' || c == '_')
    {
        let remedy = if name.contains('.') {
            "a dot would split names such as server.<datacenter>.<domain>"
        } else {
            ""
        };
        return check.refuse(
            key,
            format!("{key} cannot be {name:?}. Please use only [a-z0-9-_]"),
            remedy,
        );
    }
    if !name.starts_with(alphanumeric) || !name.ends_with(alphanumeric) {
        let what =
            format!("{key} cannot be {name:?}. It must begin and end with a letter or digit");
        return check.refuse(key, what, "it becomes part of host names in certificates");
    }
    if name.len() > LABEL_BYTES {
        return check.refuse(
            key,
            format!("{key} is longer than {LABEL_BYTES} bytes"),
            "it becomes part of host names",
        );
    }
    let names =
        format!("names derived from it: server.{name}.{domain}, *.{name}.internal.<trust domain>");
    if written != name {
        check.warn(
            key,
            format!("{key} {written:?} is taken as {name:?}"),
            &names,
        );
    }
    if name.contains('_') {
        let what = format!(
            "{key} {name:?} has an underscore, which many certificate authorities refuse in names"
        );
        check.warn(key, what, names);
    }
}

fn domain(check: &mut Check<'_>, key: &str, domain: &str) {
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_');
        !label.is_empty()
            && label.len() <= LABEL_BYTES
            && inner
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !domain.split('.').all(label) {
        check.refuse(
            key,
            format!("{key} {domain:?} is not a DNS name"),
            "write labels of letters, digits and dashes: \"consul\"",
        );
    }
}

fn node_name(check: &mut Check<'_>) {
    let name = &check.config.identity.node_name;
    if name.is_empty() {
        return check.refuse(
            "node_name",
            "node_name cannot be empty",
            "the host has no name: set node_name",
        );
    }
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        let what = format!(
            "Node name {name:?} will not be discoverable via DNS due to invalid characters. Valid characters include all alpha-numerics and dashes."
        );
        check.warn("node_name", what, "");
    } else if name.len() > LABEL_BYTES {
        let what = format!(
            "Node name {name:?} will not be discoverable via DNS due to it being too long. Valid lengths are between 1 and 63 bytes."
        );
        check.warn("node_name", what, "");
    }
}

fn node_id(check: &mut Check<'_>) {
    let Some(id) = &check.config.identity.node_id else {
        return;
    };
    if uuid::Uuid::parse_str(id).is_err() || id.len() != 36 {
        check.refuse(
            "node_id",
            format!("node_id {id:?} is not a UUID"),
            "leave it out: one is made and kept in data_dir",
        );
    }
}

fn node_meta(check: &mut Check<'_>) {
    let meta = &check.config.identity.node_meta;
    if meta.len() > META_PAIRS {
        let what = format!(
            "node_meta invalid: Node metadata cannot contain more than {META_PAIRS} key/value pairs"
        );
        check.refuse("node_meta", what, format!("it has {}", meta.len()));
    }
    for (key, value) in meta {
        let why = if key.is_empty() {
            "Key cannot be blank".to_owned()
        } else if !key
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
        {
            "Key contains invalid characters".to_owned()
        } else if key.len() > META_KEY_BYTES {
            format!("Key is too long (limit: {META_KEY_BYTES} characters)")
        } else if key.starts_with("consul-") {
            "Key prefix 'consul-' is reserved for internal use".to_owned()
        } else if value.len() > META_VALUE_BYTES {
            format!("Value is too long (limit: {META_VALUE_BYTES} characters)")
        } else {
            continue;
        };
        let what =
            format!("node_meta invalid: Couldn't load metadata pair ('{key}', '{value}'): {why}");
        check.refuse("node_meta", what, "");
    }
}
