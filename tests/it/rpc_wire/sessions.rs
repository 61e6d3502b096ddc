//! What happens on a net/rpc stream.

use crossway::codec;
use crossway::codec::Value;
use crossway::rpc::ClientError;
use crossway::rpc::MAX_BODY;
use crossway::rpc::Security;
use crossway::rpc::Session;
use tokio::io::AsyncWriteExt;

use super::port::Lab;
use super::port::PATIENCE;
use super::port::Port;
use super::port::exchange;
use super::port::reply;
use super::port::request;
use super::port::until_closed;

fn error_of(header: &Value) -> &str {
    header.get("Error").unwrap().as_str().unwrap()
}

#[tokio::test]
async fn a_call_that_waits_holds_up_no_other_and_ends_with_its_caller() {
    let port = Port::plain();
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    stream
        .write_all(&request("Test.Wait", 1, &[0x80]))
        .await
        .unwrap();
    port.until_waiting(1).await;
    let (header, body) = exchange(&mut stream, "Status.Leader", 2, &[0x80])
        .await
        .unwrap();
    assert_eq!(header.get("Seq"), Some(&Value::Uint(2)));
    assert_eq!(body.as_str(), Some("10.71.0.11:8300"));
    drop(stream);
    port.until_waiting(0).await;
}

#[tokio::test]
async fn a_call_given_up_by_the_client_ends_at_the_server() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let target = port.target(Security::Native { sni: None }, true);
    let session = Session::connect(&target, &port.tls, PATIENCE)
        .await
        .unwrap();
    let (one, two) = (session.clone(), session.clone());
    let wait = |session: Session| {
        tokio::spawn(async move { session.call("Test.Wait", &[0x80], PATIENCE).await })
    };
    let (one, two) = (wait(one), wait(two));
    port.until_waiting(2).await;
    one.abort(); // The caller's future is dropped, its stream reset.
    port.until_waiting(1).await;
    session
        .call("Status.Ping", &[0x80], PATIENCE)
        .await
        .unwrap();
    let late = session
        .call("Test.Wait", &[0x80], std::time::Duration::from_millis(50))
        .await;
    assert!(matches!(late, Err(ClientError::Timeout { .. })), "{late:?}");
    port.until_waiting(1).await;
    two.abort();
    drop(session);
    port.until_waiting(0).await;
}

/// Go's TLS ends without close_notify now and then; a killed process always does.
#[tokio::test]
async fn a_tls_connection_that_just_ends_is_an_end() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let client = port
        .tls
        .named_client("server.dc1.consul", "consul/rpc-single")
        .unwrap();
    let connector = tokio_rustls::TlsConnector::from(client.config);
    let mut stream = connector
        .connect(client.name, port.connect().await)
        .await
        .unwrap();
    stream
        .write_all(&request("Test.Wait", 1, &[0x80]))
        .await
        .unwrap();
    stream.flush().await.unwrap();
    port.until_waiting(1).await;
    let (tcp, _) = stream.into_inner();
    drop(tcp); // FIN without a word of TLS.
    port.until_waiting(0).await;
}

#[tokio::test]
async fn errors_of_net_rpc_itself_end_the_stream_as_in_go() {
    let port = Port::plain();
    for (method, body, expected) in [
        (
            "Nope.Nope",
            &[0x80][..],
            "rpc: can't find service Nope.Nope",
        ),
        ("Status.Nope", &[0x80], "rpc: can't find method Status.Nope"),
        (
            "NoDot",
            &[0x80],
            "rpc: service/method request ill-formed: NoDot",
        ),
        (
            "Test.Number",
            b"\xa1x",
            "msgpack: invalid type: string \"x\", expected u64",
        ),
    ] {
        let mut stream = port.connect().await;
        stream.write_all(&[0]).await.unwrap();
        let (header, body) = exchange(&mut stream, method, 3, body).await.unwrap();
        assert_eq!(error_of(&header), expected);
        assert_eq!(body, Value::Map(Vec::new()));
        assert!(until_closed(&mut stream).await.is_empty());
    }
    // An error of the application does not.
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    for seq in 0..3 {
        let (header, _) = exchange(&mut stream, "Catalog.ListServices", seq, &[0x80])
            .await
            .unwrap();
        assert_eq!(error_of(&header), "No path to datacenter");
    }
}

#[tokio::test]
async fn a_client_goes_on_after_errors_of_net_rpc() {
    let port = Port::plain();
    let target = port.target(Security::Plain, true);
    let session = Session::connect(&target, &port.tls, PATIENCE)
        .await
        .unwrap();
    for _ in 0..3 {
        let error = session
            .call("Nope.Nope", &[0x80], PATIENCE)
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "rpc error making call: rpc: can't find service Nope.Nope"
        );
        let error = session
            .call("Test.Panic", &[0x80], PATIENCE)
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::Broken(_)), "{error}");
        let number: u64 = session
            .call_with("Test.Number", &7u64, PATIENCE)
            .await
            .unwrap();
        assert_eq!(number, 7);
    }
    port.shutdown.cancel();
    let error = session
        .call("Status.Ping", &[0x80], PATIENCE)
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("rpc error making call: "),
        "{error}"
    );
    let error = Session::connect(&target, &port.tls, PATIENCE)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("rpc error getting client: failed to get conn: 127.0.0.1:"),
        "{error}"
    );
}

#[tokio::test]
async fn many_calls_share_a_session() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let target = port.target(Security::TypeByte, true);
    let session = Session::connect(&target, &port.tls, PATIENCE)
        .await
        .unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..200u64 {
        let session = session.clone();
        calls.spawn(async move {
            for round in 0..5 {
                let sent = number * 10 + round;
                let got: u64 = session
                    .call_with("Test.Number", &sent, PATIENCE)
                    .await
                    .unwrap();
                assert_eq!(got, sent);
            }
        });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn large_bodies_pass_in_every_mode_and_too_large_ones_do_not() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let body = codec::to_vec(&"x".repeat(3_000_000)).unwrap();
    for security in [Security::TypeByte, Security::Native { sni: None }] {
        for multi in [false, true] {
            let target = port.target(security.clone(), multi);
            let session = Session::connect(&target, &port.tls, PATIENCE)
                .await
                .unwrap();
            let answer = session.call("Test.Echo", &body, PATIENCE).await.unwrap();
            assert!(answer == body, "{security:?} {multi}");
        }
    }
    let plain = Port::plain();
    let mut stream = plain.connect().await;
    stream.write_all(&[0]).await.unwrap();
    let length = u32::try_from(MAX_BODY).unwrap() + 1;
    let head = [&[0xdb][..], &length.to_be_bytes()].concat();
    stream
        .write_all(&request("Test.Echo", 1, &head))
        .await
        .unwrap();
    until_closed(&mut stream).await;
    plain.check_alive().await;
}

#[tokio::test]
async fn pipelined_requests_are_all_answered() {
    let port = Port::plain();
    let mut stream = port.connect().await;
    let all: Vec<u8> = (0..300)
        .flat_map(|seq| request("Status.Ping", seq, &[0x80]))
        .collect();
    stream.write_all(&[&[0], &all[..]].concat()).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let (header, _) = reply(&mut stream).await.unwrap();
        match header.get("Seq") {
            Some(Value::Uint(seq)) => assert!(seen.insert(*seq)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.len(), 300);
}
