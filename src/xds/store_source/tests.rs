use super::*;
use crate::model::catalog::ConnectProxyConfig;
use crate::model::ids::Datacenter;
use crate::model::query::RegisterRequest;
use crate::model::{
    CaConfiguration, CaRoot, CheckServiceNode, CheckStatus, FederationState, HealthCheck, Node,
    NodeService, ServiceKind, Timestamp,
};
use crate::store::{CaCommand, Command, FederationCommand, State};
use crate::xds::resources::Change;
use std::future::poll_fn;
use std::task::Poll;

const TRUST_DOMAIN: &str = "11111111-2222-3333-4444-555555555555";

/// A store with the state that its commands lead to.
struct Lab {
    store: Store,
    source: StoreSource,
    state: State,
}

impl Lab {
    /// One server, a gateway `gw` on node `gw-1`, and `services` services with `instances` instances each.
    fn new(services: usize, instances: usize) -> Self {
        let store = Store::default();
        let place = Place::new(&Datacenter::from("dc1"), "consul");
        let mut lab = Self {
            source: StoreSource::new(store.clone(), place),
            store,
            state: State::default(),
        };
        lab.apply(&register(
            "s1",
            service("consul", ServiceKind::Typical),
            None,
        ));
        lab.apply(&gateway("gw-1", "10.0.0.5"));
        lab.apply(&Command::Ca(CaCommand::SetRootsAndConfig {
            cas: 0,
            roots: vec![CaRoot {
                active: true,
                ..CaRoot::default()
            }],
            config_cas: 0,
            config: CaConfiguration {
                cluster_id: TRUST_DOMAIN.to_owned(),
                ..CaConfiguration::default()
            },
        }));
        for name in 0..services {
            for at in 0..instances {
                lab.apply(&instance(name, at, CheckStatus::Passing, ""));
            }
        }
        lab
    }

    fn apply(&mut self, command: &Command) {
        let applied = self.state.apply(self.state.last_index() + 1, command);
        assert!(applied.result.is_ok(), "{applied:?}");
        self.store.publish(self.state.clone(), &applied.topics);
    }

    fn watch(&self, node: Option<&str>, id: &str) -> StoreWatch {
        self.source.watch(&EnvoyNode {
            id: id.to_owned(),
            node_name: node.map(str::to_owned),
            ..EnvoyNode::default()
        })
    }
}

fn service(name: &str, kind: ServiceKind) -> NodeService {
    NodeService {
        id: name.into(),
        service: name.into(),
        port: 8300,
        kind,
        ..NodeService::default()
    }
}

fn register(node: &str, service: NodeService, check: Option<HealthCheck>) -> Command {
    Command::Register(Box::new(RegisterRequest {
        node: node.into(),
        address: "10.0.0.1".to_owned(),
        datacenter: "dc1".into(),
        service: Some(service),
        check,
        ..RegisterRequest::default()
    }))
}

fn gateway(node: &str, address: &str) -> Command {
    let mut gateway = service("gw", ServiceKind::MeshGateway);
    gateway.address = address.to_owned();
    let meta = ("consul-wan-federation".to_owned(), "1".to_owned());
    gateway.meta.extend([meta]);
    register(node, gateway, None)
}

fn instance(name: usize, at: usize, status: CheckStatus, output: &str) -> Command {
    let mut sidecar = service(&format!("web-{name}-{at}"), ServiceKind::ConnectProxy);
    sidecar.proxy = ConnectProxyConfig {
        destination_service_name: format!("web-{name}").into(),
        ..ConnectProxyConfig::default()
    };
    let check = HealthCheck {
        check_id: format!("check-{name}-{at}").into(),
        service_id: sidecar.id.clone(),
        status,
        output: output.to_owned(),
        ..HealthCheck::default()
    };
    register(&format!("node-{}", at % 10), sidecar, Some(check))
}

fn record(dc: &str, address: &str, at: i64) -> Command {
    let mut gateway = service("gw", ServiceKind::MeshGateway);
    gateway.address = address.to_owned();
    Command::Federation(FederationCommand::Offer(FederationState {
        datacenter: dc.into(),
        mesh_gateways: vec![CheckServiceNode {
            node: Some(Arc::new(Node::default())),
            service: Some(Arc::new(gateway)),
            checks: Vec::new(),
        }],
        updated_at: Timestamp::from_unix(at, 0),
        ..FederationState::default()
    }))
}

#[track_caller]
fn ready(watch: &mut StoreWatch) -> Arc<ProxyResources> {
    match watch.current() {
        Current::Ready(_, resources) => resources,
        other => panic!("not ready: {other:?}"),
    }
}

/// Whether the watch tells of a change without anything else happening.
async fn wakes(watch: &mut StoreWatch) -> bool {
    let mut changed = std::pin::pin!(watch.changed());
    poll_fn(|cx| Poll::Ready(changed.as_mut().poll(cx).is_ready())).await
}

fn names(old: &ProxyResources, new: &ProxyResources) -> Vec<String> {
    let kinds = crate::xds::resources::ResourceType::ALL;
    let changes = kinds
        .iter()
        .flat_map(|kind| new.of(*kind).changes(old.of(*kind)));
    changes
        .map(|change| match change {
            Change::Put(r) => format!("{} {}", r.kind().label(), r.name()),
            Change::Gone(r) => format!("-{} {}", r.kind().label(), r.name()),
        })
        .collect()
}

#[tokio::test]
async fn one_changed_instance_among_a_hundred_services_encodes_one_resource() {
    let mut lab = Lab::new(100, 3);
    let mut streams: Vec<_> = (0..20).map(|_| lab.watch(Some("gw-1"), "gw")).collect();
    let before: Vec<_> = streams.iter_mut().map(ready).collect();
    let figures = lab.source.figures();
    lab.apply(&instance(7, 1, CheckStatus::Critical, "down"));
    for (stream, before) in streams.iter_mut().zip(&before) {
        assert!(wakes(stream).await);
        let after = ready(stream);
        let name = format!("eds web-7.default.dc1.internal.{TRUST_DOMAIN}.consul");
        assert_eq!(names(before, &after), [name]);
        assert!(after.clusters.shares(&before.clusters));
        assert!(after.applied_at >= before.applied_at);
    }
    let made = lab.source.figures();
    assert_eq!(made.encoded - figures.encoded, 1);
    assert_eq!(made.views - figures.views, 1);
    assert_eq!(made.generations - figures.generations, 1);
}

#[tokio::test]
async fn what_shows_nowhere_wakes_nobody() {
    let mut lab = Lab::new(2, 2);
    let mut stream = lab.watch(Some("gw-1"), "gw");
    let before = ready(&mut stream);
    assert!(!wakes(&mut stream).await);
    lab.apply(&instance(0, 0, CheckStatus::Passing, "other words"));
    lab.apply(&register(
        "gw-1",
        service("other", ServiceKind::Typical),
        None,
    ));
    lab.apply(&gateway("gw-2", "10.0.0.6"));
    lab.apply(&register(
        "n9",
        service("plain", ServiceKind::Typical),
        None,
    ));
    assert!(!wakes(&mut stream).await);
    assert!(Arc::ptr_eq(&before, &ready(&mut stream)));
}

#[tokio::test]
async fn a_change_of_one_gateway_reaches_that_one_alone() {
    let mut lab = Lab::new(2, 1);
    lab.apply(&gateway("gw-2", "10.0.0.6"));
    let mut first = lab.watch(Some("gw-1"), "gw");
    let mut second = lab.watch(Some("gw-2"), "gw");
    let before = ready(&mut first);
    assert!(before.clusters.shares(&ready(&mut second).clusters));
    let figures = lab.source.figures();
    lab.apply(&gateway("gw-1", "10.0.0.7"));
    assert!(wakes(&mut first).await);
    assert!(!wakes(&mut second).await);
    let after = ready(&mut first);
    assert_eq!(
        names(&before, &after),
        ["-lds default:10.0.0.5:8300", "lds default:10.0.0.7:8300"]
    );
    assert_eq!(lab.source.figures().encoded, figures.encoded);
}

/// C001: new gateways of another datacenter replace the old ones at once; an older record changes nothing.
#[tokio::test]
async fn the_newest_record_of_a_datacenter_is_in_force() {
    let mut lab = Lab::new(0, 0);
    lab.apply(&record("dc2", "192.0.2.1", 100));
    let mut stream = lab.watch(None, "gw");
    let before = ready(&mut stream);
    lab.apply(&record("dc2", "192.0.2.2", 200));
    assert!(wakes(&mut stream).await);
    let after = ready(&mut stream);
    let internal = format!("eds dc2.internal.{TRUST_DOMAIN}.consul");
    assert_eq!(names(&before, &after), [&internal, "eds server.dc2.consul"]);
    lab.apply(&record("dc2", "192.0.2.1", 150));
    assert!(!wakes(&mut stream).await);
    lab.apply(&record("dc2", "gw.example.com", 300));
    let named = ready(&mut stream);
    let cds = format!("cds dc2.internal.{TRUST_DOMAIN}.consul");
    let changed = names(&after, &named);
    assert_eq!(
        changed,
        [
            &cds,
            "cds server.dc2.consul",
            &format!("-{internal}"),
            "-eds server.dc2.consul"
        ]
    );
}

/// C051: what goes leaves nothing behind.
#[tokio::test]
async fn services_that_go_leave_the_sets_as_they_were() {
    let mut lab = Lab::new(1, 1);
    let mut stream = lab.watch(Some("gw-1"), "gw");
    let before = ready(&mut stream);
    for name in 1..50 {
        lab.apply(&instance(name, 0, CheckStatus::Passing, ""));
        ready(&mut stream);
    }
    assert_eq!(
        ready(&mut stream).endpoints.len(),
        before.endpoints.len() + 49
    );
    for name in 1..50 {
        lab.apply(&Command::Deregister {
            node: "node-0".into(),
            service_id: format!("web-{name}-0").into(),
            check_id: "".into(),
        });
    }
    assert!(ready(&mut stream).same(&before));
}

#[tokio::test]
async fn a_stream_follows_its_gateway_through_registration_and_back() {
    let mut lab = Lab::new(0, 0);
    let gone = Command::Deregister {
        node: "gw-1".into(),
        service_id: "gw".into(),
        check_id: "".into(),
    };
    for node in [Some("gw-1"), None] {
        let mut stream = lab.watch(node, "gw");
        ready(&mut stream);
        lab.apply(&gone);
        assert!(wakes(&mut stream).await);
        assert!(matches!(stream.current(), Current::Unknown));
        lab.apply(&gateway("gw-1", "10.0.0.5"));
        assert!(wakes(&mut stream).await);
        ready(&mut stream);
    }
    let mut stream = lab.watch(None, "gw");
    ready(&mut stream);
    lab.apply(&gone);
    lab.apply(&gateway("gw-3", "10.0.0.9"));
    assert!(wakes(&mut stream).await);
    let Current::Ready(key, _) = stream.current() else {
        panic!("the gateway is registered on another node");
    };
    assert_eq!(key.to_string(), "gw-3/gw");
    lab.apply(&gateway("gw-1", "10.0.0.5"));
    assert!(!wakes(&mut stream).await, "its identity does not change");
    let mut other = lab.watch(None, "gw");
    assert!(matches!(other.current(), Current::Ambiguous(nodes) if nodes.len() == 2));
    lab.apply(&gone);
    assert!(wakes(&mut other).await);
    ready(&mut other);
}

/// A restored snapshot may hold something else at the same index.
#[tokio::test]
async fn a_restored_state_is_read_anew() {
    let mut lab = Lab::new(3, 1);
    let mut stream = lab.watch(Some("gw-1"), "gw");
    let before = ready(&mut stream);
    let other = Lab::new(2, 1);
    lab.state = other.state;
    lab.store.publish_restored(lab.state.clone());
    assert!(wakes(&mut stream).await);
    assert_eq!(
        ready(&mut stream).endpoints.len() + 1,
        before.endpoints.len()
    );
    lab.apply(&instance(9, 0, CheckStatus::Passing, ""));
    assert!(wakes(&mut stream).await);
    assert_eq!(ready(&mut stream).endpoints.len(), before.endpoints.len());
}

#[tokio::test]
async fn slots_of_gateways_without_streams_are_forgotten() {
    let lab = Lab::new(1, 1);
    let mut streams = [lab.watch(Some("gw-1"), "gw"), lab.watch(None, "gw")];
    let [a, b] = streams.each_mut().map(ready);
    assert!(
        Arc::ptr_eq(&a, &b),
        "streams of one gateway share everything"
    );
    assert_eq!(lab.source.inner.slots.len(), 1);
    drop(streams);
    assert_eq!(lab.source.inner.slots.len(), 0);
    assert_eq!(lab.store.waiting(), 1, "only the source itself waits");
}

/// Prints what a change costs: `SERVICES=5000 cargo test --release --lib cost_of_a_change -- --nocapture`.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "measures time; nothing depends on it"
)]
#[expect(clippy::print_stderr, reason = "the figures are its result")]
async fn the_cost_of_a_change_does_not_grow_with_what_is_unchanged() {
    use std::time::Instant;
    let services = std::env::var("SERVICES").map_or(50, |n| n.parse().unwrap());
    let mut lab = Lab::new(services, 10);
    let start = Instant::now();
    let mut streams: Vec<_> = (0..1_000).map(|_| lab.watch(Some("gw-1"), "gw")).collect();
    let watched = start.elapsed();
    let start = Instant::now();
    ready(&mut streams[0]);
    let first = start.elapsed();
    streams.iter_mut().for_each(|s| drop(ready(s)));
    let (mut rebuilds, mut looks) = (Vec::new(), Vec::new());
    for turn in 0..100 {
        let status = [CheckStatus::Critical, CheckStatus::Passing][turn % 2];
        lab.apply(&instance(services / 2, 1, status, ""));
        let before = lab.source.figures();
        let start = Instant::now();
        ready(&mut streams[0]);
        rebuilds.push(start.elapsed());
        assert_eq!(lab.source.figures().encoded - before.encoded, 1);
        let start = Instant::now();
        streams.iter_mut().for_each(|s| drop(ready(s)));
        looks.push(start.elapsed() / 1_000);
    }
    rebuilds.sort();
    looks.sort();
    eprintln!(
        "{services} services of 10 instances: first {first:?}, after one change {:?} (99%: {:?}), each further stream \
         {:?}; a watch {:?} and {} registrations",
        rebuilds[50],
        rebuilds[98],
        looks[50],
        watched / 1_000,
        (lab.store.waiting() - 1) / 1_000,
    );
}
