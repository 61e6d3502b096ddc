//! Every fuzz entry for a moment: a small corpus, changed at random with a fixed seed.
//!
//! `CROSSWAY_SOAK=1` runs a hundred times as many inputs; `FUZZ_SEED` takes another seed. A failure prints the input.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.
#![allow(clippy::print_stdout)]

use crossway::testing::fuzz;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::panic::resume_unwind;

/// Longest input: everything has limits of its own, far above or below.
const LONGEST: usize = 4096;

/// Runs `entry` on each seed, and on `count` inputs made of them.
fn run(entry: fn(&[u8]), count: usize, seeds: &[&[u8]]) {
    let env = |name: &str| std::env::var(name).ok();
    let seed = env("FUZZ_SEED").and_then(|text| text.parse().ok());
    let mut rng = StdRng::seed_from_u64(seed.unwrap_or(8502));
    let count = match env("CROSSWAY_SOAK").as_deref() {
        Some("1") => count * 100,
        _ => count,
    };
    seeds.iter().for_each(|seed| entry(seed));
    let mut corpus: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    for _ in 0..count {
        let input = mutated(&mut rng, &corpus);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| entry(&input))) {
            println!("input: {:?}", input.escape_ascii().to_string());
            resume_unwind(panic);
        }
        // Without coverage as a guide, some inputs are kept at random so that changes add up.
        if rng.random_ratio(1, 20) {
            let kept = corpus.len() - seeds.len();
            match kept < 50 {
                true => corpus.push(input),
                false => corpus[seeds.len() + rng.random_range(0..kept)] = input,
            }
        }
    }
}

fn mutated(rng: &mut StdRng, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[rng.random_range(0..corpus.len())].clone();
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..=bytes.len());
        match rng.random_range(0..8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.random()),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            3 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
            // Values at the edges of their ranges.
            4 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.random_range(0..5)],
            5 => {
                let end = rng.random_range(at..=bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = rng.random_range(0..=bytes.len());
                bytes.splice(to..to, piece);
            }
            6 => {
                let other = &corpus[rng.random_range(0..corpus.len())];
                let from = rng.random_range(0..=other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ if at + 4 <= bytes.len() => rng.fill(&mut bytes[at..at + 4]),
            _ => {}
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

#[test]
fn configuration() {
    run(fuzz::fuzz_config, 3000, &[
        b"datacenter = \"dc1\"\nports { http = 8500 grpc = -1 }\nlimits { http_max_conns_per_client = 5 }\n",
        b"service { name = \"web\" port = 80 check { tcp = \"a:1\" interval = \"10s\" } }\n// end\n",
        b"{\"server\": true, \"node_meta\": {\"a\": \"b\"}, \"retry_join\": [\"1.2.3.4\", \"x\"]}",
        b"a = <<EOF\ntext ${x}\nEOF\nb = [1, 2.5, \"\\u00e9\"] /* c */ # d\n",
        b"bind_addr = \"{{ GetPrivateInterfaces | include \\\"network\\\" \\\"10.0.0.0/8\\\" | attr \\\"address\\\" }}\"\n",
    ]);
}

#[test]
fn http_bodies_and_targets() {
    let bodies: &[&[u8]] = &[
        br#"{"Node":"n","Address":"a","Service":{"Service":"s","Port":80,"Tags":["t"],"Meta":{"a":"b"}}}"#,
        br#"{"Name":"c","Interval":"10s","TTL":"1h","Header":{"a":["b"]},"DeregisterCriticalServiceAfter":"1m"}"#,
        br#"{"Kind":"service-resolver","Name":"web","ConnectTimeout":"5s","Subsets":{"v1":{"Filter":"a == 1"}}}"#,
        br#"{"Kind":"proxy-defaults","Name":"global","Config":{"a":[1,-2.5e300,null,true,{"b":{}}]}}"#,
    ];
    run(fuzz::http::fuzz_http_json, 5000, bodies);
    run(fuzz::agent::fuzz_agent_body, 5000, bodies);
    run(
        fuzz::http::fuzz_http_target,
        5000,
        &[
            b"/v1/kv/a/b%2Fc?cas=5&flags=7&keys&separator=/",
            b"/v1/health/service/web?passing&tag=a&near=_agent&index=5&wait=10s&filter=a+==+b",
            b"/v1//catalog/../nodes?dc=dc1&stale&node-meta=a:b",
        ],
    );
}

#[test]
fn filters() {
    run(
        fuzz::filter::fuzz_filter,
        3000,
        &[
            b"Service.Meta.version == 2 and not (Service.Port != \"80\" or \"a\" in Service.Tags)",
            b"Node matches `^a.*(b|c){1,3}$` or Checks is empty",
            b"\"x\" not in ServiceTaggedAddresses.lan.Address",
        ],
    );
}

#[test]
fn rpc_values() {
    run(
        fuzz::fuzz_rpc_codec,
        10_000,
        &[
            b"\x82\xa1a\x01\xa1b\x93\xc0\xc3\xcb\x3f\xf0\0\0\0\0\0\0",
            b"\xde\0\x01\xa3Seq\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xdd\xff\xff\xff\xff\xdb\xff\xff\xff\xff",
            b"\x81\xa4Node\x82\xa4Node\xa1n\xa7Address\xa18",
        ],
    );
}

#[test]
fn rpc_port() {
    let call = b"\x82\xadServiceMethod\xabStatus.Ping\xa3Seq\x01\x80";
    let single = [&b"\0"[..], call, call].concat();
    let window = b"\x04\0\x01\0\x01\0\0\0\x01\0\0\0\0";
    let data = [&b"\0\0\0\0\0\0\0\x01\0\0\0"[..], &[call.len() as u8], call].concat();
    let multi = [
        &window[..],
        &data,
        b"\0\x02\0\x01\0\0\0\0\0\0\0\x07",
        b"\0\x03\0\0\0\0\0\0\0\0\0\0",
    ]
    .concat();
    run(
        fuzz::rpc_front::fuzz_rpc_front,
        600,
        &[
            &single,
            &multi,
            b"\x16\x03\x01\0\x05hello",
            b"\x07\x16",
            b"\x01raft",
        ],
    );
}

#[test]
fn xds_requests() {
    let request =
        b"\x0a\x04\x0a\x02gw\x12\x2etype.googleapis.com/envoy.config.cluster.v3.Cluster\x1a\x01*";
    let framed = [&b"\xfe\0\0\0\0"[..], &[request.len() as u8], request].concat();
    let pieces = [
        &b"\x08\0\0\0\0"[..],
        &[request.len() as u8],
        request,
        &framed[1..],
    ]
    .concat();
    let mut sotw = framed.clone();
    sotw[0] = 0xff;
    run(
        fuzz::xds::fuzz_xds_request,
        5000,
        &[&framed, &pieces, &sotw],
    );
}

#[test]
fn raft_records() {
    run(
        fuzz::raft::fuzz_raft_record,
        10_000,
        &[b"\0\0\0\0", b"\x01\x93\x01\x02\x03\x81\xa2Kv\x81\xa3Set"],
    );
}
