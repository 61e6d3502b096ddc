//! Gossip that real Consul 1.8.7 agents sent: read to the same meaning, and written again to the same bytes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop it.

use crossway::codec;
use crossway::gossip::Coordinate;
use crossway::gossip::ServerTags;
use crossway::gossip::Tags;
use crossway::gossip::wire::Blob;
use crossway::gossip::wire::Incoming;
use crossway::gossip::wire::Message;
use crossway::gossip::wire::NodeAddr;
use crossway::gossip::wire::Outgoing;
use crossway::gossip::wire::SerfMessage;
use crossway::gossip::wire::StreamDecoder;
use crossway::gossip::wire::StreamMessage;
use crossway::gossip::wire::Versions;
use crossway::gossip::wire::message::Accusation;
use crossway::gossip::wire::packet;
use crossway::gossip::wire::serf;
use crossway::gossip::wire::stream;
use crossway::testing::fuzz::gossip::fuzz_gossip_packet;
use crossway::testing::fuzz::gossip::fuzz_gossip_stream;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use serde_json::json;

/// Each packet, and what an independent reader made of it: kind and body of each message.
fn packets() -> Vec<(Vec<u8>, Value)> {
    let text = include_str!("../data/gossip/packets.json");
    let all: Vec<(String, Value)> = serde_json::from_str(text).unwrap();
    all.into_iter().map(|(hex, v)| (bytes(&hex), v)).collect()
}

/// Each push/pull with its header, its nodes and serf's part of it.
fn streams() -> Vec<(Vec<u8>, Value, Value, Value)> {
    let text = include_str!("../data/gossip/streams.json");
    let all: Vec<(String, Value, Value, Value)> = serde_json::from_str(text).unwrap();
    let decode = |(hex, header, nodes, user): (String, Value, Value, Value)| {
        (bytes(&hex), header, nodes, user)
    };
    all.into_iter().map(decode).collect()
}

/// What is inside checksum and compression. Two writers of LZW need not agree on its bytes: Go's older one leaves out the
/// clear code at the start, which all readers take.
fn unwrapped(bytes: &[u8]) -> Vec<u8> {
    match bytes[0] {
        12 => unwrapped(&bytes[5..]),
        9 => {
            let body: codec::Value = codec::from_slice(&bytes[1..]).unwrap();
            let Some(codec::Value::Raw(packed)) = body.get("Buf") else {
                panic!("{body:?}");
            };
            let mut decoder = weezl::decode::Decoder::new(weezl::BitOrder::Lsb, 8);
            decoder.decode(packed).unwrap()
        }
        _ => bytes.to_vec(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn shown(blob: &Blob) -> Value {
    match std::str::from_utf8(blob) {
        Ok(text) => json!(text),
        Err(_) => {
            let hex: String = blob.iter().map(|b| format!("{b:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

fn addr(addr: NodeAddr) -> Value {
    json!(addr.ip().unwrap().to_string())
}

fn tags(meta: &Blob) -> Value {
    let tags = Tags::from_meta(meta).unwrap();
    assert!(tags.get("role") != Some("consul") || ServerTags::parse(&tags).is_ok());
    tags.iter().map(|(k, v)| (k.to_owned(), json!(v))).collect()
}

fn versions(vsn: Versions) -> Value {
    assert_eq!(vsn, Versions::OURS);
    json!([1, 5, 2, 2, 5, 4])
}

fn accusation(body: &Accusation) -> Value {
    json!({ "From": body.from, "Incarnation": body.incarnation, "Node": body.node })
}

fn meaning(message: &Message) -> Value {
    match message {
        Message::Ping(body) => json!(["ping", {
            "Node": body.node, "SeqNo": body.seq_no, "SourceAddr": addr(body.source_addr),
            "SourceNode": body.source_node, "SourcePort": body.source_port,
        }]),
        Message::Ack(body) => {
            let coordinate = Coordinate::from_ack_payload(&body.payload).unwrap();
            let Coordinate {
                vec,
                error,
                adjustment,
                height,
            } = coordinate.unwrap();
            let numbers = vec.into_iter().chain([error, adjustment, height]);
            let bits: Vec<String> = numbers.map(|n| format!("{:016x}", n.to_bits())).collect();
            json!(["ackResp", { "SeqNo": body.seq_no, "Coordinate": bits }])
        }
        Message::Suspect(body) => json!(["suspect", accusation(body)]),
        Message::Dead(body) => json!(["dead", accusation(body)]),
        Message::Alive(body) => json!(["alive", {
            "Addr": addr(body.addr), "Incarnation": body.incarnation, "Meta": tags(&body.meta),
            "Node": body.node, "Port": body.port, "Vsn": versions(body.vsn),
        }]),
        Message::User(body) => {
            let message = SerfMessage::decode(body).unwrap();
            assert_eq!(message.encode().unwrap(), &body[..]);
            serf_meaning(&message)
        }
        other => panic!("not recorded: {other:?}"),
    }
}

fn serf_meaning(message: &SerfMessage) -> Value {
    match message {
        SerfMessage::Leave(body) => json!(["serf leave", {
            "LTime": body.ltime, "Node": body.node, "Prune": body.prune,
        }]),
        SerfMessage::Join(body) => {
            json!(["serf join", { "LTime": body.ltime, "Node": body.node }])
        }
        SerfMessage::UserEvent(body) => json!(["serf userEvent", {
            "CC": body.coalesce, "LTime": body.ltime, "Name": body.name,
            "Payload": shown(&body.payload),
        }]),
        other => panic!("not recorded: {other:?}"),
    }
}

#[test]
fn recorded_packets_are_read_and_written_again() {
    let recorded = packets();
    assert_eq!(recorded.len(), 549);
    for (bytes, expected) in recorded {
        let packet = packet::open(&bytes, &Incoming::default()).unwrap();
        assert_eq!((packet.skipped, packet.first_error), (0, None));
        let meanings: Vec<Value> = packet.messages.iter().map(meaning).collect();
        assert_eq!(Value::Array(meanings), expected);

        let parts: Vec<_> = packet
            .messages
            .iter()
            .map(|m| m.encode().unwrap())
            .collect();
        let again = packet::compound(&parts).unwrap();
        assert_eq!(again, unwrapped(&bytes));
        let outgoing = Outgoing {
            compress: true,
            checksum: bytes[0] == 12,
            ..Outgoing::default()
        };
        let sealed = packet::seal(again.clone(), &outgoing, [0; 12]).unwrap();
        assert_eq!(sealed[0], bytes[0]);
        assert_eq!(unwrapped(&sealed), again);
    }
}

#[test]
fn recorded_push_pulls_are_read_and_written_again() {
    let recorded = streams();
    assert_eq!(recorded.len(), 22);
    for (bytes, header, nodes, user) in recorded {
        let mut decoder = StreamDecoder::default();
        let message = decoder.advance(&bytes, &Incoming::default()).unwrap();
        let message = message.unwrap();
        let StreamMessage::PushPull(body) = &message else {
            panic!("{message:?}");
        };
        let seen = json!({
            "Join": body.join, "Nodes": body.nodes.len(), "UserStateLen": body.user_state.len(),
        });
        assert_eq!(seen, header);
        let seen = body.nodes.iter().map(|node| {
            json!({
                "Addr": addr(node.addr), "Incarnation": node.incarnation, "Meta": tags(&node.meta),
                "Name": node.name, "Port": node.port, "State": u8::from(node.state),
                "Vsn": versions(node.vsn),
            })
        });
        assert_eq!(Value::Array(seen.collect()), nodes);
        let state = SerfMessage::decode(&body.user_state).unwrap();
        assert_eq!(push_pull(&state), user);
        assert_eq!(SerfMessage::decode(&state.encode().unwrap()), Ok(state));

        assert_eq!(message.encode().unwrap(), unwrapped(&bytes));
        let outgoing = Outgoing {
            compress: true,
            ..Outgoing::default()
        };
        let sealed = stream::seal(&message, &outgoing, [0; 12]).unwrap();
        assert_eq!(unwrapped(&sealed), unwrapped(&bytes));
    }
}

fn push_pull(state: &SerfMessage) -> Value {
    let SerfMessage::PushPull(body) = state else {
        panic!("{state:?}");
    };
    let event =
        |event: &serf::PastEvent| json!({ "Name": event.name, "Payload": shown(&event.payload) });
    let events = body.events.iter().map(|at| {
        let events: Vec<Value> = at.events.iter().map(event).collect();
        json!({ "LTime": at.ltime, "Events": events })
    });
    json!({
        "LTime": body.ltime, "StatusLTimes": body.status_ltimes, "LeftMembers": body.left_members,
        "EventLTime": body.event_ltime, "Events": events.collect::<Vec<Value>>(),
        "QueryLTime": body.query_ltime,
    })
}

/// The fuzz targets on recorded bytes that were changed and cut, and on what is inside their wrappers.
#[test]
fn damaged_gossip_does_no_harm() {
    let mut samples: Vec<Vec<u8>> = streams().into_iter().map(|s| s.0).collect();
    for (bytes, _) in packets() {
        let packet = packet::open(&bytes, &Incoming::default()).unwrap();
        samples.extend(packet.messages.iter().map(|m| m.encode().unwrap()));
        samples.push(bytes[if bytes[0] == 12 { 5 } else { 0 }..].to_vec());
    }
    for (bytes, ..) in streams() {
        let read = StreamDecoder::default().advance(&bytes, &Incoming::default());
        let message = read.unwrap().unwrap();
        if let StreamMessage::PushPull(body) = &message {
            samples.push(body.user_state.to_vec());
        }
        samples.push(message.encode().unwrap());
    }
    let mut rng = StdRng::seed_from_u64(7);
    for sample in samples.iter().cycle().take(6000) {
        let mut damaged = sample.clone();
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(0..damaged.len());
            damaged[at] = rng.random();
        }
        damaged.truncate(rng.random_range(1..=damaged.len()));
        fuzz_gossip_packet(&damaged);
        fuzz_gossip_stream(&damaged);
        let noise: Vec<u8> = (0..rng.random_range(0..60)).map(|_| rng.random()).collect();
        fuzz_gossip_packet(&noise);
        fuzz_gossip_stream(&noise);
    }
}
