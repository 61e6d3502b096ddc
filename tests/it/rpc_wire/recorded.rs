//! Bytes recorded between a client and a real Consul 1.8.7.

use std::collections::BTreeMap;

use crossway::codec;
use crossway::codec::Value;
use crossway::model::catalog::CheckServiceNode;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use super::port::Port;

type Recorded = BTreeMap<String, Vec<BTreeMap<String, Vec<String>>>>;

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../../data/wire/rpc/calls.json")).unwrap()
}

fn bytes(hex: &[String]) -> Vec<u8> {
    let hex = hex.concat();
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// These methods of the test's handler answer as Consul did.
const SAME: [&str; 5] = [
    "tls_Status.Ping",
    "tls_Status.Leader",
    "tls_ERR_unknown_method",
    "tls_ERR_unknown_dc",
    "mode_tls0_server.dc1.consul",
];

#[tokio::test]
async fn recorded_requests_get_the_recorded_bytes() {
    let port = Port::plain();
    let recorded = recorded();
    for name in SAME {
        let call = &recorded[name][0];
        let expected = bytes(&call["response"]);
        let mut stream = port.connect().await;
        stream
            .write_all(&[&[0], &bytes(&call["request"])[..]].concat())
            .await
            .unwrap();
        let mut got = vec![0; expected.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, expected, "{name}");
    }
}

/// The yamux frames of the recorded client: a window update that opens stream 1, then data.
#[tokio::test]
async fn recorded_requests_in_yamux_frames_get_the_recorded_bytes() {
    let port = Port::plain();
    let recorded = recorded();
    for name in SAME {
        let call = &recorded[name][0];
        let request = bytes(&call["request"]);
        let mut frames = vec![4];
        frames.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        frames.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
        frames.extend_from_slice(&u32::try_from(request.len()).unwrap().to_be_bytes());
        frames.extend_from_slice(&request);
        let mut stream = port.connect().await;
        stream.write_all(&frames).await.unwrap();
        let expected = bytes(&call["response"]);
        let mut got = Vec::new();
        while got.len() < expected.len() {
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
            if head[1] == 0 {
                let mut data = vec![0; length as usize];
                stream.read_exact(&mut data).await.unwrap();
                got.extend_from_slice(&data);
            }
        }
        assert_eq!(got, expected, "{name}");
    }
}

/// Our types write what Consul's write, byte for byte.
#[test]
fn recorded_gateways_survive_our_types() {
    let recorded = recorded();
    let mut seen = 0;
    for name in [
        "tls_Health.ServiceNodes",
        "tls_Health.ServiceNodes_consul",
        "tls_Internal.ServiceDump_mesh-gateway",
    ] {
        let reply: Value = codec::from_slice(&bytes(&recorded[name][0]["response"][1..])).unwrap();
        let Some(Value::Array(nodes)) = reply.get("Nodes") else {
            panic!("{name}: {reply:?}");
        };
        for node in nodes {
            let canonical = codec::to_vec(node).unwrap();
            let typed: CheckServiceNode = codec::from_slice(&canonical).unwrap();
            let (ours, theirs) = (codec::to_vec(&typed).unwrap(), canonical);
            let json = |bytes: &[u8]| {
                let value: Value = codec::from_slice(bytes).unwrap();
                value.to_json().to_string()
            };
            assert_eq!(json(&ours), json(&theirs), "{name}");
            assert_eq!(ours, theirs, "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// The fuzz target on recorded values with a few bytes changed, cut or doubled.
#[test]
fn damaged_values_do_no_harm() {
    let values: Vec<Vec<u8>> = recorded()
        .values()
        .flatten()
        .flat_map(|call| {
            call["response"]
                .iter()
                .map(|hex| bytes(std::slice::from_ref(hex)))
        })
        .collect();
    let mut rng = StdRng::seed_from_u64(11);
    for value in values.iter().cycle().take(3000) {
        let mut damaged = value.clone();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..damaged.len());
            damaged[at] = rng.random();
        }
        damaged.truncate(rng.random_range(1..=damaged.len()));
        crossway::testing::fuzz::fuzz_rpc_codec(&damaged);
    }
}
