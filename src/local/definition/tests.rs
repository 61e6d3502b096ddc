use super::*;
use crate::local::checks::Limits;
use crate::model::catalog::META_WAN_FEDERATION;
use crate::model::{NodeService, ServiceKind};
use serde_json::{Value, json};

#[track_caller]
fn refused(value: &Value) -> String {
    let parsed = ServiceDefinition::parse(value);
    parsed
        .and_then(|d| d.validate(Limits::default()))
        .unwrap_err()
        .to_string()
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[test]
fn refusals_are_worded_as_consul_words_them() {
    let w = |mut more: Value| {
        more.as_object_mut()
            .unwrap()
            .insert("Name".into(), "w".into());
        more
    };
    for (value, text) in [
        (json!({}), "Missing service name"),
        (json!(null), "Missing service name"),
        (w(json!({"Address": "0.0.0.0"})), "Invalid service address"),
        (w(json!({"Address": "::"})), "Invalid service address"),
        (w(json!({"Foo": 1})), "json: unknown field \"Foo\""),
        (
            w(json!({"Proxy": {"Foo": 1}})),
            "json: unknown field \"Foo\"",
        ),
        (
            w(json!({"Check": {"TTL": "9s", "Foo": 1}})),
            "json: unknown field \"Foo\"",
        ),
        (
            w(json!({"Port": "abc"})),
            "json: cannot unmarshal string into Go struct field .Port of type int",
        ),
        (
            w(json!({"Port": 1.5})),
            "json: cannot unmarshal number 1.5 into Go struct field .Port of type int",
        ),
        (
            w(json!({"Tags": "x"})),
            "json: cannot unmarshal string into Go struct field .Tags of type []string",
        ),
        (
            w(json!({"Tags": [1]})),
            "json: cannot unmarshal number into Go struct field .Tags of type string",
        ),
        (
            w(json!({"Meta": {"a": 1}})),
            "json: cannot unmarshal number into Go struct field .Meta of type string",
        ),
        (
            w(json!({"Check": {"Name": 1}})),
            "json: cannot unmarshal number into Go struct field .Check of type string",
        ),
        (
            w(json!({"Check": {"TTL": "x"}})),
            "time: invalid duration \"x\"",
        ),
        (
            w(json!({"Check": {"TTL": "10"}})),
            "time: missing unit in duration \"10\"",
        ),
        (
            w(json!({"Check": {"TTL": "1x"}})),
            "time: unknown unit \"x\" in duration \"1x\"",
        ),
        (
            w(json!({"Check": {"Name": "c"}})),
            "Invalid check: TTL must be > 0 for TTL checks",
        ),
        (
            w(json!({"Check": {"TCP": "1"}})),
            "Invalid check: Interval must be > 0 for Script, HTTP, or TCP checks",
        ),
        (
            w(json!({"Check": {"TTL": "1s", "Status": "foo"}})),
            "Status for checks must 'passing', 'warning', 'critical'",
        ),
        (
            w(json!({"Weights": {"Passing": 0, "Warning": 1}})),
            "Invalid Weights: Passing must be greater than 0",
        ),
        (
            w(json!({"Weights": {"Passing": 70000}})),
            "Invalid Weights: DNS Weight must be between 0 and 65535",
        ),
        (
            w(json!({"Meta": {"": "x"}})),
            "Invalid Service Meta: Couldn't load metadata pair ('', 'x'): Key cannot be blank",
        ),
        (
            w(json!({"Meta": {"consul-wan-federation": "1"}})),
            "Invalid Service Meta: Couldn't load metadata pair ('consul-wan-federation', '1'): Key prefix 'consul-' is reserved for internal use",
        ),
        (
            w(json!({"Kind": "mesh-gateway"})),
            "1 error occurred:\n\t* Port must be non-zero for a mesh-gateway\n\n",
        ),
        (
            w(json!({"Kind": "connect-proxy"})),
            "2 errors occurred:\n\t* Proxy.DestinationServiceName must be non-empty for Connect proxy services\n\t* Port must be set for a Connect proxy\n\n",
        ),
        (
            w(json!({"Connect": {"SidecarService": {"Connect": {"SidecarService": {}}}}})),
            "1 error occurred:\n\t* A SidecarService cannot have a nested SidecarService\n\n",
        ),
    ] {
        assert_eq!(refused(&value), text, "{value}");
    }
    assert!(refused(&w(json!({"Connect": {"SidecarService": {}}}))).contains("connect-proxy"));
    assert!(refused(&json!({"Name": "x", "ID": "Consul"})).contains("reserved"));
    assert!(refused(&w(json!({"Port": 70000}))).contains("0 to 65535"));
    assert!(refused(&w(json!({"Check": {"GRPC": "a", "Interval": "1s"}}))).contains("grpc"));
}

#[test]
fn keys_are_found_in_both_spellings() {
    let gateway = json!({
        "kind": "mesh-gateway", "name": "gw", "port": 8443, "address": "10.0.0.1",
        "tagged_addresses": {"wan": {"address": "1.2.3.4", "port": 443}},
        "enable_tag_override": true,
        "meta": {"consul-wan-federation": "1", "Own_Key": "kept"},
        "proxy": {"config": {"envoy_gateway_no_default_bind": true}},
        "check": {"TCP": "10.0.0.1:8443", "interval": "10s", "deregister_critical_service_after": "6h"},
    });
    let mut got = ServiceDefinition::parse(&gateway).unwrap();
    got.validate(Limits::default()).unwrap();
    got.complete();
    let service = &got.service;
    assert_eq!(service.kind, ServiceKind::MeshGateway);
    assert_eq!(
        (service.id.as_str(), service.enable_tag_override),
        ("gw", true)
    );
    assert_eq!(service.meta["Own_Key"], "kept");
    assert_eq!(service.proxy.config["envoy_gateway_no_default_bind"], true);
    let at = |name: &str| {
        let address = &service.tagged_addresses[name];
        (address.address.clone(), address.port)
    };
    assert_eq!(at("wan"), ("1.2.3.4".into(), 443));
    assert_eq!(at("wan_ipv4"), ("10.0.0.1".into(), 8443));
    assert_eq!(at("lan_ipv4"), ("10.0.0.1".into(), 8443));
    let run = &got.checks[0].run;
    assert_eq!(run.deregister_critical_service_after.to_string(), "6h0m0s");
    let check = CheckDefinition::parse(&json!({
        "id": "c", "name": "n", "http": "http://h", "method": "post", "interval": "10s",
        "header": {"x": ["a", "b"]}, "tls_skip_verify": true, "failures_before_critical": 2,
    }));
    assert!(check.unwrap().run.tls_skip_verify);
}

#[test]
fn a_check_alone_needs_a_name_of_its_own() {
    for (value, text) in [
        (json!({}), "Missing check name"),
        (
            json!({"Name": "c", "TTL": "1s", "Status": "x"}),
            "Bad check status",
        ),
        (
            json!({"Name": "c"}),
            "Invalid check: TTL must be > 0 for TTL checks",
        ),
    ] {
        let error = CheckDefinition::parse(&value).and_then(|c| c.validate(Limits::default()));
        assert_eq!(error.unwrap_err().to_string(), text);
    }
    let reserved = CheckDefinition::parse(&json!({"Name": "serfhealth", "TTL": "1s"})).unwrap();
    let error = reserved.validate(Limits::default()).unwrap_err();
    assert!(error.to_string().contains("reserved"), "{error}");
}

#[test]
fn only_one_marks_a_gateway_for_federation() {
    for (value, useless) in [("1", None), ("true", Some("true")), ("0", Some("0"))] {
        let mut service = NodeService::default();
        service
            .meta
            .insert(META_WAN_FEDERATION.into(), value.into());
        assert_eq!(useless_federation_mark(&service), useless);
    }
}

proptest::proptest! {
    #[test]
    fn any_value_is_read_or_refused(text in "\\PC{0,40}", number: i64) {
        let value = json!({"Name": text, "Port": number, "Check": {"TTL": text, "Interval": number}});
        let _ = ServiceDefinition::parse(&value).map(|d| d.validate(Limits::default()));
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let _ = ServiceDefinition::parse(&value);
            let _ = CheckDefinition::parse(&value);
        }
    }
}

#[test]
fn tokens_are_not_shown() {
    let check = json!({"Name": "c", "TTL": "1s", "Token": "s3cr3t"});
    let service = json!({"Name": "web", "Token": "s3cr3t", "Check": check});
    let definition = ServiceDefinition::parse(&service).unwrap();
    assert_eq!(definition.token.expose(), "s3cr3t");
    assert!(!format!("{definition:?}").contains("s3cr3t"));
}
