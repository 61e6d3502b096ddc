use super::*;
use proptest::prelude::*;
use regex::Regex;

fn options() -> Options {
    Options {
        node: Node {
            id: "gw-1".to_owned(),
            cluster: "mesh-gateway".to_owned(),
            name: "gw-host".to_owned(),
            datacenter: "dc1".to_owned(),
        },
        admin: "127.0.0.1:19000".parse().unwrap(),
        admin_access_log: "/dev/null".into(),
        control_plane: ControlPlane {
            endpoints: vec![Endpoint::Ip("127.0.0.1:8502".parse().unwrap())],
            ..ControlPlane::default()
        },
        stats: Stats::default(),
        ready: None,
        proxy_config: Map::new(),
    }
}

fn render_with(config: Value) -> Result<Value, Error> {
    let options = Options {
        proxy_config: config.as_object().unwrap().clone(),
        ..options()
    };
    render(&options, &|name| {
        (name == "HOST_IP").then(|| "10.0.0.9".to_owned())
    })
}

/// Which tags a cluster's statistic gets: the second group of each pattern, as Envoy reads it.
fn tags_of(cluster: &str) -> Vec<(String, String)> {
    let bootstrap = render(&options(), &|_| None).unwrap();
    let tags = bootstrap["stats_config"]["stats_tags"].as_array().unwrap();
    let statistic = format!("cluster.{cluster}.upstream_cx_total");
    let found = tags.iter().filter_map(|tag| {
        let regex = Regex::new(tag["regex"].as_str()?).unwrap();
        let groups = regex.captures(&statistic)?;
        assert_eq!(&groups[1], format!("{cluster}."));
        let name = tag["tag_name"]
            .as_str()?
            .strip_prefix("consul.destination.")?;
        Some((name.to_owned(), groups.get(2)?.as_str().to_owned()))
    });
    found.collect()
}

#[track_caller]
fn check_tags(cluster: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    assert_eq!(tags_of(cluster), expected);
}

#[test]
fn tags_are_cut_out_of_cluster_names() {
    let trust = "11111111-2222-3333-4444-555555555555";
    check_tags(
        &format!("web.default.dc1.internal.{trust}.consul"),
        &[
            ("service", "web"),
            ("namespace", "default"),
            ("datacenter", "dc1"),
            ("routing_type", "internal"),
            ("trust_domain", trust),
            ("target", "web.default.dc1"),
            ("full_target", &format!("web.default.dc1.internal.{trust}")),
        ],
    );
    check_tags(
        &format!("0a1b2c3d~v2.web.default.dc1.internal.{trust}.consul"),
        &[
            ("custom_hash", "0a1b2c3d"),
            ("service_subset", "v2"),
            ("service", "web"),
            ("namespace", "default"),
            ("datacenter", "dc1"),
            ("routing_type", "internal"),
            ("trust_domain", trust),
            ("target", "0a1b2c3d~v2.web.default.dc1"),
            (
                "full_target",
                &format!("0a1b2c3d~v2.web.default.dc1.internal.{trust}"),
            ),
        ],
    );
    check_tags("server.dc2.consul", &[]);
    check_tags(&format!("dc2.internal.{trust}.consul"), &[]);
}

#[test]
fn sinks_take_addresses_from_variables() {
    let bootstrap = render_with(json!({
        "envoy_statsd_url": "udp://${HOST_IP}:8125",
        "envoy_dogstatsd_url": "unix:///run/dog.sock",
        "envoy_stats_flush_interval": "500ms",
    }))
    .unwrap();
    let sinks = &bootstrap["stats_sinks"];
    let address = &sinks[0]["typed_config"]["address"]["socket_address"];
    assert_eq!(address["address"], "10.0.0.9");
    assert_eq!(
        sinks[1]["typed_config"]["address"]["pipe"]["path"],
        "/run/dog.sock"
    );
    assert_eq!(bootstrap["stats_flush_interval"], "0.5s");
}

#[test]
fn a_wrong_key_is_named_with_its_value_and_a_remedy() {
    let error = |config| render_with(config).unwrap_err().to_string();
    assert_eq!(
        error(json!({"envoy_statsd_url": "udp://${NOPE}:1"})),
        "proxy configuration envoy_statsd_url = \"udp://${NOPE}:1\": the variable NOPE is not set"
    );
    assert_eq!(
        error(json!({"envoy_prometheus_bind_addr": "9102"})),
        "proxy configuration envoy_prometheus_bind_addr = \"9102\": write ip:port, for example 0.0.0.0:9102"
    );
    assert!(error(json!({"envoy_tracing_json": "{"})).contains("not valid JSON"));
    assert!(error(json!({"envoy_bootstrap_json_tpl": "{}"})).contains("not supported"));
    assert!(error(json!({"envoy_stats_tags": "a=b"})).contains("write a list"));
    assert!(
        error(json!({"envoy_extra_static_clusters_json": "["})).contains("separated by commas")
    );
}

#[test]
fn hostile_texts_stay_texts() {
    let mut options = options();
    options.control_plane.token = "a\"b\\c\n".to_owned();
    options.node.id = "\"}".to_owned();
    let bootstrap = render(&options, &|_| None).unwrap();
    let again: Value = serde_json::from_str(&bootstrap.to_string()).unwrap();
    let service = &again["dynamic_resources"]["ads_config"]["grpc_services"][0];
    assert_eq!(service["initial_metadata"][0]["value"], "a\"b\\c\n");
    assert_eq!(again["node"]["id"], "\"}");
}

#[test]
fn the_cluster_type_follows_the_addresses() {
    let kind = |endpoints: Vec<Endpoint>| {
        let mut options = options();
        options.control_plane.endpoints = endpoints;
        render(&options, &|_| None).map(|b| {
            let cluster = &b["static_resources"]["clusters"][0];
            let extension = cluster["cluster_type"]["name"].as_str();
            extension
                .or(cluster["type"].as_str())
                .map(ToOwned::to_owned)
        })
    };
    let ip = || Endpoint::Ip("[::1]:8502".parse().unwrap());
    let dns = || Endpoint::Dns("xds.example.com".to_owned(), 8502);
    let unix = || Endpoint::Unix("/run/xds.sock".into());
    assert_eq!(kind(vec![ip()]).unwrap().as_deref(), Some("STATIC"));
    assert_eq!(kind(vec![unix()]).unwrap().as_deref(), Some("STATIC"));
    assert_eq!(
        kind(vec![ip(), dns()]).unwrap().as_deref(),
        Some("envoy.cluster.dns")
    );
    assert_eq!(kind(vec![unix(), ip()]).unwrap_err(), Error::MixedEndpoints);
    assert_eq!(kind(vec![]).unwrap_err(), Error::NoEndpoint);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,20}".prop_map(Value::from),
        "(udp|unix|tcp)://[$a-z0-9.:{}/]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{0,8}", inner, 0..4)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

proptest! {
    /// Whatever the configuration says, there is a document or an error that names the key.
    #[test]
    fn any_proxy_configuration_gives_a_document_or_names_a_key(
        key in prop::sample::select(vec![
            "envoy_statsd_url", "envoy_dogstatsd_url", "envoy_stats_tags", "envoy_prometheus_bind_addr",
            "envoy_stats_bind_addr", "envoy_bootstrap_json_tpl", "envoy_extra_static_clusters_json",
            "envoy_extra_static_listeners_json", "envoy_extra_stats_sinks_json", "envoy_stats_config_json",
            "envoy_stats_flush_interval", "envoy_tracing_json",
        ]),
        value in any_json(),
    ) {
        match render_with(json!({ key: value })) {
            Ok(document) => prop_assert!(document.is_object()),
            Err(error) => prop_assert!(error.to_string().contains(key)),
        }
    }
}
