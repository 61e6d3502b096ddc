//! Ports and listeners that would collide, and headers that cannot be sent.

use crate::config::rules::Check;
use crate::config::settings::ListenAddr;
use http::HeaderName;
use http::HeaderValue;
use std::net::SocketAddr;

pub(super) fn check(check: &mut Check<'_>) {
    for (name, range) in [
        ("proxy", check.config.ports.proxy),
        ("sidecar", check.config.ports.sidecar),
        ("expose", check.config.ports.expose),
    ] {
        if range.max < range.min {
            let what = format!(
                "{name}_min_port must be less than {name}_max_port. To disable, set both to zero."
            );
            let remedy = format!("they are {} and {}", range.min, range.max);
            check.refuse(&format!("ports.{name}_min_port"), what, remedy);
        }
    }
    for (key, port) in [
        ("ports.server", check.config.ports.server),
        ("ports.serf_lan", check.config.ports.serf_lan),
    ] {
        if port == 0 && check.config.server {
            check.refuse(
                key,
                format!("{key} cannot be switched off on a server"),
                "give a port from 1 to 65535",
            );
        }
    }
    collisions(check);
    response_headers(check);
}

fn response_headers(check: &mut Check<'_>) {
    let key = "http_config.response_headers";
    for (name, value) in &check.config.http.response_headers {
        if name.parse::<HeaderName>().is_err() {
            let what = format!("{key}: {name:?} cannot be the name of a header");
            check.refuse(key, what, "use letters, digits and hyphens");
        } else if value.parse::<HeaderValue>().is_err() {
            let what = format!("{key}: the value of {name:?} cannot stand in a header");
            check.refuse(key, what, "use one line of visible characters");
        }
    }
}

/// A listener: its name, the key of its port, and where it listens.
type Listener = (&'static str, &'static str, ListenAddr);

fn listeners(check: &Check<'_>) -> Vec<Listener> {
    let addresses = &check.config.addresses;
    let mut out = Vec::new();
    let tcp = |addr: &SocketAddr| ListenAddr::Tcp(*addr);
    out.extend(
        addresses
            .dns
            .iter()
            .map(|addr| ("DNS", "ports.dns", tcp(addr))),
    );
    let named = [
        ("HTTP", "ports.http", &addresses.http),
        ("HTTPS", "ports.https", &addresses.https),
        ("gRPC", "ports.grpc", &addresses.grpc),
        ("gRPC TLS", "ports.grpc_tls", &addresses.grpc_tls),
    ];
    for (name, key, list) in named {
        out.extend(list.iter().map(|addr| (name, key, addr.clone())));
    }
    if check.config.server {
        out.push(("RPC", "ports.server", tcp(&addresses.rpc_bind)));
    }
    out.push(("Serf LAN", "ports.serf_lan", tcp(&addresses.serf_lan_bind)));
    if check.config.server {
        out.extend(
            addresses
                .serf_wan_bind
                .iter()
                .map(|addr| ("Serf WAN", "ports.serf_wan", tcp(addr))),
        );
    }
    out
}

fn collisions(check: &mut Check<'_>) {
    let all = listeners(check);
    for (index, (name, key, addr)) in all.iter().enumerate() {
        let earlier = all
            .iter()
            .take(index)
            .find(|(_, _, other)| collide(addr, other));
        if let Some((other_name, other_key, other)) = earlier {
            let what = format!("{name} address {addr} already configured for {other_name}");
            let remedy = if addr == other {
                format!("change {key} or {other_key}")
            } else {
                format!("{other_name} listens on {other}; change {key} or {other_key}")
            };
            let key = if check.settings.has(key) || !check.settings.has(other_key) {
                key
            } else {
                other_key
            };
            check.refuse(key, what, remedy);
        }
    }
}

/// Whether the system would refuse the second listener. Port 0 never collides.
fn collide(a: &ListenAddr, b: &ListenAddr) -> bool {
    match (a, b) {
        (ListenAddr::Tcp(a), ListenAddr::Tcp(b)) => {
            let any = a.ip().is_unspecified() || b.ip().is_unspecified();
            let same_family = a.is_ipv4() == b.is_ipv4();
            a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || (any && same_family))
        }
        (ListenAddr::Unix(a), ListenAddr::Unix(b)) => a == b,
        _ => false,
    }
}
