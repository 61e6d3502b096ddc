use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::gossip::wire::Blob;
use crate::gossip::wire::Key;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::Versions;
use crate::gossip::wire::keyring::EncryptionVersion;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::Alive;
use crate::gossip::wire::message::IndirectPing;
use crate::gossip::wire::message::Nack;
use crate::gossip::wire::message::Ping;

const PLAIN: Incoming<'_> = Incoming {
    keyring: None,
    allow_plain: false,
};

fn dead(node: &str) -> Message {
    Message::Dead(Accusation {
        incarnation: 3,
        node: node.into(),
        from: "b".into(),
    })
}

fn text() -> impl Strategy<Value = String> {
    "[a-z.]{0,40}"
}

fn blob() -> impl Strategy<Value = Blob> {
    proptest::collection::vec(any::<u8>(), 0..80).prop_map(Blob::from)
}

fn addr() -> impl Strategy<Value = crate::gossip::wire::NodeAddr> {
    any::<std::net::IpAddr>().prop_map(Into::into)
}

fn accusation() -> impl Strategy<Value = Accusation> {
    (any::<u32>(), text(), text()).prop_map(|(incarnation, node, from)| Accusation {
        incarnation,
        node: node.into(),
        from: from.into(),
    })
}

fn ping() -> impl Strategy<Value = Ping> {
    (any::<u32>(), text(), addr(), any::<u16>()).prop_map(|(seq_no, node, source_addr, port)| {
        Ping {
            seq_no,
            source_node: node.as_str().into(),
            node: node.into(),
            source_addr,
            source_port: port,
        }
    })
}

fn alive() -> impl Strategy<Value = Alive> {
    (any::<u32>(), text(), addr(), any::<u16>(), blob()).prop_map(
        |(incarnation, node, addr, port, meta)| Alive {
            incarnation,
            node: node.into(),
            addr,
            port,
            meta,
            vsn: Versions::OURS,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        ping().prop_map(Message::Ping),
        (ping(), any::<bool>(), addr()).prop_map(|(ping, nack, target)| {
            Message::IndirectPing(IndirectPing {
                seq_no: ping.seq_no,
                target,
                port: ping.source_port,
                node: ping.node,
                nack,
                ..IndirectPing::default()
            })
        }),
        (any::<u32>(), blob()).prop_map(|(seq_no, payload)| Message::Ack(Ack { seq_no, payload })),
        any::<u32>().prop_map(|seq_no| Message::Nack(Nack { seq_no })),
        accusation().prop_map(Message::Suspect),
        accusation().prop_map(Message::Dead),
        alive().prop_map(Message::Alive),
        blob().prop_map(|blob| Message::User(blob.0)),
    ]
}

proptest! {
    #[test]
    fn what_is_sent_is_received(
        messages in proptest::collection::vec(message(), 1..20),
        [compress, checksum, encrypt, pad] in any::<[bool; 4]>(),
        nonce: Nonce,
    ) {
        let ring = Keyring::new(Key::new(&[5; 32]).unwrap());
        let ring = encrypt.then_some(&ring);
        let outgoing = Outgoing {
            compress,
            checksum,
            keyring: ring,
            encryption: if pad { EncryptionVersion::Padded } else { EncryptionVersion::Unpadded },
        };
        let parts: Vec<Vec<u8>> = messages.iter().map(|m| m.encode().unwrap()).collect();
        let joined = compound(&parts).unwrap();
        let packet = seal(joined.clone(), &outgoing, nonce).unwrap();
        prop_assert!(joined.len() <= room(joined.len() + 1000, &outgoing) && joined.len() <= 100_000);
        prop_assert!(compress || joined.len() <= packet.len());
        prop_assert!(room(packet.len(), &outgoing) >= joined.len() || compress || pad);
        let read = open(&packet, &Incoming { keyring: ring, allow_plain: false }).unwrap();
        prop_assert_eq!((read.skipped, read.first_error), (0, None));
        prop_assert_eq!(read.messages, messages);
    }

    #[test]
    fn a_damaged_packet_is_noticed(at in 0usize..60, bit in 0u8..8) {
        let outgoing = Outgoing { checksum: true, ..Outgoing::default() };
        let mut packet = seal(dead(&"a".repeat(60)).encode().unwrap(), &outgoing, [0; 12]).unwrap();
        packet[1 + at] ^= 1 << bit;
        let checksum = matches!(open(&packet, &PLAIN), Err(Error::Checksum { .. }));
        prop_assert!(checksum);
    }
}

#[test]
fn one_bad_message_does_not_spoil_the_others() {
    let parts = [
        dead("a").encode().unwrap(),
        vec![77],
        vec![],
        vec![0, 0xc1],
        dead("c").encode().unwrap(),
    ];
    let packet = open(&compound(&parts).unwrap(), &PLAIN).unwrap();
    assert_eq!(packet.messages, [dead("a"), dead("c")]);
    assert_eq!(packet.skipped, 3);
    assert_eq!(packet.first_error, Some(Error::Kind(77)));
}

#[test]
fn of_a_cut_off_compound_the_whole_parts_count() {
    let parts = ["a", "b", "c"].map(|node| dead(node).encode().unwrap());
    let mut cut = compound(&parts).unwrap();
    cut.pop();
    let packet = open(&cut, &PLAIN).unwrap();
    assert_eq!(packet.messages, [dead("a"), dead("b")]);
    assert_eq!(
        (packet.skipped, packet.first_error),
        (1, Some(Error::Truncated))
    );
}

#[test]
fn encryption_is_demanded_where_there_are_keys() {
    let ring = Keyring::new(Key::new(&[1; 16]).unwrap());
    let plain = dead("a").encode().unwrap();
    let mut incoming = Incoming {
        keyring: Some(&ring),
        allow_plain: false,
    };
    assert!(open(&plain, &incoming).is_err());
    incoming.allow_plain = true;
    assert_eq!(open(&plain, &incoming).unwrap().messages, [dead("a")]);
}

#[test]
fn nesting_and_unfolding_are_bounded() {
    let mut nested = dead("a").encode().unwrap();
    for _ in 0..MAX_NESTING {
        nested = lzw::compress(&nested).unwrap();
    }
    assert_eq!(open(&nested, &PLAIN).unwrap().messages, [dead("a")]);
    nested = compound(&[nested.clone(), nested]).unwrap();
    let error = open(&nested, &PLAIN).unwrap().first_error;
    assert_eq!(error, Some(Error::Depth));

    // Each part alone stays within the limit, all together do not.
    let mut big = vec![u8::from(Kind::User)];
    big.resize(MAX_UNFOLDED / 3, 0);
    let bomb = compound(&vec![lzw::compress(&big).unwrap(); 30]).unwrap();
    let packet = open(&bomb, &PLAIN).unwrap();
    assert_eq!((packet.messages.len(), packet.skipped), (3, 27));
    assert!(matches!(packet.first_error, Some(Error::TooLarge { .. })));
}

#[test]
fn a_compound_has_limits() {
    assert_eq!(compound::<Vec<u8>>(&[]), Err(Error::Empty));
    assert!(compound(&vec![[0]; MAX_PARTS]).is_ok());
    assert!(compound(&vec![[0]; MAX_PARTS + 1]).is_err());
    assert!(compound(&[vec![0; 65_536], vec![]]).is_err());
}

#[test]
fn compression_is_left_out_where_it_does_not_help() {
    let outgoing = Outgoing {
        compress: true,
        ..Outgoing::default()
    };
    let short = dead("a").encode().unwrap();
    assert_eq!(seal(short.clone(), &outgoing, [0; 12]), Ok(short));
    let long = Message::User(Bytes::from(vec![b'x'; 900]))
        .encode()
        .unwrap();
    assert!(seal(long, &outgoing, [0; 12]).unwrap().len() < 200);
}

#[test]
fn messages_of_streams_do_not_belong_in_packets() {
    for kind in [6u8, 10, 12, 13, 14, 255] {
        let packet = open(&compound(&[[kind, 0x80], [kind, 0x80]]).unwrap(), &PLAIN).unwrap();
        assert_eq!(packet.first_error, Some(Error::Kind(kind)));
    }
}
