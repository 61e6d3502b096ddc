use super::*;
use crate::model::catalog::ConnectProxyConfig;
use crate::model::config_entry::ResolverSubset;
use crate::model::ids::Datacenter;
use crate::model::query::RegisterRequest;
use crate::model::{
    CaConfiguration, CaRoot, CheckServiceNode, CheckStatus, ConfigEntry, ConfigKind,
    FederationState, GoDuration, HealthCheck, Node, NodeService, ProxyDefaults, ServiceAddress,
    ServiceConnect, ServiceKind, ServiceResolver, Weights,
};
use crate::proxycfg::endpoint::{best_address, health_and_weight};
use crate::proxycfg::identify::identify;
use crate::store::{CaCommand, Command, ConfigOp, FederationCommand, State};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

pub(crate) fn place() -> Place {
    Place::new(&Datacenter::from("DC1"), "Consul.")
}

fn state(commands: &[Command]) -> State {
    let mut state = State::default();
    for command in commands {
        let _ = state.apply(state.last_index() + 1, command);
    }
    state
}

fn on(node: &str, service: NodeService, checks: Vec<HealthCheck>) -> Command {
    Command::Register(Box::new(RegisterRequest {
        node: node.into(),
        address: "10.0.0.1".to_owned(),
        datacenter: "dc1".into(),
        service: Some(service),
        checks,
        ..RegisterRequest::default()
    }))
}

fn named(name: &str, kind: ServiceKind) -> NodeService {
    NodeService {
        id: name.into(),
        service: name.into(),
        port: 8443,
        kind,
        ..NodeService::default()
    }
}

fn sidecar(of: &str, id: &str) -> NodeService {
    NodeService {
        id: id.into(),
        proxy: ConnectProxyConfig {
            destination_service_name: of.into(),
            ..ConnectProxyConfig::default()
        },
        ..named("proxy", ServiceKind::ConnectProxy)
    }
}

fn check(id: &str, status: CheckStatus) -> HealthCheck {
    HealthCheck {
        check_id: id.into(),
        status,
        ..HealthCheck::default()
    }
}

fn gateway(config: serde_json::Value) -> NodeService {
    let mut service = named("gw", ServiceKind::MeshGateway);
    service.address = "10.0.0.5".to_owned();
    service.proxy.config = serde_json::from_value(config).unwrap();
    for (tag, address, port) in [
        ("wan", "198.51.100.5", 443),
        ("lan", "10.0.0.5", 8443),
        ("lan_ipv4", "10.0.0.5", 8443),
    ] {
        let at = ServiceAddress {
            address: address.to_owned(),
            port,
        };
        service.tagged_addresses.insert(tag.to_owned(), at);
    }
    service
}

fn binds(service: &NodeService) -> Vec<String> {
    let binds = Gateway::of(service, None).binds;
    let text = |b: &Bind| format!("{}:{}:{}", b.name, b.address, b.port);
    binds.iter().map(text).collect()
}

#[test]
fn the_wan_address_goes_before_all_others_and_its_port_only_if_given() {
    let node = |wan: Option<&str>| Node {
        address: "10.0.0.1".to_owned(),
        tagged_addresses: wan
            .map(|a| ("wan".to_owned(), a.to_owned()))
            .into_iter()
            .collect(),
        ..Node::default()
    };
    let service = |address: &str, wan: Option<(&str, u16)>| {
        let mut service = named("gw", ServiceKind::MeshGateway);
        service.address = address.to_owned();
        let other = ServiceAddress {
            address: "192.0.2.99".to_owned(),
            port: 1,
        };
        service
            .tagged_addresses
            .insert("wan_ipv4".to_owned(), other);
        if let Some((address, port)) = wan {
            let address = address.to_owned();
            service
                .tagged_addresses
                .insert("wan".to_owned(), ServiceAddress { address, port });
        }
        service
    };
    for (node_wan, address, wan, lan_is, wan_is) in [
        (
            None,
            "10.0.0.5",
            Some(("w", 443)),
            ("10.0.0.5", 8443),
            ("w", 443),
        ),
        (
            None,
            "10.0.0.5",
            Some(("w", 0)),
            ("10.0.0.5", 8443),
            ("w", 8443),
        ),
        (
            Some("n"),
            "10.0.0.5",
            None,
            ("10.0.0.5", 8443),
            ("10.0.0.5", 8443),
        ),
        (Some("n"), "", None, ("10.0.0.1", 8443), ("n", 8443)),
        (None, "", None, ("10.0.0.1", 8443), ("10.0.0.1", 8443)),
        (
            Some("n"),
            "10.0.0.5",
            Some(("", 443)),
            ("10.0.0.5", 8443),
            ("n", 443),
        ),
    ] {
        let (node, service) = (node(node_wan), service(address, wan));
        assert_eq!(best_address(&node, &service, false), lan_is);
        assert_eq!(best_address(&node, &service, true), wan_is);
    }
}

#[test]
fn health_and_weight_follow_the_checks() {
    use CheckStatus::{Critical, Passing, Warning};
    let of = |weights: Option<(i64, i64)>, statuses: &[CheckStatus], only_passing| {
        let mut service = named("web", ServiceKind::Typical);
        service.weights = weights.map(|(passing, warning)| Weights { passing, warning });
        let checks = statuses.iter().map(|s| Arc::new(check("c", *s))).collect();
        let instance = CheckServiceNode {
            node: None,
            service: Some(Arc::new(service)),
            checks,
        };
        health_and_weight(&instance, only_passing)
    };
    use Health::{Healthy, Unhealthy};
    assert_eq!(of(None, &[], false), (Healthy, 1));
    assert_eq!(of(Some((10, 2)), &[Passing], false), (Healthy, 10));
    assert_eq!(of(Some((10, 2)), &[Passing, Warning], false), (Healthy, 2));
    assert_eq!(of(None, &[Warning], false), (Healthy, 1));
    assert_eq!(of(Some((10, 2)), &[Warning], true), (Unhealthy, 2));
    assert_eq!(
        of(Some((10, 2)), &[Passing, Critical], false),
        (Unhealthy, 10)
    );
    assert_eq!(of(Some((0, 0)), &[Passing], false), (Unhealthy, 1));
    assert_eq!(of(Some((-7, 0)), &[], true), (Unhealthy, 1));
    assert_eq!(of(Some((1 << 40, 1)), &[Passing], false), (Healthy, 128));
}

#[test]
fn a_host_is_an_address_or_a_name_and_nothing_else() {
    for good in [
        "10.0.0.1",
        "::1",
        "[2001:db8::1]",
        "gw.example.com",
        "gw.example.com.",
        "a_b-1",
    ] {
        assert!(Host::parse(good).is_some(), "{good}");
    }
    assert_eq!(Host::parse("[::1]").unwrap().to_string(), "::1");
    for bad in [
        "",
        ".",
        "999.1.1.1",
        "10.0.0",
        "a b",
        "a..b",
        "fe80::1%eth0",
        "http://x",
        "é",
        "1",
    ] {
        assert!(Host::parse(bad).is_none(), "{bad}");
    }
}

#[test]
fn binds_are_unique_and_in_a_fixed_order() {
    assert_eq!(binds(&gateway(json!({}))), ["default:10.0.0.5:8443"]);
    assert_eq!(
        binds(&gateway(
            json!({"envoy_gateway_bind_tagged_addresses": true})
        )),
        ["default:10.0.0.5:8443", "wan:198.51.100.5:443"]
    );
    let config = json!({
        "envoy_mesh_gateway_no_default_bind": "true",
        "envoy_mesh_gateway_bind_tagged_addresses": 1,
        "envoy_gateway_bind_addresses": {
            "b": {"Address": "0.0.0.0", "Port": "9000"}, "a": {"address": "::", "port": 9000.0},
            "twin": {"address": "198.51.100.5", "port": 443}, "bad": {"address": "x.example.com", "port": 1},
            "worse": {"address": "10.0.0.1", "port": 70000}, "worst": 7,
        },
    });
    let service = gateway(config);
    assert_eq!(
        binds(&service),
        [
            "lan:10.0.0.5:8443",
            "wan:198.51.100.5:443",
            "a::::9000",
            "b:0.0.0.0:9000"
        ]
    );
    assert_eq!(Gateway::of(&service, None).warnings.len(), 3);
    let mut bare = gateway(json!({}));
    bare.address.clear();
    assert_eq!(binds(&bare), ["default:0.0.0.0:8443"]);
}

#[test]
fn options_come_from_the_gateway_then_from_the_defaults_and_nonsense_is_named() {
    let defaults = ProxyDefaults {
        config: serde_json::from_value(json!({"connect_timeout_ms": 7, "envoy_dns_refresh_ms": 1}))
            .unwrap(),
        ..ProxyDefaults::default()
    };
    let of = |config| Gateway::of(&gateway(config), Some(&defaults));
    assert_eq!(of(json!({})).options.connect_timeout_ms, 7);
    assert_eq!(
        of(json!({"Connect_Timeout_MS": "9"}))
            .options
            .connect_timeout_ms,
        9
    );
    assert_eq!(
        of(json!({"connect_timeout_ms": 0}))
            .options
            .connect_timeout_ms,
        5_000
    );
    assert_eq!(of(json!({})).options.dns_refresh_ms, 1_000);
    assert_eq!(
        of(json!({"passive_health_check": "off"})).options.outlier,
        None
    );
    let wrong = of(json!({
        "connect_timeout_ms": -1, "envoy_dns_lookup_family": "v5", "envoy_gateway_no_default_bind": "maybe",
        "passive_health_check": {"interval": "soon", "max_ejection_percent": 101},
    }));
    assert_eq!(wrong.options.connect_timeout_ms, 5_000);
    assert_eq!(wrong.warnings.len(), 5, "{:?}", wrong.warnings);
    assert_eq!(
        wrong.warnings[1],
        "envoy_dns_lookup_family = \"v5\" is ignored: give v4_preferred, v4_only, v6_only, auto or all"
    );
}

#[test]
fn a_gateway_is_found_by_node_and_id_or_by_an_id_that_only_one_has() {
    let gw = |id: &str| NodeService {
        id: id.into(),
        ..named("gw", ServiceKind::MeshGateway)
    };
    let state = state(&[
        on("N1", gw("gw"), vec![]),
        on("n2", gw("gw"), vec![]),
        on("n2", gw("only"), vec![]),
        on("n3", sidecar("web", "only"), vec![]),
        on("n3", sidecar("web", "side"), vec![]),
        on("n3", named("web", ServiceKind::Typical), vec![]),
    ]);
    let gateway = |node: &str, id: &str| Identity::Gateway {
        node: node.into(),
        service: id.into(),
    };
    for (node, id, expected) in [
        (Some("n1"), "GW", gateway("N1", "gw")),
        (Some("n2"), "gw", gateway("n2", "gw")),
        (None, "only", gateway("n2", "only")),
        (
            None,
            "gw",
            Identity::Ambiguous(vec!["N1".into(), "n2".into()]),
        ),
        (
            None,
            "side",
            Identity::NotServed("connect-proxy".to_owned()),
        ),
        (
            Some("n3"),
            "only",
            Identity::NotServed("connect-proxy".to_owned()),
        ),
        (None, "web", Identity::NotServed(String::new())),
        (None, "none", Identity::Unknown),
        (Some("n4"), "gw", Identity::Unknown),
        (Some("n3"), "gw", Identity::Unknown),
    ] {
        assert_eq!(identify(&state, node, id), expected, "{node:?} {id}");
    }
}

fn ca(cluster_id: &str) -> Command {
    Command::Ca(CaCommand::SetRootsAndConfig {
        cas: 0,
        roots: vec![CaRoot {
            active: true,
            ..CaRoot::default()
        }],
        config_cas: 0,
        config: CaConfiguration {
            cluster_id: cluster_id.to_owned(),
            ..CaConfiguration::default()
        },
    })
}

fn deregister(node: &str, id: &str) -> Command {
    Command::Deregister {
        node: node.into(),
        service_id: id.into(),
        check_id: "".into(),
    }
}

#[test]
fn the_last_known_servers_stay_when_the_catalog_lists_none_any_more() {
    let mut state = state(&[on("s1", named("consul", ServiceKind::Typical), vec![])]);
    let view = View::build(&place(), &state, None);
    assert_eq!(view.servers.list.len(), 1);
    let before = state.clone();
    state.apply(9, &deregister("s1", "consul"));
    let without = view.update(&before, &state);
    assert_eq!(without.servers.list, view.servers.list);
    assert!(without.servers.outdated);
    assert_eq!(without.new_warnings(&view).len(), 1);
    let before = state.clone();
    state.apply(10, &on("s2", named("consul", ServiceKind::Typical), vec![]));
    let after = without.update(&before, &state);
    assert_eq!(after.topology.servers, [Arc::from("s2")]);
    assert!(!after.servers.outdated);
}

#[test]
fn what_is_missing_is_said() {
    let view = View::build(&place(), &State::default(), None);
    let mut service = gateway(json!({}));
    let ready = |service: &NodeService| check_ready(&view, &Gateway::of(service, None));
    assert_eq!(ready(&service), Err(NotReady::NoTrustDomain));
    service
        .meta
        .insert("consul-wan-federation".to_owned(), "1".to_owned());
    assert_eq!(ready(&service), Err(NotReady::NoServer("dc1".to_owned())));
    let view = View::build(&place(), &state(&[ca("x")]), None);
    service.meta.clear();
    service.address = "gw.example.com".to_owned();
    let why = check_ready(&view, &Gateway::of(&service, None)).unwrap_err();
    assert!(why.to_string().contains("gw.example.com"), "{why}");
}

fn any_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["web", "Web", "v1.web", "db", "*", "a b", ""])
}

fn any_node() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["n1", "N1", "n.2", "*", "server"])
}

fn any_address() -> impl Strategy<Value = &'static str> {
    let some = ["10.0.0.1", "", "gw.example.com", "999.1.1.1", "::1", "x y"];
    prop::sample::select(some.to_vec())
}

fn any_status() -> impl Strategy<Value = CheckStatus> {
    use CheckStatus::{Critical, Passing, Warning};
    prop::sample::select(vec![Passing, Warning, Critical])
}

fn any_datacenter() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["dc1", "DC2", "dc2", "server", "internal", "a.b", "x"])
}

fn any_instance() -> impl Strategy<Value = Command> {
    let parts = (
        any_name(),
        any_node(),
        any_address(),
        any_status(),
        0u16..3,
        0usize..4,
    );
    parts.prop_map(|(name, node, address, status, port, kind)| {
        let mut service = match kind {
            0 => named("consul", ServiceKind::Typical),
            1 => NodeService {
                connect: ServiceConnect { native: true },
                ..named(name, ServiceKind::Typical)
            },
            2 => gateway(json!({"envoy_gateway_bind_tagged_addresses": true})),
            _ => sidecar(name, name),
        };
        service.address = address.to_owned();
        service.port = port;
        let mut found = check("c", status);
        found.service_id = service.id.clone();
        on(node, service, vec![found])
    })
}

fn any_node_check() -> impl Strategy<Value = Command> {
    (any_node(), any_status()).prop_map(|(node, status)| {
        Command::Register(Box::new(RegisterRequest {
            node: node.into(),
            address: "10.0.0.1".to_owned(),
            datacenter: "dc1".into(),
            check: Some(check("serfHealth", status)),
            ..RegisterRequest::default()
        }))
    })
}

fn any_record() -> impl Strategy<Value = Command> {
    let parts = (any_datacenter(), any_address(), any_status(), any::<bool>());
    parts.prop_map(|(dc, address, status, none)| {
        let mut service = named("gw", ServiceKind::MeshGateway);
        service.address = address.to_owned();
        let gateway = CheckServiceNode {
            node: Some(Arc::new(Node::default())),
            service: Some(Arc::new(service)),
            checks: vec![Arc::new(check("c", status))],
        };
        let nil = CheckServiceNode::default();
        Command::Federation(FederationCommand::Upsert(FederationState {
            datacenter: dc.into(),
            mesh_gateways: if none { vec![nil] } else { vec![gateway, nil] },
            ..FederationState::default()
        }))
    })
}

fn any_resolver() -> impl Strategy<Value = Command> {
    let filters = ["", "Service.Meta.v == 1", "Service.", "Checks is empty"];
    let filter = prop::sample::select(filters.to_vec());
    let parts = (any_name(), any_name(), filter, 0i64..2);
    parts.prop_map(|(name, subset, filter, timeout)| {
        let rule = ResolverSubset {
            filter: filter.to_owned(),
            only_passing: timeout == 1,
        };
        let resolver = ServiceResolver {
            name: name.to_owned(),
            default_subset: subset.to_owned(),
            subsets: [("v1".to_owned(), rule.clone()), (subset.to_owned(), rule)].into(),
            connect_timeout: GoDuration(timeout * 1_000_000),
            ..ServiceResolver::default()
        };
        Command::Config(ConfigOp::Upsert(ConfigEntry::ServiceResolver(resolver)))
    })
}

/// One write: everything that a view is made of, often the same names again.
pub(crate) fn command() -> impl Strategy<Value = Command> {
    let kind = ConfigKind::ServiceResolver;
    let no_resolver =
        any_name().prop_map(move |name| Command::Config(ConfigOp::Delete(kind, name.to_owned())));
    let gone = (any_node(), any_name()).prop_map(|(node, name)| deregister(node, name));
    let delete = |dc: &str| Command::Federation(FederationCommand::Delete(dc.into()));
    prop_oneof![
        6 => any_instance(),
        2 => any_node_check(),
        2 => any_record(),
        2 => any_resolver(),
        1 => no_resolver,
        2 => gone,
        1 => any_datacenter().prop_map(delete),
        1 => Just(ca("0D1")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A view that follows the changes is the one made of the whole state, and its parts are those of before where
    /// nothing changed.
    #[test]
    fn following_the_changes_leads_to_the_same_view(commands in prop::collection::vec(command(), 1..40)) {
        let mut state = State::default();
        let mut view = View::build(&place(), &state, None);
        for command in &commands {
            let before = state.clone();
            let _ = state.apply(state.last_index() + 1, command);
            let next = view.update(&before, &state);
            let whole = View::build(&place(), &state, Some(&view));
            prop_assert_eq!(&next, &whole);
            prop_assert_eq!(next.same(&view), next == view);
            view = next;
        }
    }
}
