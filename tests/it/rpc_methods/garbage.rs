//! Bodies that make no sense: an answer, an error or the end of the stream, never a panic.

use std::time::Duration;

use crossway::codec;
use crossway::codec::Value;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

use super::wire::session;
use super::wire::tls;
use crate::support::server::Server;

/// Every method, and names that are none.
const METHODS: &[&str] = &[
    "Status.Ping",
    "Status.Leader",
    "Status.Peers",
    "Status.RaftStats",
    "Catalog.Register",
    "Catalog.Deregister",
    "Catalog.ListDatacenters",
    "Catalog.ListNodes",
    "Catalog.ListServices",
    "Catalog.ServiceNodes",
    "Catalog.NodeServices",
    "Health.ServiceNodes",
    "Health.NodeChecks",
    "Health.ServiceChecks",
    "Health.ChecksInState",
    "FederationState.Apply",
    "FederationState.Get",
    "FederationState.List",
    "FederationState.ListMeshGateways",
    "Internal.ServiceDump",
    "ConnectCA.Roots",
    "ConfigEntry.Get",
    "ConfigEntry.List",
    "ConfigEntry.ListAll",
    "ConfigEntry.Apply",
    "ConfigEntry.Delete",
    "KVS.Apply",
    "KVS.Get",
    "KVS.List",
    "KVS.ListKeys",
    "Status.Nope",
    "Nope.Nope",
    "Nope",
    "",
];

/// Fields of requests, so that some of what is made up means something.
const KEYS: &[&str] = &[
    "Datacenter",
    "TargetDatacenter",
    "Node",
    "Address",
    "ID",
    "Service",
    "ServiceName",
    "ServiceID",
    "Check",
    "Checks",
    "CheckID",
    "Status",
    "State",
    "Op",
    "Key",
    "DirEnt",
    "Value",
    "Prefix",
    "Seperator",
    "Kind",
    "Name",
    "Entry",
    "Filter",
    "Token",
    "Tags",
    "Meta",
    "NodeMeta",
    "TaggedAddresses",
    "MeshGateways",
    "UpdatedAt",
    "Proxy",
    "Config",
    "Port",
    "Weights",
    "Connect",
    "UseServiceKind",
    "ServiceKind",
    "RequireConsistent",
    "AllowStale",
    "Source",
];

const TEXTS: &[&str] = &[
    "",
    "dc1",
    "dc2",
    "n1",
    "web",
    "mesh-gateway",
    "upsert",
    "delete",
    "set",
    "cas",
    "delete-tree",
    "any",
    "critical",
    "proxy-defaults",
    "service-resolver",
    "global",
    "((",
    "Node.Meta.x == y",
    "\u{0}",
    "ü",
];

fn value(rng: &mut StdRng, depth: usize) -> Value {
    let text = |rng: &mut StdRng, of: &[&str]| Value::Raw(of[rng.random_range(0..of.len())].into());
    match rng.random_range(0..if depth == 0 { 8 } else { 12 }) {
        0 => Value::Nil,
        1 => Value::Bool(rng.random()),
        2 => Value::Uint(rng.random()),
        3 => Value::Int(-i64::from(rng.random::<u32>()) - 1),
        4 => Value::F64(rng.random()),
        5 => Value::Raw((0..rng.random_range(0..40)).map(|_| rng.random()).collect()),
        6 | 7 => text(rng, TEXTS),
        8 => Value::Array(
            (0..rng.random_range(0..5))
                .map(|_| value(rng, depth - 1))
                .collect(),
        ),
        _ => Value::Map(
            (0..rng.random_range(0..9))
                .map(|_| (text(rng, KEYS), value(rng, depth - 1)))
                .collect(),
        ),
    }
}

/// A body: a value of any shape, one inside a blob, or one that was damaged.
fn body(rng: &mut StdRng) -> Vec<u8> {
    let made = value(rng, 4);
    let mut bytes = codec::to_vec(&made).unwrap();
    match rng.random_range(0..4) {
        0 => {
            let kind = TEXTS[rng.random_range(0..TEXTS.len())];
            let blob = [codec::to_vec(kind).unwrap(), bytes].concat();
            bytes = codec::to_vec(&Value::Raw(blob)).unwrap();
        }
        1 => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        _ => {}
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senseless_bodies_do_no_harm() {
    let server = Server::start(&json!({}));
    let tls = tls(&server.path(""), "dc1-server-consul-0");
    let address = server.port(8300).parse().unwrap();
    let mut rng = StdRng::seed_from_u64(8300);
    let mut session_in_use = session(address, &tls).await;
    let (mut answered, mut refused) = (0, 0);
    for round in 0..40 {
        for method in METHODS {
            let body = body(&mut rng);
            // A body that was cut makes the server wait for the rest, so not every call gets an answer.
            let limit = Duration::from_millis(150);
            match session_in_use.call(method, &body, limit).await {
                Ok(_) => answered += 1,
                Err(_) => refused += 1,
            }
        }
        if round % 10 == 9 {
            session_in_use = session(address, &tls).await;
        }
    }
    assert!(answered > 100 && refused > 100, "{answered} {refused}");
    let ping = session_in_use.call("Status.Ping", &[0x80], crate::support::server::PATIENCE);
    assert_eq!(&ping.await.unwrap()[..], [0x80]);
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// The fuzz target, on bodies as above and on bytes of no order at all.
#[test]
fn senseless_bodies_are_read_the_same_twice() {
    let mut rng = StdRng::seed_from_u64(11);
    for _ in 0..5000 {
        crossway::testing::fuzz::rpc::fuzz_rpc_request(&body(&mut rng));
        let noise: Vec<u8> = (0..rng.random_range(0..200))
            .map(|_| rng.random())
            .collect();
        crossway::testing::fuzz::rpc::fuzz_rpc_request(&noise);
    }
}
