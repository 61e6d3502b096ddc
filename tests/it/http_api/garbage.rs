//! Bodies, paths and parameters that no client should send.

use crossway::testing::fuzz::http::{fuzz_http_json, fuzz_http_target};
use proptest::prelude::*;

/// Text that is nearly a registration: whole ones, with bytes changed and cut.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let seeds = prop::sample::select(vec![
        r#"{"Node":"n","Address":"a","Service":{"Service":"s","Port":80,"Tags":["t"],"Meta":{"a":"b"}}}"#,
        r#"{"Node":"n","Address":"a","Checks":[{"Name":"c","Definition":{"Interval":"10s","Header":{"a":["b"]}}}]}"#,
        r#"{"Kind":"service-resolver","Name":"web","ConnectTimeout":"1h5m","Subsets":{"v1":{"Filter":"a == 1"}}}"#,
        r#"{"Kind":"proxy-defaults","Name":"global","Config":{"a":[1,-2.5e300,null,true,{"b":{}}]}}"#,
    ]);
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..4);
    (seeds, changes, any::<prop::sample::Index>()).prop_map(|(seed, changes, end)| {
        let mut bytes = seed.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() * 2));
        bytes
    })
}

proptest! {
    #[test]
    fn no_body_makes_the_server_panic(near in nearly_json(), any: Vec<u8>) {
        fuzz_http_json(&near);
        fuzz_http_json(&any);
    }

    #[test]
    fn no_path_makes_the_server_panic(
        path in "(/|\\.|\\.\\.|%|%2f|a|\\?|=|&|é){0,12}",
        any: Vec<u8>,
    ) {
        fuzz_http_target(path.as_bytes());
        fuzz_http_target(&any);
    }
}
