//! Entries that are taken, and the reasons for which others are refused.

use super::*;
use crate::discovery::aws::AddressType;

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(Source::parse(text).unwrap_err().to_string(), expected);
}

fn kubernetes(text: &str) -> kubernetes::Query {
    match Source::parse(text).unwrap().kind {
        Kind::Kubernetes(query) => query,
        other => panic!("{other:?}"),
    }
}

fn aws(text: &str) -> aws::Query {
    match Source::parse(text).unwrap().kind {
        Kind::Aws(query) => query,
        other => panic!("{other:?}"),
    }
}

#[test]
fn addresses_are_dynamic_when_dns_answers_for_them() {
    assert!(!Source::parse("10.0.0.1:8301").unwrap().is_dynamic());
    assert!(!Source::parse(" [2001:db8::1] ").unwrap().is_dynamic());
    assert!(Source::parse("gw.example:443").unwrap().is_dynamic());
    assert!(Source::parse("exec=/bin/true").unwrap().is_dynamic());
    assert_eq!(
        Source::parse("10.0.0.1:x").unwrap_err().to_string(),
        "\"10.0.0.1:x\": \"x\" is no port; write a number from 1 to 65535 after the colon"
    );
}

#[test]
fn kubernetes_keys() {
    let query = kubernetes(
        "provider=k8s label_selector=\"app=consul,component=server\" namespace=mesh host_network=true",
    );
    assert_eq!(query.namespace, "mesh");
    assert_eq!(query.label_selector, "app=consul,component=server");
    assert!(query.host_network);
    assert_eq!(query.kubeconfig, None);
    let query = kubernetes("provider=k8s");
    assert_eq!(
        (query.namespace.as_str(), query.host_network),
        ("default", false)
    );
    refused(
        "provider=k8s labels=x",
        "\"provider=k8s labels=x\": provider=k8s has no key \"labels\"; its keys are kubeconfig, namespace, \
         label_selector, field_selector, host_network",
    );
    refused(
        "provider=k8s host_network=maybe",
        "\"provider=k8s host_network=maybe\": host_network is \"maybe\"; write true or false",
    );
    refused(
        "provider=k8s namespace=../x",
        "\"provider=k8s namespace=../x\": namespace is \"../x\"; a namespace has at most 63 lower-case letters, digits and hyphens",
    );
}

/// The specification's CFG-9: tags are read and a key that comes twice is refused.
#[test]
fn aws_keys() {
    let query = aws(
        "provider=aws tag_key=gateway tag_value=\"primary gw\" region=eu-west-1 addr_type=public_v4",
    );
    assert_eq!(
        (query.tag_key.as_str(), query.tag_value.as_str()),
        ("gateway", "primary gw")
    );
    assert_eq!(query.region.as_deref(), Some("eu-west-1"));
    assert_eq!(query.address_type, AddressType::PublicV4);
    refused(
        "provider=aws tag_key=a tag_key=b",
        "\"provider=aws tag_key=a tag_key=b\": duplicate key \"tag_key\"; write key=value pairs with spaces between them, \
         each key once, and values with spaces in double quotes",
    );
    refused(
        "provider=aws tag_key=a",
        "\"provider=aws tag_key=a\": tag_value is missing; write provider=aws tag_key=KEY tag_value=VALUE",
    );
    refused(
        "provider=aws tag_key=a tag_value=b region=x.evil/",
        "\"provider=aws tag_key=a tag_value=b region=x.evil/\": region is \"x.evil/\"; write a name such as eu-west-1",
    );
    refused(
        "provider=aws tag_key=a tag_value=b access_key_id=AK",
        "\"provider=aws tag_key=a tag_value=b access_key_id=AK\": access_key_id and secret_access_key go together; give \
         both, or none to use the environment or the instance's role",
    );
}

/// Every provider of go-discover is known by name.
#[test]
fn other_providers_are_told_what_to_use() {
    let names = providers::FOREIGN.map(|known| known.name);
    let all = "aliyun azure digitalocean gce linode mdns os packet scaleway softlayer tencentcloud triton vsphere";
    assert_eq!(names.join(" "), all);
    for name in names {
        let error =
            Source::parse(&format!("provider={name} tag_name=x zone_pattern=.*")).unwrap_err();
        assert_eq!(error.what, format!("provider {name:?} is not built in"));
        assert!(error.remedy.contains("exec=/path/to/program"), "{error}");
    }
    let error = Source::parse("provider=nope").unwrap_err();
    assert_eq!(error.what, "there is no provider \"nope\"");
    assert!(error.remedy.contains("provider=k8s"), "{error}");
}

#[test]
fn secrets_do_not_show() {
    let text = "provider=aws tag_key=a tag_value=b access_key_id=AK secret_access_key=hush";
    let source = Source::parse(text).unwrap();
    let shown = format!("{source} {source:?}");
    assert!(!shown.contains("hush"), "{shown}");
    assert!(
        shown.starts_with("provider=aws tag_key=a tag_value=b access_key_id=AK..."),
        "{shown}"
    );
    assert!(!format!("{:?}", source.kind).contains("hush"));
    for wrong in [
        "provider=aws secret_access_key=hush",
        "provider=aws x secret_access_key=hush",
        "provider=azure secret_access_key=\"hush",
        "provider=digitalocean api_token=hush",
    ] {
        let error = Source::parse(wrong).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"), "{error}");
    }
}

#[test]
fn long_entries_are_refused() {
    let error = Source::parse(&"a".repeat(5000)).unwrap_err();
    assert!(error.what.contains("5000 bytes"), "{error}");
    assert!(error.value.len() < 300);
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "(exec=|provider=(k8s|aws) )?[a-z_=\"\\\\/ :0-9]{0,80}") {
        let _ = Source::parse(&text);
    }
}
