//! Which gRPC addresses Envoy gets, and whether it speaks TLS to them.
//!
//! TLS follows the gRPC address's scheme or what the server says about its ports, never the scheme of the HTTP
//! address: the two ports are configured apart.

use crate::bootstrap::Endpoint;
use serde_json::Value;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;

/// Port assumed when the server does not say.
const DEFAULT_GRPC_PORT: u16 = 8502;

/// What `/v1/agent/self` says that matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerInfo {
    /// The server's datacenter.
    pub(crate) datacenter: String,
    /// The server's own node.
    pub(crate) node: String,
    /// DNS domain of the cluster, without the trailing dot.
    pub(crate) domain: String,
    /// Whether tokens are checked.
    pub(crate) acls: bool,
    plain_port: Option<u16>,
    tls_port: Option<u16>,
    /// Whether the server said anything about its gRPC ports.
    ports_known: bool,
    /// Whether gRPC is reachable from its own host only.
    loopback_only: bool,
}

impl ServerInfo {
    /// Reads the body of `/v1/agent/self`, Crossway's, Consul 1.8's or a later one's.
    pub(crate) fn parse(body: &Value) -> Self {
        let text = |path: &str| {
            let value = body.pointer(path).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let number = |path: &str| body.pointer(path).and_then(Value::as_i64);
        // Zero and negative ports mean "switched off".
        let port = |first: &str, second: &str| {
            number(first)
                .or_else(|| number(second))
                .map(|port| u16::try_from(port).ok().filter(|port| *port != 0))
        };
        let plain = port("/xDS/Ports/Plaintext", "/DebugConfig/GRPCPort");
        let tls = port("/xDS/Ports/TLS", "/DebugConfig/GRPCTLSPort");
        let domain = text("/DebugConfig/DNSDomain");
        Self {
            datacenter: text("/Config/Datacenter"),
            node: text("/Config/NodeName"),
            domain: match domain.trim_matches('.') {
                "" => "consul".to_owned(),
                domain => domain.to_owned(),
            },
            acls: body
                .pointer("/DebugConfig/ACLsEnabled")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            ports_known: plain.is_some() || tls.is_some(),
            plain_port: plain.flatten(),
            tls_port: tls.flatten(),
            loopback_only: loopback_only(body),
        }
    }

    /// Name in every server's certificate.
    pub(crate) fn server_name(&self) -> String {
        format!("server.{}.{}", self.datacenter, self.domain)
    }
}

fn loopback_only(body: &Value) -> bool {
    let listed = |path: &str| body.pointer(path).and_then(Value::as_array);
    let addresses: Vec<IpAddr> = listed("/DebugConfig/GRPCAddrs")
        .into_iter()
        .chain(listed("/DebugConfig/GRPCTLSAddrs"))
        .flatten()
        .filter_map(|address| address.as_str()?.rsplit_once("://")?.1.parse().ok())
        .map(|address: SocketAddr| address.ip())
        .collect();
    !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback)
}

/// Where Envoy connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    /// All addresses, without doubles.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Whether they speak TLS.
    pub(crate) tls: bool,
    /// Names in `https://` addresses; the server's certificate may carry one of these instead of the usual name.
    pub(crate) names: Vec<String>,
    /// Something the user should know.
    pub(crate) notice: Option<String>,
}

/// Why there is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error(
        "gRPC address {0:?} cannot be used: write [http(s)://]host:port or unix:///path in -grpc-addr or CONSUL_GRPC_ADDR"
    )]
    Address(String),
    #[error("gRPC addresses with https:// and without it cannot be mixed: {0}")]
    Mixed(String),
    #[error(
        "gRPC is switched off on the server: set ports.grpc (8502) or ports.grpc_tls (8503) there, or give another server with -grpc-addr"
    )]
    SwitchedOff,
    #[error(
        "the server offers gRPC with TLS only: give its CA with -grpc-ca-file, CONSUL_GRPC_CACERT or -ca-file"
    )]
    NeedsCa,
}

/// The addresses given by flag or variable.
pub(crate) fn given(addresses: &[String]) -> Result<Targets, TargetError> {
    let mut targets = Targets {
        endpoints: Vec::new(),
        tls: false,
        names: Vec::new(),
        notice: None,
    };
    let mut schemes = Vec::new();
    for text in addresses {
        let (tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(("unix", path)) if !path.is_empty() => {
                targets.endpoints.push(Endpoint::Unix(path.into()));
                continue;
            }
            Some(_) => return Err(TargetError::Address(text.clone())),
            None => (false, text.as_str()),
        };
        let endpoint = endpoint(rest.trim_end_matches('/'))
            .ok_or_else(|| TargetError::Address(text.clone()))?;
        if let (true, Endpoint::Dns(name, _)) = (tls, &endpoint) {
            targets.names.push(name.clone());
        }
        targets.endpoints.push(endpoint);
        schemes.push(tls);
    }
    targets.tls = schemes.first() == Some(&true);
    if schemes.iter().any(|tls| *tls != targets.tls) {
        return Err(TargetError::Mixed(addresses.join(", ")));
    }
    dedup(&mut targets.endpoints);
    Ok(targets)
}

/// `host:port`; `localhost` and an empty host are this host.
fn endpoint(text: &str) -> Option<Endpoint> {
    if let Ok(address) = text.parse() {
        return Some(Endpoint::Ip(address));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    match host {
        "" | "localhost" => Some(Endpoint::Ip((Ipv4Addr::LOCALHOST, port).into())),
        host if host.contains([':', '/', '@']) => None,
        host => Some(Endpoint::Dns(host.to_owned(), port)),
    }
}

/// All servers' addresses, from what one server says and the catalog's instances of `consul`.
///
/// `http_host` is the host of the HTTP address, `servers` the catalog's (node, address) pairs, `has_ca` whether a CA
/// for the gRPC port is known.
pub(crate) fn discovered(
    info: &ServerInfo,
    http_host: Option<&str>,
    servers: &[(String, String)],
    has_ca: bool,
) -> Result<Targets, TargetError> {
    let mut notice = None;
    let (port, tls) = match (info.tls_port, info.plain_port) {
        (Some(port), _) if has_ca => (port, true),
        (_, Some(port)) => (port, false),
        (Some(_), None) => return Err(TargetError::NeedsCa),
        (None, None) if info.ports_known => return Err(TargetError::SwitchedOff),
        (None, None) => {
            notice = Some(format!(
                "the server does not say on which port it offers gRPC: using the default port {DEFAULT_GRPC_PORT}"
            ));
            (DEFAULT_GRPC_PORT, false)
        }
    };
    let http_host = http_host.unwrap_or("localhost");
    let contacted = endpoint(&format_host(http_host, port));
    let is_local = matches!(&contacted, Some(Endpoint::Ip(a)) if a.ip().is_loopback());
    let mut endpoints: Vec<_> = contacted.into_iter().collect();
    let names = match (&endpoints[..], tls) {
        ([Endpoint::Dns(name, _)], true) => vec![name.clone()],
        _ => Vec::new(),
    };
    // A server whose gRPC listens on loopback only cannot be reached by its catalog address, and neither can its like.
    if !info.loopback_only {
        for (node, address) in servers {
            let is_contacted = *node == info.node && is_local;
            if !is_contacted && let Some(other) = endpoint(&format_host(address, port)) {
                endpoints.push(other);
            }
        }
        // The catalog holds the contacted server by its address: its DNS name beside it would count it twice.
        let has_addresses = endpoints.iter().any(|e| matches!(e, Endpoint::Ip(_)));
        if has_addresses {
            endpoints.retain(|e| !matches!(e, Endpoint::Dns(name, _) if name == http_host));
        }
    }
    dedup(&mut endpoints);
    Ok(Targets {
        endpoints,
        tls,
        names,
        notice,
    })
}

fn format_host(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Sorted, so that the same servers give the same bootstrap.
fn dedup(endpoints: &mut Vec<Endpoint>) {
    endpoints.sort();
    endpoints.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info(ports: Value, addresses: &[&str]) -> ServerInfo {
        ServerInfo::parse(&json!({
            "Config": {"Datacenter": "dc1", "NodeName": "s1"},
            "DebugConfig": {"DNSDomain": "consul.", "GRPCPort": ports["plain"], "GRPCAddrs": addresses},
            "xDS": {"Ports": {"TLS": ports["tls"], "Plaintext": ports["plain"]}},
        }))
    }

    fn servers() -> Vec<(String, String)> {
        [("s1", "10.0.0.1"), ("s2", "10.0.0.2"), ("s3", "fd00::3")]
            .map(|(node, address)| (node.to_owned(), address.to_owned()))
            .to_vec()
    }

    #[track_caller]
    fn check(got: Result<Targets, TargetError>, tls: bool, expected: &[&str]) {
        let got = got.unwrap();
        let texts: Vec<_> = got
            .endpoints
            .iter()
            .map(|endpoint| match endpoint {
                Endpoint::Ip(address) => address.to_string(),
                Endpoint::Dns(name, port) => format!("{name}:{port}"),
                Endpoint::Unix(path) => path.display().to_string(),
            })
            .collect();
        assert_eq!(
            (got.tls, texts),
            (tls, expected.iter().map(ToString::to_string).collect())
        );
    }

    #[test]
    fn all_servers_are_endpoints() {
        let any = info(json!({"plain": 8502, "tls": -1}), &["tcp://0.0.0.0:8502"]);
        check(
            discovered(&any, Some("10.0.0.2"), &servers(), false),
            false,
            &["10.0.0.1:8502", "10.0.0.2:8502", "[fd00::3]:8502"],
        );
        check(
            discovered(&any, Some("127.0.0.1"), &servers(), false),
            false,
            &["10.0.0.2:8502", "127.0.0.1:8502", "[fd00::3]:8502"],
        );
        check(
            discovered(&any, Some("consul.example.com"), &[], false),
            false,
            &["consul.example.com:8502"],
        );
    }

    #[test]
    fn a_server_on_loopback_is_alone() {
        let local = info(json!({"plain": 8502}), &["tcp://127.0.0.1:8502"]);
        check(
            discovered(&local, Some("localhost"), &servers(), false),
            false,
            &["127.0.0.1:8502"],
        );
    }

    #[test]
    fn tls_needs_a_ca_and_ignores_the_http_scheme() {
        let both = info(json!({"plain": 8502, "tls": 8503}), &[]);
        check(
            discovered(&both, Some("10.0.0.1"), &[], true),
            true,
            &["10.0.0.1:8503"],
        );
        check(
            discovered(&both, Some("10.0.0.1"), &[], false),
            false,
            &["10.0.0.1:8502"],
        );
        let tls = info(json!({"plain": -1, "tls": 8503}), &[]);
        assert_eq!(
            discovered(&tls, None, &[], false),
            Err(TargetError::NeedsCa)
        );
        let off = info(json!({"plain": -1, "tls": -1}), &[]);
        assert_eq!(
            discovered(&off, None, &[], true),
            Err(TargetError::SwitchedOff)
        );
    }

    #[test]
    fn given_addresses() {
        let parse =
            |texts: &[&str]| given(&texts.iter().map(ToString::to_string).collect::<Vec<_>>());
        check(parse(&["10.0.0.1:8502"]), false, &["10.0.0.1:8502"]);
        check(parse(&["localhost:8502"]), false, &["127.0.0.1:8502"]);
        check(
            parse(&["https://xds.example.com:8503", "https://[::1]:8503/"]),
            true,
            &["[::1]:8503", "xds.example.com:8503"],
        );
        check(parse(&["unix:///run/xds.sock"]), false, &["/run/xds.sock"]);
        for wrong in ["10.0.0.1", "ftp://a:1", "host:0", "http://a:b:1", "unix://"] {
            assert_eq!(parse(&[wrong]), Err(TargetError::Address(wrong.to_owned())));
        }
        assert!(matches!(
            parse(&["https://a:1", "http://a:2"]),
            Err(TargetError::Mixed(_))
        ));
    }

    proptest::proptest! {
        #[test]
        fn any_server_description_gives_targets_or_an_error(
            plain in proptest::option::of(proptest::prelude::any::<i64>()),
            tls in proptest::option::of(proptest::prelude::any::<i64>()),
            address in "[tcp:/0-9.\\[\\]]{0,24}",
            host in "[a-z0-9.:]{0,16}",
            has_ca: bool,
        ) {
            let info = info(json!({"plain": plain, "tls": tls}), &[&address]);
            if let Ok(targets) = discovered(&info, Some(&host), &servers(), has_ca) {
                proptest::prop_assert!(has_ca || !targets.tls);
            }
        }
    }
}
