//! Clients that are too many, too slow, silent or talk nonsense.

use std::collections::HashSet;
use std::time::Duration;

use crossway::codec::Value;
use crossway::net::Tls;
use crossway::rpc::Limits;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::io::AsyncWriteExt;

use super::port::Lab;
use super::port::Port;
use super::port::Setup;
use super::port::exchange;
use super::port::request;
use super::port::until_closed;

fn with_limits(tls: Tls, limits: Limits) -> Port {
    Setup {
        limits,
        ..Setup::new(tls)
    }
    .start()
}

#[tokio::test]
async fn slow_handshakes_are_cut_off() {
    let lab = Lab::new();
    let limits = Limits {
        handshake_timeout: Duration::from_millis(100),
        max_conns_per_client: 0,
        ..Limits::default()
    };
    let tls = lab.tls_with(Some(&lab.server), |settings| {
        settings.verify_incoming = true
    });
    let port = with_limits(tls, limits);
    for begun in [
        &b""[..],                    // Never a byte.
        b"\x03",                     // A wish for TLS, and nothing more.
        b"\x16\x03\x01\x02\x00\x01", // Half a ClientHello.
        b"\x03\x16\x03",
        b"\x07",
    ] {
        let mut stream = port.connect().await;
        stream.write_all(begun).await.unwrap();
        until_closed(&mut stream).await;
    }
    // TLS, and then never an inner type byte.
    let mut tcp = port.connect().await;
    tcp.write_all(&[3]).await.unwrap();
    let client = port.tls.lan_client("dc1", port.address.ip()).unwrap();
    let mut stream = crossway::net::Stream::connect_tls(tcp, client)
        .await
        .unwrap();
    until_closed(&mut stream).await;
    port.check_alive().await;
}

#[tokio::test]
async fn an_established_session_has_no_deadline() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let port = with_limits(Tls::disabled(), limits);
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    exchange(&mut stream, "Status.Ping", 1, &[0x80])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await; // Longer than the deadline of the handshake.
    exchange(&mut stream, "Status.Ping", 2, &[0x80])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_address_has_so_many_connections_and_a_gateway_more() {
    let limits = |gateways: &[&str]| Limits {
        max_conns_per_client: 3,
        max_conns_per_gateway: 5,
        gateways: gateways
            .iter()
            .map(|address| address.parse().unwrap())
            .collect::<HashSet<_>>(),
        ..Limits::default()
    };
    for (limits, most) in [(limits(&[]), 3), (limits(&["127.0.0.1"]), 5)] {
        let port = with_limits(Tls::disabled(), limits);
        let mut open = Vec::new();
        for _ in 0..most {
            let mut stream = port.connect().await;
            stream.write_all(&[0]).await.unwrap();
            exchange(&mut stream, "Status.Ping", 1, &[0x80])
                .await
                .unwrap();
            open.push(stream);
        }
        let mut refused = port.connect().await;
        let _ = refused.write_all(&[0]).await;
        until_closed(&mut refused).await;
        drop(open);
        // Room again, as soon as the server has seen them go.
        loop {
            let mut stream = port.connect().await;
            let _ = stream.write_all(&[0]).await;
            if exchange(&mut stream, "Status.Ping", 1, &[0x80])
                .await
                .is_ok()
            {
                break;
            }
        }
    }
}

#[tokio::test]
async fn the_requests_of_an_address_are_bounded_in_sum() {
    let limits = Limits {
        max_held_per_client: 1000,
        ..Limits::default()
    };
    let port = with_limits(Tls::disabled(), limits);
    let body = |bytes: u16| {
        let [high, low] = bytes.to_be_bytes();
        let mut body = vec![0xda, high, low];
        body.resize(3 + usize::from(bytes), b'x');
        body
    };
    let mut waiting = port.connect().await;
    waiting.write_all(&[0]).await.unwrap();
    waiting
        .write_all(&request("Test.Wait", 1, &body(700)))
        .await
        .unwrap();
    port.until_waiting(1).await;
    // Another connection of the same address. What is answered does not count any more.
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    for seq in 0..5 {
        let (_, answer) = exchange(&mut stream, "Test.Echo", seq, &body(150))
            .await
            .unwrap();
        assert_eq!(answer, Value::Raw(vec![b'x'; 150]));
    }
    let (header, _) = exchange(&mut stream, "Test.Echo", 9, &body(400))
        .await
        .unwrap();
    let header = header.to_json().to_string();
    assert!(
        header.contains("have more than 1000 bytes; send fewer") && header.contains("Test.Echo"),
        "{header}"
    );
    until_closed(&mut stream).await;
    drop(waiting);
    port.until_waiting(0).await;
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    exchange(&mut stream, "Test.Echo", 1, &body(800))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_do_no_harm() {
    let lab = Lab::new();
    let strict = lab.strict_port();
    let limits = Limits {
        handshake_timeout: Duration::from_millis(200),
        max_conns_per_client: 0,
        ..Limits::default()
    };
    let plain = with_limits(Tls::disabled(), limits);
    let mut rng = StdRng::seed_from_u64(8300);
    for round in 0..300 {
        let mut bytes = vec![0; rng.random_range(1..2000)];
        rng.fill(&mut bytes[..]);
        // Let many get past the first byte: a session, yamux, a TLS record.
        if round % 4 < 3 {
            bytes[0] = [0, 4, 0x16][round % 4];
        }
        let port = if round % 2 == 0 { &plain } else { &strict };
        let mut stream = port.connect().await;
        let _ = stream.write_all(&bytes).await; // May be refused midway.
        let _ = stream.shutdown().await;
    }
    plain.check_alive().await;
    strict.check_alive().await;
}

/// The small version of many thousand: each idle connection costs a task and no thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_slow_the_others() {
    let port = Port::plain();
    let mut idle = Vec::new();
    for number in 0..400 {
        let mut stream = port.connect().await;
        match number % 3 {
            0 => stream.write_all(&[0]).await.unwrap(),
            1 => stream.write_all(&[4]).await.unwrap(),
            _ => {} // Half-open: within its handshake deadline.
        }
        idle.push(stream);
    }
    let mut stream = port.connect().await;
    stream.write_all(&[0]).await.unwrap();
    for seq in 0..200 {
        exchange(&mut stream, "Status.Ping", seq, &[0x80])
            .await
            .unwrap();
    }
    drop(idle);
    port.shutdown.cancel();
    tokio::time::timeout(super::port::PATIENCE, port.task)
        .await
        .unwrap()
        .unwrap();
    until_closed(&mut stream).await;
}
