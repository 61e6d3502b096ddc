use proptest::prelude::*;

use super::*;
use crate::gossip::wire::Key;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::keyring::EncryptionVersion;

const PLAIN: Incoming<'_> = Incoming {
    keyring: None,
    allow_plain: false,
};

fn push_pull(nodes: usize, user_state: &[u8]) -> StreamMessage {
    let node = |n| PushNodeState {
        name: format!("node{n}").into(),
        addr: std::net::IpAddr::from([10, 0, 0, 1]).into(),
        port: 8301,
        meta: Blob::from(&b"meta"[..]),
        incarnation: n as u32,
        state: NodeState::from((n % 5) as u8),
        vsn: Versions::OURS,
    };
    StreamMessage::PushPull(PushPull {
        join: nodes.is_multiple_of(2),
        nodes: (0..nodes).map(node).collect(),
        user_state: Bytes::copy_from_slice(user_state),
    })
}

fn read(bytes: &[u8], incoming: &Incoming<'_>) -> Result<Option<StreamMessage>, Error> {
    StreamDecoder::default().advance(bytes, incoming)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_sent_is_received_byte_by_byte(
        nodes in 0usize..5,
        state in proptest::collection::vec(any::<u8>(), 0..50),
        kind in 0u8..5,
        [compress, encrypt, pad] in any::<[bool; 3]>(),
        nonce: Nonce,
    ) {
        let message = match kind {
            0 => push_pull(nodes, &state),
            1 => StreamMessage::User(state.into()),
            2 => StreamMessage::Ping(Ping { seq_no: 7, ..Ping::default() }),
            3 => StreamMessage::Ack(Ack { seq_no: 7, payload: state.into() }),
            _ => StreamMessage::Refused("no".to_owned()),
        };
        let ring = Keyring::new(Key::new(&[5; 32]).unwrap());
        let ring = encrypt.then_some(&ring);
        let encryption = if pad { EncryptionVersion::Padded } else { EncryptionVersion::Unpadded };
        let outgoing = Outgoing { compress, checksum: true, keyring: ring, encryption };
        let incoming = Incoming { keyring: ring, allow_plain: false };
        let bytes = seal(&message, &outgoing, nonce).unwrap();
        let mut decoder = StreamDecoder::default();
        for len in 0..bytes.len() {
            prop_assert_eq!(decoder.advance(&bytes[..len], &incoming), Ok(None));
        }
        prop_assert_eq!(decoder.advance(&bytes, &incoming), Ok(Some(message)));
    }
}

#[test]
fn encryption_is_demanded_and_bound_to_the_length() {
    let ring = Keyring::new(Key::new(&[1; 16]).unwrap());
    let message = push_pull(1, b"");
    let plain = message.encode().unwrap();
    let mut with_key = Incoming {
        keyring: Some(&ring),
        allow_plain: false,
    };
    assert_eq!(read(&plain, &with_key), Err(Error::NotEncrypted));
    with_key.allow_plain = true;
    assert_eq!(read(&plain, &with_key), Ok(Some(message.clone())));

    let outgoing = Outgoing {
        keyring: Some(&ring),
        ..Outgoing::default()
    };
    let sealed = seal(&message, &outgoing, [3; 12]).unwrap();
    assert_eq!(read(&sealed, &PLAIN), Err(Error::Encrypted));
    assert_eq!(read(&sealed, &with_key), Ok(Some(message)));
    // As a packet it is not bound to the head, so the same key must not open it.
    assert_eq!(ring.open(&sealed[5..], &[]), Err(Error::NoKey));
}

#[test]
fn lengths_are_refused_before_anything_is_awaited() {
    let header = |nodes, user_state_len| {
        let join = false;
        let header = PushPullHeader {
            nodes,
            user_state_len,
            join,
        };
        message::encode(Kind::PushPull, &header).unwrap()
    };
    let too_long = MAX_MESSAGE as u32 + 1;
    let user = UserHeader {
        user_msg_len: too_long,
    };
    let [a, b, c, d] = too_long.to_be_bytes();
    let ring = Keyring::new(Key::new(&[1; 16]).unwrap());
    let with_key = Incoming {
        keyring: Some(&ring),
        allow_plain: true,
    };
    for bytes in [
        header(0, too_long),
        header(MAX_ENTRIES as u32 + 1, 0),
        message::encode(Kind::User, &user).unwrap(),
        vec![10, a, b, c, d],
    ] {
        let error = read(&bytes, &with_key).unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    }
    assert_eq!(read(&header(1, 0), &PLAIN), Ok(None));
    assert!(read(&[9, 0xdb, 0x7f, 0xff, 0xff, 0xff], &PLAIN).is_err());
}

#[test]
fn what_compression_unfolds_to_is_bounded() {
    let mut bomb = StreamMessage::User(vec![0; MAX_MESSAGE - 100].into())
        .encode()
        .unwrap();
    let packed = lzw::compress(&bomb).unwrap();
    assert!(read(&packed, &PLAIN).is_ok_and(|m| m.is_some()));
    bomb.resize(MAX_MESSAGE + 1, 0);
    let packed = lzw::compress(&bomb).unwrap();
    let error = read(&packed, &PLAIN).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }));
    let twice = lzw::compress(&lzw::compress(&[0, 0x80]).unwrap()).unwrap();
    assert_eq!(read(&twice, &PLAIN), Err(Error::Kind(9)));
}

#[test]
fn what_follows_a_message_is_left_alone() {
    for mut bytes in [
        push_pull(2, b"state").encode().unwrap(),
        StreamMessage::User(Bytes::from_static(b"hi"))
            .encode()
            .unwrap(),
    ] {
        let alone = read(&bytes, &PLAIN).unwrap();
        bytes.extend_from_slice(b"more");
        assert_eq!(read(&bytes, &PLAIN).unwrap(), alone);
    }
}
