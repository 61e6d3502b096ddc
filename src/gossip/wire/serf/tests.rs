use super::*;
use crate::gossip::MemberStatus;
use crate::gossip::Tags;

fn both_ways(message: &SerfMessage) {
    let bytes = message.encode().unwrap();
    assert_eq!(SerfMessage::decode(&bytes).as_ref(), Ok(message));
}

fn query() -> Query {
    let nodes = Filter::Nodes(vec!["a".into(), "b".into()]);
    let tag = Filter::Tag {
        name: "role".into(),
        pattern: "^web".into(),
    };
    Query {
        ltime: 9,
        id: 0xdead_beef,
        addr: std::net::IpAddr::from([10, 0, 0, 1]).into(),
        port: 8301,
        source_node: "a".into(),
        filters: vec![nodes.encode().unwrap(), tag.encode().unwrap()],
        flags: Query::ACK | Query::NO_BROADCAST,
        relay_factor: 2,
        timeout: std::time::Duration::from_millis(1500).into(),
        name: "_serf_ping".into(),
        payload: Blob::default(),
    }
}

#[test]
fn every_message_comes_back() {
    let member = Member {
        name: "a".into(),
        addr: std::net::IpAddr::from([10, 0, 0, 1]).into(),
        port: 8301,
        tags: Tags::from_iter([("role", "node")]),
        status: MemberStatus::Leaving,
        protocol_max: 5,
        ..Member::default()
    };
    let response = QueryResponse {
        ltime: 9,
        id: 7,
        from: "b".into(),
        flags: QueryResponse::ACK,
        payload: Blob::from(&b"x"[..]),
    };
    let response = SerfMessage::QueryResponse(response);
    let relay = RelayHeader {
        dest_addr: Endpoint {
            ip: std::net::IpAddr::from([10, 0, 0, 2]).into(),
            port: 8301,
            zone: String::new(),
        },
        dest_name: "c".into(),
    };
    let event = PastEvent {
        name: "deploy".into(),
        payload: Blob::from(&b"x"[..]),
    };
    let events = PastEvents {
        ltime: 3,
        events: vec![event],
    };
    for message in [
        SerfMessage::Leave(Leave {
            ltime: 4,
            node: "a".into(),
            prune: true,
        }),
        SerfMessage::PushPull(PushPull {
            ltime: 4,
            status_ltimes: [("a".into(), 2), ("b".into(), 0)].into(),
            left_members: vec!["b".into()],
            event_ltime: 3,
            events: vec![events],
            query_ltime: 1,
        }),
        SerfMessage::Query(query()),
        SerfMessage::Relay(relay, response.encode().unwrap().into()),
        response,
        SerfMessage::ConflictResponse(Box::new(member)),
        SerfMessage::KeyRequest(KeyRequest {
            key: Blob::from(vec![1; 32]),
        }),
        SerfMessage::KeyResponse(KeyResponse {
            result: true,
            message: String::new(),
            keys: vec!["AQ==".into()],
            primary_key: "AQ==".into(),
        }),
    ] {
        both_ways(&message);
    }
}

#[test]
fn flags_and_filters_of_a_query_are_read() {
    let query = query();
    assert!(query.wants_ack() && query.is_private());
    let filters: Vec<Filter> = query
        .filters
        .iter()
        .map(|filter| Filter::decode(filter).unwrap())
        .collect();
    assert!(matches!(&filters[0], Filter::Nodes(nodes) if nodes.len() == 2));
    assert!(matches!(&filters[1], Filter::Tag { name, .. } if name == "role"));
    assert_eq!(Filter::decode(&[2, 0x80]), Err(Error::Kind(2)));
}

/// An empty filter can be understood by nobody: it must not vanish, or all would answer.
#[test]
fn an_empty_filter_stays() {
    let mut query = query();
    query.filters.push(Blob::default());
    both_ways(&SerfMessage::Query(query));
    assert_eq!(Filter::decode(&[]), Err(Error::Empty));
}

/// Twenty MiB of nils cost nothing, twenty MiB of empty names are refused.
#[test]
fn lists_are_bounded() {
    let mut nils = vec![2, 0x81, 0xa6];
    nils.extend_from_slice(b"Events");
    nils.extend_from_slice(&[0xdd, 0, 0x20, 0, 0]);
    nils.resize(nils.len() + (0x20 << 16), 0xc0);
    let read = SerfMessage::decode(&nils).unwrap();
    assert_eq!(read, SerfMessage::PushPull(PushPull::default()));

    let mut names = vec![2, 0x81, 0xab];
    names.extend_from_slice(b"LeftMembers");
    names.extend_from_slice(&[0xdd, 0, 0x20, 0, 0]);
    names.resize(names.len() + (0x20 << 16), 0xa0);
    let error = SerfMessage::decode(&names).unwrap_err().to_string();
    assert!(error.contains("131072"), "{error}");
}

#[test]
fn keys_are_not_shown() {
    let request = KeyRequest {
        key: Blob::from(&b"secret"[..]),
    };
    let response = KeyResponse {
        keys: vec!["secret".into()],
        primary_key: "secret".into(),
        ..KeyResponse::default()
    };
    let shown = format!("{request:?} {response:?}");
    assert!(!shown.contains("secret"));
}

#[test]
fn what_is_no_message_is_refused() {
    assert_eq!(SerfMessage::decode(&[]), Err(Error::Empty));
    assert_eq!(SerfMessage::decode(&[10, 0x80]), Err(Error::Kind(10)));
    assert!(matches!(SerfMessage::decode(&[0, 1]), Err(Error::Body(_))));
}
