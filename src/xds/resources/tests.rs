//! Tests of the encoding and of the sets.

use envoy_types::pb::envoy::config::cluster::v3::cluster::EdsClusterConfig;
use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;

use super::*;

fn named(name: &str, content: &str) -> Resource {
    let cluster = Cluster {
        name: name.to_owned(),
        alt_stat_name: content.to_owned(),
        ..Default::default()
    };
    Resource::cluster(&cluster)
}

fn set(items: &[(&str, &str)]) -> ResourceSet {
    items.iter().map(|(n, c)| named(n, c)).collect()
}

#[test]
fn both_forms_are_slices_of_one_encoding() {
    for content in ["", "x", &"long".repeat(10_000)] {
        let resource = named("web", content);
        let delta = DeltaDiscoveryResponse::decode(resource.delta_field()).unwrap();
        let [got] = delta.resources.as_slice() else {
            unreachable!("one resource")
        };
        assert_eq!(got.name, "web");
        assert_eq!(got.version, resource.version().to_string());
        let any = got.resource.clone().unwrap();
        assert_eq!(any.type_url, ResourceType::Cluster.url());
        assert_eq!(any.value, resource.body());
        let sotw = DiscoveryResponse::decode(resource.sotw_field()).unwrap();
        assert_eq!(sotw.resources, std::slice::from_ref(&any));
        assert_eq!(any.encode_to_vec(), resource.any());
    }
}

#[test]
fn the_version_is_the_hash_of_the_body_and_its_text_round_trips() {
    let resource = named("web", "a");
    let digest = Sha256::digest(resource.body());
    let hex: String = digest[..16].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(resource.version().to_string(), hex);
    assert_eq!(hex.parse::<Version>().unwrap(), resource.version());
    for bad in [
        "",
        "+",
        &hex[1..],
        &hex.to_uppercase().replace(char::is_numeric, "A"),
    ] {
        assert!(bad.parse::<Version>().is_err(), "{bad}");
    }
}

#[test]
fn eds_clusters_know_their_child() {
    let mut cluster = Cluster {
        name: "web".to_owned(),
        ..Default::default()
    };
    assert!(Resource::cluster(&cluster).children().is_empty());
    let eds = ClusterDiscoveryType::Type(DiscoveryType::Eds as i32);
    cluster.cluster_discovery_type = Some(eds);
    assert_eq!(Resource::cluster(&cluster).children(), [Arc::from("web")]);
    cluster.eds_cluster_config = Some(EdsClusterConfig {
        service_name: "other".to_owned(),
        ..Default::default()
    });
    assert_eq!(Resource::cluster(&cluster).children(), [Arc::from("other")]);
}

#[test]
fn the_hash_of_a_set_ignores_order_and_history() {
    let one = set(&[("a", "1"), ("b", "2")]);
    let mut two = set(&[("c", "3"), ("b", "1"), ("a", "1")]);
    assert!(!one.same(&two));
    two.put(named("b", "2"));
    two.remove("c").unwrap();
    assert!(one.same(&two));
    assert_eq!(one.hash(), two.hash());
    assert_eq!(ResourceSet::new().hash().as_u128(), 0);
}

#[test]
fn evolving_keeps_equal_resources() {
    let old = set(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let next = [named("a", "1"), named("b", "2"), named("d", "1")];
    let (new, reuse) = old.evolve(next);
    assert_eq!(reuse, Reuse { kept: 1, fresh: 2 });
    assert!(Arc::ptr_eq(old.get("a").unwrap(), new.get("a").unwrap()));
    let names: Vec<_> = new.iter().map(|r| &**r.name()).collect();
    assert_eq!(names, ["a", "b", "d"]);
    let changes: Vec<_> = new.changes(&old).map(|c| format!("{c:?}")).collect();
    assert_eq!(changes.len(), 3);
    assert!(changes[0].starts_with("Put(cds b@"), "{changes:?}");
    assert!(changes[1].starts_with("Gone(cds c@"), "{changes:?}");
    assert!(changes[2].starts_with("Put(cds d@"), "{changes:?}");
}

#[test]
fn type_urls_round_trip() {
    for kind in ResourceType::ALL {
        assert_eq!(ResourceType::from_url(kind.url()), Some(kind));
    }
    assert_eq!(ResourceType::from_url("type.googleapis.com/x"), None);
}

#[test]
fn joined_bytes_are_shared_and_follow_changes() {
    let one = set(&[("a", "1"), ("b", "2")]);
    let mut two = one.clone();
    let bytes = one.joined_delta();
    assert_eq!(bytes.as_ptr(), two.joined_delta().as_ptr());
    two.put(named("b", "3"));
    assert_ne!(two.joined_delta(), bytes);
    assert_eq!(one.joined_delta(), bytes);
    let both = DiscoveryResponse::decode(two.joined_sotw()).unwrap();
    assert_eq!(both.resources.len(), 2);
    two.put(named("b", "2"));
    assert_eq!(two.joined_delta(), bytes);
}
