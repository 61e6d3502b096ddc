//! Reads at a server that does not lead: as new as the leader's, and answered in the same words.

use crossway::http::Verb;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::trio::Answer;
use crate::support::trio::Trio;
use crate::support::trio::eventually;
use crate::support::trio::set;

/// What to ask of a route.
enum Ask {
    /// A read, at the leader and at a follower; the answers are equal.
    Read(&'static str),
    /// A write at a follower with this body, and what the leader then says to a read.
    Write(&'static str, &'static str, &'static str, &'static str),
    /// Of this server alone: nothing to do with the leader.
    Own,
}
use Ask::{Own, Read, Write};

const WEB: &str = r#"{"Node":"a","Address":"10.0.0.1","Service":{"Service":"web","Port":1},
    "Check":{"CheckID":"c","Name":"c","Status":"passing","ServiceID":"web"}}"#;

/// Every HTTP route. In this order: later rows read what earlier ones wrote.
const ROUTES: &[(Verb, &str, Ask)] = &[
    (
        Verb::Put,
        "/v1/catalog/register",
        Write("", WEB, "/v1/catalog/node/a", "web"),
    ),
    (
        Verb::Put,
        "/v1/config",
        Write(
            "",
            r#"{"Kind":"service-defaults","Name":"web","Protocol":"tcp"}"#,
            "/v1/config/service-defaults/web",
            "tcp",
        ),
    ),
    (
        Verb::Put,
        "/v1/kv/",
        Write("a/b", "x", "/v1/kv/a/b?raw", "x"),
    ),
    (Verb::Get, "/v1/kv/", Read("a/b")),
    (Verb::Get, "/v1/kv/", Read("?recurse")),
    (Verb::Get, "/v1/kv/", Read("?keys")),
    (Verb::Get, "/v1/kv/", Read("none")),
    (Verb::Get, "/v1/health/node/", Read("a")),
    (Verb::Get, "/v1/health/checks/", Read("web")),
    (Verb::Get, "/v1/health/state/", Read("any")),
    (Verb::Get, "/v1/health/service/", Read("web?passing")),
    (Verb::Get, "/v1/health/connect/", Read("web")),
    (Verb::Get, "/v1/connect/ca/roots", Read("")),
    (Verb::Get, "/v1/catalog/datacenters", Read("")),
    (Verb::Get, "/v1/catalog/nodes", Read("")),
    (Verb::Get, "/v1/catalog/services", Read("")),
    (Verb::Get, "/v1/catalog/service/", Read("web")),
    (Verb::Get, "/v1/catalog/connect/", Read("web")),
    (Verb::Get, "/v1/catalog/node/", Read("a")),
    (Verb::Get, "/v1/catalog/node-services/", Read("a")),
    (Verb::Get, "/v1/internal/federation-states", Read("")),
    (
        Verb::Get,
        "/v1/internal/federation-states/mesh-gateways",
        Read(""),
    ),
    (Verb::Get, "/v1/internal/federation-state/", Read("dc2")),
    (Verb::Get, "/v1/config/", Read("service-defaults/web")),
    (Verb::Get, "/v1/config/", Read("service-defaults")),
    (
        Verb::Put,
        "/v1/coordinate/update",
        Write(
            "",
            r#"{"Node":"a","Coord":{"Vec":[0,0,0,0,0,0,0,1],"Error":1,"Height":1e-5}}"#,
            "/v1/coordinate/node/a",
            "",
        ),
    ),
    (Verb::Get, "/v1/coordinate/nodes", Read("")),
    (Verb::Get, "/v1/coordinate/node/", Read("a")),
    (Verb::Get, "/v1/status/leader", Read("")),
    (Verb::Get, "/v1/status/peers", Read("")),
    (
        Verb::Delete,
        "/v1/config/",
        Write(
            "service-defaults/web",
            "",
            "/v1/config/service-defaults",
            "[]",
        ),
    ),
    (
        Verb::Delete,
        "/v1/kv/",
        Write("a?recurse", "", "/v1/kv/?keys", ""),
    ),
    (
        Verb::Put,
        "/v1/catalog/deregister",
        Write("", r#"{"Node":"a"}"#, "/v1/catalog/node/a", "null"),
    ),
    // snapshots.rs
    (Verb::Get, "/v1/snapshot", Own),
    (Verb::Put, "/v1/snapshot", Own),
    (Verb::Get, "/v1/coordinate/datacenters", Own),
    (Verb::Get, "/v1/operator/raft/configuration", Read("")),
    // Through gossip, which these servers have none of.
    (Verb::Delete, "/v1/operator/raft/peer", Own),
    (Verb::Get, "/v1/operator/keyring", Own),
    (Verb::Post, "/v1/operator/keyring", Own),
    (Verb::Put, "/v1/operator/keyring", Own),
    (Verb::Delete, "/v1/operator/keyring", Own),
    (Verb::Put, "/v1/agent/join/", Own),
    (Verb::Put, "/v1/agent/leave", Own),
    (Verb::Put, "/v1/agent/force-leave/", Own),
    (Verb::Put, "/v1/agent/reload", Own),
    (Verb::Get, "/v1/agent/self", Own),
    (Verb::Get, "/v1/agent/members", Own),
    (Verb::Get, "/v1/agent/version", Own),
    (Verb::Get, "/v1/agent/metrics", Own),
    (Verb::Get, "/v1/agent/services", Own),
    (Verb::Get, "/v1/agent/service/", Own),
    // It gets into the catalog all the same; see below.
    (Verb::Put, "/v1/agent/service/register", Own),
    (Verb::Put, "/v1/agent/service/deregister/", Own),
    (Verb::Get, "/v1/agent/checks", Own),
    (Verb::Put, "/v1/agent/check/register", Own),
    (Verb::Put, "/v1/agent/check/deregister/", Own),
    (Verb::Put, "/v1/agent/check/pass/", Own),
    (Verb::Put, "/v1/agent/check/warn/", Own),
    (Verb::Put, "/v1/agent/check/fail/", Own),
    (Verb::Put, "/v1/agent/check/update/", Own),
    (Verb::Get, "/v1/agent/health/service/id/", Own),
    (Verb::Get, "/v1/agent/health/service/name/", Own),
    (Verb::Get, "/v1/agent/connect/ca/roots", Own),
    // The leader signs; see below.
    (Verb::Get, "/v1/agent/connect/ca/leaf/", Own),
];

#[test]
fn every_route_has_a_row() {
    let rows: BTreeSet<_> = ROUTES
        .iter()
        .map(|(verb, path, _)| (*verb, *path))
        .collect();
    let routes = crossway::http::routes();
    let routes: BTreeSet<_> = routes.iter().map(|r| (r.verb, r.path)).collect();
    let missing: Vec<_> = routes.difference(&rows).collect();
    assert!(
        missing.is_empty(),
        "say in ROUTES what {missing:?} do at a follower"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_answers_at_a_follower_as_at_the_leader() {
    let trio = Trio::start().await;
    for (verb, path, ask) in ROUTES {
        match ask {
            Read(rest) => {
                let leader = trio.get(0, &format!("{path}{rest}")).await;
                let follower = trio.get(1, &format!("{path}{rest}")).await;
                assert_eq!(comparable(&follower), comparable(&leader), "{path}{rest}");
                assert!(matches!(leader.status, 200 | 404), "{leader:?}");
            }
            Write(rest, body, read, wanted) => {
                let path = format!("{path}{rest}");
                let done = trio.send(2, verb.as_str(), &path, body).await;
                assert_eq!(done.status, 200, "{path}: {done:?}");
                let read = trio.get(0, read).await;
                assert!(read.body.contains(wanted), "{path}: {read:?}");
            }
            Own => {}
        }
    }
}

fn comparable(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    answer.headers.remove("date");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_at_a_follower_sees_every_write_before_it() {
    let trio = Trio::start().await;
    for n in 0..300 {
        let value = n.to_string();
        let (write, read) = (n % 3, (n + 1 + n / 3) % 3);
        let put = trio.put(write, "/v1/kv/k", &value).await;
        assert_eq!(put.body, "true");
        let mode = if n % 2 == 0 { "&consistent" } else { "" };
        let got = trio.get(read, &format!("/v1/kv/k?raw{mode}")).await;
        assert_eq!(got.body, value, "written at {write}, read at {read}{mode}");
        assert_eq!(got.header("x-consul-knownleader"), "true");
        assert_eq!(got.header("x-consul-lastcontact"), "0");
    }
}

/// Places are collected where they come in, and written together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinates_told_to_a_follower_reach_everybody() {
    let settings = crossway::api::Settings {
        coordinate_period: Duration::from_millis(20),
        ..Default::default()
    };
    let trio = Trio::with(&settings).await;
    let place = |node: &str, x: f64, n: usize| {
        let vec = vec![x; n];
        serde_json::json!({"Node": node, "Coord": {"Vec": vec, "Error": 1.0, "Height": 1e-5}})
    };
    for (node, x) in [("a", 0.3), ("b", 0.1), ("c", 0.0)] {
        let row = serde_json::json!({"Node": node, "Address": "10.0.0.1"}).to_string();
        trio.put(0, "/v1/catalog/register", &row).await;
        let told = trio
            .put(1, "/v1/coordinate/update", &place(node, x, 8).to_string())
            .await;
        assert_eq!((told.status, told.body.as_str()), (200, ""));
    }
    let rows = || trio.nodes[2].api.store().latest().coordinates().count();
    eventually("all places are there", || rows() == 3).await;
    let near = trio.get(2, "/v1/catalog/nodes?near=c").await.body;
    let at = |node: &str| near.find(&format!("\"Node\":\"{node}\"")).unwrap();
    assert!(at("c") < at("b") && at("b") < at("a"), "{near}");
    let one = trio.get(0, "/v1/coordinate/node/b").await;
    assert_eq!(
        one.body,
        r#"[{"Node":"b","Segment":"","Coord":{"Vec":[0.1,0.1,0.1,0.1,0.1,0.1,0.1,0.1],"Error":1,"Adjustment":0,"Height":0.00001}}]"#
    );
    assert_eq!(trio.get(0, "/v1/coordinate/node/none").await.status, 404);
    let refused = trio
        .put(1, "/v1/coordinate/update", &place("a", 0.0, 2).to_string())
        .await;
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (500, "incompatible coordinate")
    );
}

/// A server's own services get into the catalog through the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_registered_with_a_follower_gets_into_the_catalog() {
    let trio = Trio::start().await;
    let done = trio
        .put(2, "/v1/agent/service/register", r#"{"Name":"own"}"#)
        .await;
    assert_eq!(done.status, 200, "{done:?}");
    let state = || trio.nodes[0].api.store().latest();
    eventually("the service is there", || {
        state().service("n3", "own").is_some()
    })
    .await;
    trio.put(2, "/v1/agent/service/deregister/own", "").await;
    eventually("the service is gone", || {
        state().service("n3", "own").is_none()
    })
    .await;
}

/// The key is made where it is asked for; the leader signs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_gives_out_leaves_that_the_leader_signed() {
    let trio = Trio::start().await;
    let path = "/v1/connect/ca/roots?index=1&wait=20s";
    let roots = trio.get(1, path).await;
    let roots: serde_json::Value = serde_json::from_str(&roots.body).unwrap();
    let domain = roots["TrustDomain"].as_str().unwrap();
    let leaf = async |at: usize| {
        let leaf = trio.get(at, "/v1/agent/connect/ca/leaf/web").await;
        assert_eq!(leaf.status, 200, "{leaf:?}");
        let leaf: serde_json::Value = serde_json::from_str(&leaf.body).unwrap();
        let uri = format!("spiffe://{domain}/ns/default/dc/dc1/svc/web");
        assert_eq!(leaf["ServiceURI"], uri);
        assert_eq!(leaf["Service"], "web");
        let key = leaf["PrivateKeyPEM"].as_str().unwrap();
        assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----"), "{key}");
        leaf["SerialNumber"].as_str().unwrap().to_owned()
    };
    let serials: BTreeSet<_> = [leaf(0).await, leaf(1).await, leaf(2).await].into();
    assert_eq!(serials.len(), 3);
    assert!(serials.contains(&leaf(1).await), "it is given out again");
    for (uri, text) in [
        (
            "spiffe://other.consul/ns/default/dc/dc1/svc/web",
            "from a different trust domain",
        ),
        ("https://x", "must be a service ID"),
    ] {
        let (_, csr) = crossway::ca::sign::request(uri).unwrap();
        let request = crossway::model::query::CaSignRequest {
            csr,
            ..Default::default()
        };
        let refused = trio.nodes[1].api.sign_leaf(request).await.unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
    }
}

/// discovery_max_stale counts where nothing is said, and for the catalog and health alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn discovery_may_be_stale_by_configuration() {
    let settings = crossway::api::Settings {
        hold: Duration::from_millis(500),
        discovery_max_stale: Duration::from_secs(3600),
        ..Default::default()
    };
    let trio = Trio::with(&settings).await;
    (0..3).for_each(|at| trio.cut(at));
    eventually("n3 knows no leader", || {
        trio.nodes[2].consensus.leader().is_none()
    })
    .await;
    for (path, status) in [
        ("/v1/catalog/nodes", 200),
        ("/v1/health/state/any", 200),
        ("/v1/catalog/nodes?leader", 500),
        ("/v1/catalog/nodes?consistent", 500),
        ("/v1/kv/?keys", 500),
    ] {
        assert_eq!(trio.get(2, path).await.status, status, "{path}");
    }
}

/// C097: a stale read is answered without a leader, and says so; nothing else is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_leader_only_stale_reads_are_answered() {
    let settings = crossway::api::Settings {
        hold: Duration::from_millis(1500),
        ..Default::default()
    };
    let trio = Trio::with(&settings).await;
    assert_eq!(trio.put(1, "/v1/kv/k", "v").await.body, "true");
    assert_eq!(trio.get(2, "/v1/kv/k?raw").await.body, "v");
    (0..3).for_each(|at| trio.cut(at));
    eventually("n3 knows no leader", || {
        trio.nodes[2].consensus.leader().is_none()
    })
    .await;
    let stale = trio.get(2, "/v1/kv/k?raw&stale").await;
    assert_eq!((stale.status, stale.body.as_str()), (200, "v"));
    assert_eq!(stale.header("x-consul-knownleader"), "false");
    assert_ne!(stale.header("x-consul-lastcontact"), "0");
    for path in ["/v1/kv/k", "/v1/kv/k?max_stale=1ms", "/v1/catalog/nodes"] {
        let failed = trio.get(2, path).await;
        assert_eq!(failed.status, 500, "{path}");
        assert_eq!(failed.body, "No cluster leader", "{path}");
    }
    let failed = trio.put(2, "/v1/kv/k", "w").await;
    assert_eq!(
        (failed.status, failed.body.as_str()),
        (500, "No cluster leader")
    );
    trio.heal();
    // The old leader is deposed first; a write that it had taken meanwhile is in doubt.
    while trio.put(1, "/v1/kv/k", "w").await.body != "true" {}
    assert_eq!(trio.get(2, "/v1/kv/k?raw").await.body, "w");
}

/// A leader that was cut off does not know it yet: what it says on its own may be old, what it has confirmed may not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consistent_read_never_comes_from_a_deposed_leader() {
    let settings = crossway::api::Settings {
        hold: Duration::from_millis(1500),
        ..Default::default()
    };
    let trio = Trio::with(&settings).await;
    assert_eq!(trio.put(0, "/v1/kv/k", "old").await.body, "true");
    trio.cut(0);
    let next = trio.leader(&[1, 2]).await;
    let other = 3 - next;
    eventually("the other one follows", || {
        let leader = trio.nodes[other].consensus.leader();
        leader.is_some_and(|leader| leader == trio.nodes[next].peer)
    })
    .await;
    assert_eq!(trio.put(other, "/v1/kv/k", "new").await.body, "true");
    for at in [next, other] {
        let read = trio.get(at, "/v1/kv/k?raw&consistent").await;
        assert_eq!(read.body, "new");
    }
    let refused = trio.get(0, "/v1/kv/k?raw&consistent").await;
    assert_eq!(refused.status, 500, "{refused:?}");
    trio.heal();
    let read = trio.get(0, "/v1/kv/k?raw&consistent").await;
    assert_eq!(read.body, "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_read_at_a_follower_wakes_for_its_topic_alone() {
    let trio = Trio::start().await;
    trio.put(0, "/v1/kv/k", "1").await;
    let index = trio.get(1, "/v1/kv/k").await.index();
    let path = format!("/v1/kv/k?raw&index={index}&wait=30s");
    let blocked = trio.get(1, &path);
    let writes = async {
        eventually("it waits", || trio.nodes[1].api.store().waiting() > 0).await;
        for n in 0..20 {
            trio.put(2, &format!("/v1/kv/other{n}"), "x").await;
        }
        trio.nodes[2]
            .consensus
            .propose(set("k", "2"))
            .await
            .unwrap()
    };
    let (answer, written) = tokio::join!(blocked, writes);
    assert_eq!(answer.body, "2");
    assert_eq!(answer.index(), written.index);
    // When nothing comes the leader is asked once more, and the answer is the old one.
    let path = format!("/v1/kv/k?raw&index={}&wait=100ms", written.index);
    let answer = trio.get(1, &path).await;
    assert_eq!((answer.body.as_str(), answer.index()), ("2", written.index));
}
