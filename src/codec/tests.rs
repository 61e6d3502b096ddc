use std::collections::BTreeMap;
use std::collections::HashMap;

use proptest::prelude::*;
use serde::Deserialize;
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::rpc::MAX_BODY;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Sample {
    zeta: String,
    alpha: i64,
    tags: Vec<String>,
    meta: BTreeMap<String, String>,
    on: bool,
    ratio: f64,
    #[serde(with = "serde_bytes")]
    blob: Vec<u8>,
    inner: Option<Box<Sample>>,
}

fn check<T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(
    value: T,
    hex: &str,
) {
    let bytes = to_vec(&value).unwrap();
    assert_eq!(to_hex(&bytes), hex);
    assert_eq!(from_slice::<T>(&bytes).unwrap(), value);
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn integers_take_their_smallest_form() {
    check(0u64, "00");
    check(127u8, "7f");
    check(128i64, "cc80");
    check(256i64, "cd0100");
    check(65536u32, "ce00010000");
    check(1u64 << 32, "cf0000000100000000");
    check(-1i64, "ff");
    check(-32i8, "e0");
    check(-33i64, "d0df");
    check(-128i64, "d080");
    check(-129i64, "d1ff7f");
    check(-32769i64, "d2ffff7fff");
    check(i64::MIN, "d38000000000000000");
}

#[test]
fn strings_are_of_the_raw_family() {
    check("x".repeat(31), &format!("bf{}", "78".repeat(31)));
    check("x".repeat(32), &format!("da0020{}", "78".repeat(32)));
    check(
        "x".repeat(65536),
        &format!("db00010000{}", "78".repeat(65536)),
    );
}

#[test]
fn struct_and_map_keys_are_sorted_bytewise() {
    #[derive(Serialize)]
    struct Keys {
        b: u8,
        ab: u8,
        #[serde(rename = "Z")]
        z: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        none: Option<u8>,
    }
    let keys = Keys {
        b: 1,
        ab: 2,
        z: 3,
        none: None,
    };
    assert_eq!(to_hex(&to_vec(&keys).unwrap()), "83a15a03a2616202a16201");
    let long = "k".repeat(40);
    let map = HashMap::from([("b", 1), ("a", 2), (long.as_str(), 3)]);
    let bytes = to_vec(&map).unwrap();
    let keys: Vec<String> = match from_slice::<Value>(&bytes).unwrap() {
        Value::Map(pairs) => pairs.iter().map(|p| p.0.as_str().unwrap().into()).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(keys, ["a", "b", &long]);
}

#[test]
fn a_sequence_of_unknown_length_gets_its_count() {
    struct Odd;
    impl Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.collect_seq((0..40).filter(|n| n % 2 == 1))
        }
    }
    let numbers: Vec<u8> = from_slice(&to_vec(&Odd).unwrap()).unwrap();
    assert_eq!(numbers.len(), 20);
}

#[test]
fn nil_is_the_default_of_anything() {
    let mut bytes = vec![0x88];
    for name in [
        "Zeta", "Alpha", "Tags", "Meta", "On", "Ratio", "Blob", "Inner",
    ] {
        append(&mut bytes, name).unwrap();
        bytes.push(0xc0);
    }
    assert_eq!(from_slice::<Sample>(&bytes).unwrap(), Sample::default());
    assert_eq!(from_slice::<Sample>(&[0xc0]).unwrap(), Sample::default());
}

#[test]
fn an_empty_field_is_nil_and_other_empty_things_are_not() {
    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    struct Lists {
        a: Vec<String>,
        b: BTreeMap<String, Vec<u8>>,
        c: Option<Vec<u8>>,
        d: Option<Vec<u8>>,
        e: BTreeMap<String, Vec<u8>>,
        f: String,
    }
    check(
        Lists {
            c: Some(Vec::new()),
            e: BTreeMap::from([("x".to_owned(), Vec::new())]),
            ..Lists::default()
        },
        "86a161c0a162c0a16390a164c0a16581a17890a166a0",
    );
    check(Vec::<Vec<u8>>::new(), "90");
    check(vec![Vec::<u8>::new()], "9190");
    check(BTreeMap::<String, u8>::new(), "80");
}

#[test]
fn other_forms_of_the_same_are_taken() {
    // str8, bin8, an int in 64 bits, an unknown key with a nested value, and an int for a float.
    let mut bytes = vec![0x85, 0xd9, 4];
    bytes.extend_from_slice(b"Zeta\xd9\x01z");
    bytes.extend_from_slice(b"\xa5Alpha\xd3\0\0\0\0\0\0\0\x05");
    bytes.extend_from_slice(b"\xa4Blob\xc4\x02\xff\0");
    bytes.extend_from_slice(b"\xa4What\x92\x81\xa1x\xc4\x01y\xc0");
    bytes.extend_from_slice(b"\xa5Ratio\x02");
    let sample: Sample = from_slice(&bytes).unwrap();
    assert_eq!(
        (sample.zeta.as_str(), sample.alpha, sample.ratio),
        ("z", 5, 2.0)
    );
    assert_eq!(sample.blob, [0xff, 0]);
    // The array form of a struct, shorter and longer than ours.
    let sample: Sample = from_slice(b"\x92\xa1z\x07").unwrap();
    assert_eq!((sample.zeta.as_str(), sample.alpha), ("z", 7));
    let longer = b"\x9b\xa1z\x07\xc0\xc0\xc0\xc0\xc0\xc0\x01\x81\xa1a\xa1b\x03";
    assert_eq!(from_slice::<Sample>(longer).unwrap().alpha, 7);
}

#[test]
fn a_float_is_no_integer_and_text_is_no_number() {
    assert!(from_slice::<u64>(&to_vec(&1.0f64).unwrap()).is_err());
    assert!(from_slice::<u64>(b"\xa11").is_err());
    assert!(from_slice::<u8>(&[0xcd, 1, 0]).is_err(), "out of range");
    assert!(from_slice::<u64>(&[0xff]).is_err(), "negative");
}

#[test]
fn broken_text_is_repaired_and_bytes_are_kept() {
    assert_eq!(from_slice::<String>(b"\xa2a\xff").unwrap(), "a\u{fffd}");
    let bytes: serde_bytes::ByteBuf = from_slice(b"\xa2a\xff").unwrap();
    assert_eq!(*bytes, *b"a\xff");
    assert_eq!(from_slice::<Vec<u8>>(b"\xa2a\xff").unwrap(), b"a\xff");
}

#[test]
fn enums_are_names() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Op {
        #[serde(rename = "upsert")]
        Upsert,
        Other(u8),
        Pair {
            a: u8,
            b: u8,
        },
    }
    check(Op::Upsert, "a6757073657274");
    check(Op::Other(3), "81a54f7468657203");
    check(Op::Pair { a: 1, b: 2 }, "81a45061697282a16101a16202");
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    for bytes in [
        &b"\xdd\xff\xff\xff\xff"[..],
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\x91\xdd\x7f\xff\xff\xff",
    ] {
        assert!(matches!(from_slice::<Value>(bytes), Err(Error::Length(_))));
        assert!(from_slice::<Vec<Sample>>(bytes).is_err());
        assert!(from_slice::<serde::de::IgnoredAny>(bytes).is_err());
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |n| [vec![0x91; n], vec![0xc0]].concat();
    assert!(from_slice::<Value>(&deep(MAX_DEPTH)).is_ok());
    assert_eq!(from_slice::<Value>(&deep(MAX_DEPTH + 1)), Err(Error::Depth));
    let mut value = Value::Nil;
    for _ in 0..=MAX_DEPTH {
        value = Value::Array(vec![value]);
    }
    assert_eq!(to_vec(&value), Err(Error::Depth));
}

#[test]
fn a_few_bytes_of_nil_do_not_become_many_structs() {
    let nils = [b"\xdd\x00\x10\x00\x00".to_vec(), vec![0xc0; 1 << 20]].concat();
    assert_eq!(from_slice::<Vec<Sample>>(&nils), Err(Error::Structs));
}

#[test]
fn what_follows_a_value_is_refused_or_left() {
    assert_eq!(from_slice::<u8>(&[1, 2]), Err(Error::Trailing(1)));
    let mut rest = &b"\x01\xa1x"[..];
    assert_eq!(take::<u8>(&mut rest).unwrap(), 1);
    assert_eq!(take::<String>(&mut rest).unwrap(), "x");
    assert!(rest.is_empty());
    assert_eq!(take::<u8>(&mut rest), Err(Error::Truncated));
}

#[tokio::test]
async fn values_are_cut_from_a_stream() {
    let parts = [
        to_vec(&Sample::default()).unwrap(),
        to_vec(&"x".repeat(100_000)).unwrap(),
        vec![0xc0],
        to_vec(&vec![vec![1u8, 2], vec![]]).unwrap(),
    ];
    let all = parts.concat();
    for chunk in [1, 7, 4096, all.len()] {
        let mut reader = FrameReader::new(200_000);
        let mut stream = in_chunks(&all, chunk);
        for part in &parts {
            assert_eq!(
                &*reader.next(&mut stream).await.unwrap().unwrap(),
                &part[..]
            );
        }
        assert!(reader.next(&mut stream).await.unwrap().is_none());
    }
}

/// A reader that gives `chunk` bytes at a time.
fn in_chunks(bytes: &[u8], chunk: usize) -> tokio::io::DuplexStream {
    let (mut writer, reader) = tokio::io::duplex(chunk);
    let bytes = bytes.to_vec();
    tokio::spawn(async move { writer.write_all(&bytes).await });
    reader
}

#[tokio::test]
async fn a_peer_may_pause_between_values_but_not_inside_one() {
    let stall = std::time::Duration::from_millis(20);
    let (mut writer, mut reader) = tokio::io::duplex(64);
    let mut frames = FrameReader::new(1000).with_stall_timeout(stall);
    let late = async {
        tokio::time::sleep(stall * 3).await;
        writer.write_all(&[0xc0, 0xa3, b'x']).await.unwrap();
    };
    let (value, ()) = tokio::join!(frames.next(&mut reader), late);
    assert_eq!(&*value.unwrap().unwrap(), [0xc0]);
    let error = frames.next(&mut reader).await.unwrap_err();
    assert!(matches!(error, ReadError::Io(e) if e.kind() == std::io::ErrorKind::TimedOut));
}

#[tokio::test]
async fn a_stream_is_bounded() {
    let too_large = [&b"\xdb\x00\x00\x10\x00"[..], &[0; 4096]].concat();
    let error = FrameReader::new(1000)
        .next(&mut &too_large[..])
        .await
        .unwrap_err();
    assert!(
        matches!(error, ReadError::Codec(Error::TooLarge(1000))),
        "{error}"
    );
    let many = [&b"\xdd\xff\xff\xff\xff"[..], &[0; 4096]].concat();
    assert!(FrameReader::new(1000).next(&mut &many[..]).await.is_err());
    let deep = [0x91; 100];
    assert!(FrameReader::new(1000).next(&mut &deep[..]).await.is_err());
    assert!(FrameReader::new(1000).next(&mut &[0xc1][..]).await.is_err());
    let error = FrameReader::new(1000)
        .next(&mut &[0x91][..])
        .await
        .unwrap_err();
    assert!(matches!(error, ReadError::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(Value::Uint),
        (i64::MIN..0).prop_map(Value::Int),
        any::<i32>().prop_map(|v| Value::F64(v.into())),
        any::<i16>().prop_map(|v| Value::F32(v.into())),
        proptest::collection::vec(any::<u8>(), 0..70).prop_map(Value::Raw),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        let key = proptest::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..20).prop_map(Value::Array),
            proptest::collection::btree_map(key, inner, 0..20)
                .prop_map(|m| Value::Map(m.into_iter().map(|(k, v)| (Value::Raw(k), v)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_survives(value in any_value()) {
        let bytes = to_vec(&value).unwrap();
        prop_assert_eq!(&from_slice::<Value>(&bytes).unwrap(), &value);
        prop_assert_eq!(Scanner::default().advance(&bytes, usize::MAX).unwrap(), Some(bytes.len()));
        for cut in 0..bytes.len() {
            prop_assert!(from_slice::<Value>(&bytes[..cut]).is_err());
        }
        // Found no matter how the bytes arrive.
        let mut scanner = Scanner::default();
        for shown in 0..bytes.len() {
            prop_assert_eq!(scanner.advance(&bytes[..shown], usize::MAX).unwrap(), None);
        }
        prop_assert_eq!(scanner.advance(&bytes, usize::MAX).unwrap(), Some(bytes.len()));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = from_slice::<Value>(&bytes);
        let _ = from_slice::<Sample>(&bytes);
        let _ = from_slice::<Vec<Option<Sample>>>(&bytes);
        let scanned = Scanner::default().advance(&bytes, 1000);
        if let Ok(Some(length)) = scanned {
            prop_assert!(from_slice::<serde::de::IgnoredAny>(&bytes[..length]).is_ok());
        }
    }
}

/// Everything that was recorded between a client and a real Consul 1.8.7, request and response headers and bodies.
#[test]
fn recorded_values_keep_their_bytes() {
    let text = include_str!("../../tests/data/wire/rpc/calls.json");
    let calls: BTreeMap<String, Vec<BTreeMap<String, Vec<String>>>> =
        serde_json::from_str(text).unwrap();
    let mut seen = 0;
    for (name, calls) in calls {
        for (side, hex) in calls
            .iter()
            .flatten()
            .flat_map(|(side, all)| all.iter().map(move |hex| (side, hex)))
        {
            let bytes = from_hex(hex);
            let mut value: Value = from_slice(&bytes).unwrap();
            let out = to_vec(&value).unwrap();
            assert_eq!(
                Scanner::default().advance(&bytes, MAX_BODY).unwrap(),
                Some(bytes.len())
            );
            let structs_sorted = sort_maps(&mut value);
            if side == "response" && name != "tls_ConnectCA.ConfigurationGet" {
                assert!(structs_sorted, "{name}"); // Go sorts as we do; the recording client did not, and a CA configuration is a Go map.
            }
            assert_eq!(out.len(), bytes.len(), "{name}");
            assert_eq!(from_slice::<Value>(&out).unwrap(), value, "{name}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap())
        .collect()
}

/// Sorts all maps; gives whether those with field names for keys (Go's structs, not its maps) were sorted before.
fn sort_maps(value: &mut Value) -> bool {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .map(sort_maps)
            .fold(true, std::ops::BitAnd::bitand),
        Value::Map(pairs) => {
            let key = |pair: &(Value, Value)| match &pair.0 {
                Value::Raw(raw) => raw.clone(),
                other => panic!("{other:?}"),
            };
            let is_struct = pairs.iter().all(|p| key(p)[0].is_ascii_uppercase());
            let sorted = pairs.is_sorted_by_key(key);
            pairs.sort_by_key(key);
            let inner = pairs
                .iter_mut()
                .map(|pair| sort_maps(&mut pair.1))
                .fold(true, std::ops::BitAnd::bitand);
            inner && (sorted || !is_struct)
        }
        _ => true,
    }
}
