//! Federation through mesh gateways: what it needs, and what it excludes (cases C006, C007, C012).

use crate::config::rules::Check;

const SWITCH: &str = "connect.enable_mesh_gateway_wan_federation";

pub(super) fn check(check: &mut Check<'_>) {
    if check.config.federation.through_gateways {
        requirements(check);
        advice(check);
    }
    primary_gateways(check);
}

fn requirements(check: &mut Check<'_>) {
    let config = check.config;
    if !config.connect.enabled && !check.settings.was_refused("connect.enabled") {
        let what = format!("'{SWITCH}=true' requires 'connect.enabled=true'");
        check.refuse(SWITCH, what, "connect.enabled is false");
    }
    if !config.server && !check.settings.was_refused("server") {
        check.refuse(
            SWITCH,
            format!("'{SWITCH} = true' requires 'server = true'"),
            "server is false",
        );
    }
    let name = &config.identity.node_name;
    if name.contains('/') {
        let what =
            format!("'{SWITCH} = true' requires that 'node_name' not contain '/' characters");
        check.refuse("node_name", what, format!("node_name is {name:?}"));
    }
    for (key, list) in [
        ("start_join_wan", &config.join.start_wan),
        ("retry_join_wan", &config.join.retry_wan),
    ] {
        if !list.is_empty() {
            let what = format!("'{key}' is incompatible with '{SWITCH} = true'");
            let remedy = format!(
                "{key} is {list:?}; name the primary's gateways in primary_gateways instead"
            );
            check.refuse(key, what, remedy);
        }
    }
    if config.ports.serf_wan.is_none() {
        let what = format!("'{SWITCH} = true' requires 'ports.serf_wan'");
        check.refuse(
            "ports.serf_wan",
            what,
            "ports.serf_wan is off: give it a port, such as 8302",
        );
    }
    let tls = &config.tls;
    let missing = [
        ("ca_file or ca_path", tls.has_ca()),
        ("cert_file", tls.cert_file.is_some()),
        ("key_file", tls.key_file.is_some()),
    ];
    let missing: Vec<_> = missing
        .iter()
        .filter(|(_, set)| !set)
        .map(|(key, _)| *key)
        .collect();
    if !missing.is_empty() {
        let what = format!("'{SWITCH} = true' requires a CA, a certificate and its key");
        let remedy = format!(
            "set {}; crossway tls ca create and tls cert create -server -node NAME make them",
            missing.join(", ")
        );
        check.refuse(SWITCH, what, remedy);
    }
}

fn advice(check: &mut Check<'_>) {
    let config = check.config;
    let name = &config.identity.node_name;
    if !config.tls.verify_server_hostname {
        let what = format!("'{SWITCH} = true' without 'verify_server_hostname = true'");
        check.warn(
            "verify_server_hostname",
            what,
            "inside the datacenter any certificate of the CA passes for a server",
        );
    }
    if !config.identity.is_primary() && config.federation.primary_gateways.is_empty() {
        let what = "a secondary datacenter without primary_gateways reaches the primary only from a state it already has";
        check.warn(
            "primary_gateways",
            what,
            "set primary_gateways to the WAN addresses of the primary's mesh gateways",
        );
    }
    if name.contains('.') {
        let what = format!(
            "node_name {name:?} has a dot: servers of Consul 1.8 in other datacenters cannot send gossip to it"
        );
        check.warn(
            "node_name",
            what,
            "take a name without dots if a Consul datacenter joins the federation",
        );
    }
    if !name.split('.').all(is_label) {
        let what = format!(
            "node_name {name:?} is not made of DNS labels: certificates for it may be refused"
        );
        check.warn(
            "node_name",
            what,
            "use lower-case letters, digits and dashes",
        );
    }
}

fn is_label(label: &str) -> bool {
    let inner = label
        .bytes()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    !label.is_empty()
        && label.len() <= 63
        && inner
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn primary_gateways(check: &mut Check<'_>) {
    let config = check.config;
    let gateways = &config.federation.primary_gateways;
    if gateways.is_empty() {
        return;
    }
    if !config.server {
        let remedy = format!("primary_gateways is {gateways:?}, server is false");
        check.refuse(
            "primary_gateways",
            "'primary_gateways' requires 'server = true'",
            remedy,
        );
    }
    if config.identity.is_primary() {
        let what = "'primary_gateways' should only be configured in a secondary datacenter";
        let remedy = format!(
            "datacenter and primary_datacenter are both {:?}",
            config.identity.datacenter
        );
        check.refuse("primary_gateways", what, remedy);
    }
    if !config.federation.through_gateways {
        let what = format!("primary_gateways is set, but '{SWITCH}' is not true");
        check.warn("primary_gateways", what, "the gateways are not used");
    }
}
