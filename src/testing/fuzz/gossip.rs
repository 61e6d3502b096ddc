//! What gossip reads from peers.

use crate::gossip::Coordinate;
use crate::gossip::ServerTags;
use crate::gossip::Tags;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::Key;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::Message;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::StreamDecoder;
use crate::gossip::wire::StreamMessage;
use crate::gossip::wire::packet;
use crate::gossip::wire::serf::Filter;

/// A packet, plain and as if it were encrypted, and all that is inside; what was read must survive being written.
pub fn fuzz_gossip_packet(data: &[u8]) {
    if let Ok(ring) = Key::new(&[7; 16]).map(Keyring::new) {
        let incoming = Incoming {
            keyring: Some(&ring),
            allow_plain: false,
        };
        let _ = packet::open(data, &incoming);
    }
    let _ = Tags::from_meta(data).map(|tags| ServerTags::parse(&tags));
    serf_message(data);
    let Ok(packet) = packet::open(data, &Incoming::default()) else {
        return;
    };
    for message in packet.messages {
        let again = message.encode().and_then(|bytes| Message::decode(&bytes));
        assert_eq!(again.as_ref(), Ok(&message));
        match message {
            Message::User(body) => serf_message(&body),
            Message::Ack(ack) => drop(Coordinate::from_ack_payload(&ack.payload)),
            _ => {}
        }
    }
}

/// A stream whose bytes arrive in two parts, which must not change what is read.
pub fn fuzz_gossip_stream(data: &[u8]) {
    let incoming = Incoming::default();
    let whole = StreamDecoder::default().advance(data, &incoming);
    let mut decoder = StreamDecoder::default();
    let half = data.get(..data.len() / 2).unwrap_or_default();
    let mut parts = decoder.advance(half, &incoming);
    if parts == Ok(None) {
        parts = decoder.advance(data, &incoming);
        assert_eq!(parts, whole);
    }
    let Ok(Some(message)) = whole else {
        return;
    };
    if let Ok(written) = message.encode() {
        let again = StreamDecoder::default().advance(&written, &incoming);
        assert_eq!(again.as_ref(), Ok(&Some(message.clone())));
    }
    match message {
        StreamMessage::PushPull(body) => serf_message(&body.user_state),
        StreamMessage::User(body) => serf_message(&body),
        _ => {}
    }
}

fn serf_message(data: &[u8]) {
    let Ok(message) = SerfMessage::decode(data) else {
        return;
    };
    let again = message
        .encode()
        .and_then(|bytes| SerfMessage::decode(&bytes));
    assert_eq!(again.as_ref(), Ok(&message));
    if let SerfMessage::Query(query) = message {
        for filter in &query.filters {
            let _ = Filter::decode(filter);
        }
    }
}
