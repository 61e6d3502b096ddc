//! Every way into the RPC port, and who is kept out.

use std::sync::Arc;

use crossway::codec;
use crossway::hooks::BoxedStream;
use crossway::hooks::ConnectionKind;
use crossway::hooks::Edition;
use crossway::hooks::Serving;
use crossway::net::Stream;
use crossway::net::Tls;
use crossway::rpc::Incoming;
use crossway::rpc::Plugs;
use crossway::rpc::Protocol;
use crossway::rpc::Security;
use crossway::rpc::Session;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::port::Lab;
use super::port::PATIENCE;
use super::port::Port;
use super::port::Setup;
use super::port::exchange;
use super::port::until_closed;
use crate::support::certs::Authority;

async fn call_with(
    port: &Port,
    tls: &Tls,
    security: Security,
    multi: bool,
) -> Result<String, String> {
    let target = port.target(security, multi);
    let session = Session::connect(&target, tls, PATIENCE)
        .await
        .map_err(|e| e.to_string())?;
    let answer = session
        .call("Test.WhoAmI", &[0x80], PATIENCE)
        .await
        .map_err(|e| e.to_string())?;
    Ok(codec::from_slice(&answer).unwrap())
}

fn native(sni: &str) -> Security {
    Security::Native {
        sni: Some(sni.to_owned()),
    }
}

#[tokio::test]
async fn every_mode_works_at_the_same_port() {
    let lab = Lab::new();
    let port = Setup::new(lab.tls(Some(&lab.server))).start();
    for multi in [false, true] {
        let plain = call_with(&port, &port.tls, Security::Plain, multi)
            .await
            .unwrap();
        assert_eq!(plain, "Plain ");
        for security in [Security::TypeByte, Security::Native { sni: None }] {
            let tls = call_with(&port, &port.tls, security, multi).await.unwrap();
            assert_eq!(tls, "Tls s1.server.dc1.consul server.dc1.consul localhost");
        }
    }
}

#[tokio::test]
async fn the_own_datacenter_is_dialled_by_name_only_if_told_to() {
    let lab = Lab::new();
    let client = lab.ca.sign(&["client.dc1.consul"]);
    let port = Setup::new(lab.tls(Some(&client))).start(); // A server with a client's certificate.
    let call = |tls: Tls| async move { call_with(&port, &tls, Security::TypeByte, true).await };
    let strict = lab.tls_with(Some(&client), |settings| {
        settings.verify_server_hostname = true
    });
    let lax = lab.tls_with(Some(&client), |settings| settings.verify_outgoing = true);
    assert!(strict.dials_with_tls() && lax.dials_with_tls());
    let error = call(strict).await.unwrap_err();
    assert!(
        error.contains("lacks the name server.dc1.consul (it has: "),
        "{error}"
    );
    let port = Setup::new(lab.tls(Some(&client))).start();
    call_with(&port, &lax, Security::TypeByte, true)
        .await
        .unwrap();
}

/// The rows that a real Consul 1.8.7 was probed with, but for those that need mesh gateways.
#[tokio::test]
async fn accepts_and_refuses_as_consul_does() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let client = lab.ca.sign(&["client.dc1.consul", "localhost"]);
    let (own, client) = (lab.tls(Some(&lab.server)), lab.tls(Some(&client)));
    let (remote, nobody) = (lab.tls(Some(&lab.ca.server("s1", "dc2"))), lab.tls(None));
    let any = || native("server.dc1.consul");
    let text = include_str!("../../data/wire/rpc/probes_accept_refuse.json");
    let rows: Vec<serde_json::Value> = serde_json::from_str(text).unwrap();
    let mut tried = 0;
    for row in rows {
        let (probe, result) = (
            row["probe"].as_str().unwrap(),
            row["result"].as_str().unwrap(),
        );
        let answered = match probe {
            "plain 0x04 with verify_incoming" => {
                call_with(&port, &own, Security::Plain, true).await
            }
            "TLS byte 0x03 without client cert" => {
                call_with(&port, &nobody, Security::TypeByte, true).await
            }
            "client cert client.dc1" => call_with(&port, &client, Security::TypeByte, true).await,
            "ALPN no client cert" => call_with(&port, &nobody, any(), true).await,
            "ALPN with a client (not server) cert" => call_with(&port, &client, any(), true).await,
            "ALPN unknown protocol" => alpn(&port, &own, "h2").await,
            "native TLS without ALPN" => alpn(&port, &own, "").await,
            "ALPN dc2 server cert" => call_with(&port, &remote, any(), true).await,
            "SNI of another node" => {
                call_with(&port, &own, native("nobody.server.dc1.consul"), true).await
            }
            other => {
                assert!(other.contains("gw1"), "{other}: a row that nobody tries");
                continue;
            }
        };
        let consul_answered = !result.starts_with("EXC");
        assert_eq!(
            answered.is_ok(),
            consul_answered,
            "{probe}: {answered:?}, Consul: {result}"
        );
        tried += 1;
    }
    assert_eq!(tried, 9);
    port.check_alive().await;
}

/// Native TLS with any ALPN name, or none, and a call in it.
async fn alpn(port: &Port, tls: &Tls, name: &str) -> Result<String, String> {
    let client = tls.tool_client("server.dc1.consul", name).unwrap();
    let stream = Stream::connect_tls(port.connect().await, client).await;
    let mut stream = stream.map_err(|error| error.to_string())?;
    let answer = exchange(&mut stream, "Status.Ping", 1, &[0x80]).await;
    answer
        .map(|(header, _)| format!("{header:?}"))
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn bad_certificates_get_one_clear_message_and_the_port_stays_up() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let other = Authority::new(lab.folder.path(), "other");
    let foreign = lab.tls(Some(&other.server("s1", "dc1")));
    // The server's side is what refuses these; the client hears an alert, at the latest when it calls.
    let error = call_with(&port, &foreign, native("server.dc1.consul"), true)
        .await
        .unwrap_err();
    assert!(error.starts_with("rpc error"), "{error}");
    port.check_alive().await;
    // A server of another CA, of another name, and an expired one, as the client sees them.
    let stranger = Setup::new(lab.tls(Some(&other.server("s1", "dc1")))).start();
    let error = call_with(&stranger, &port.tls, Security::Native { sni: None }, true)
        .await
        .unwrap_err();
    assert!(
        error.contains("not signed by any CA in ca_file") && error.contains("s1.server.dc1.consul"),
        "{error}"
    );
    let other_node = Setup::new(lab.tls(Some(&lab.ca.server("s9", "dc1")))).start();
    let error = call_with(&other_node, &port.tls, Security::Native { sni: None }, true)
        .await
        .unwrap_err();
    assert!(
        error.contains("TLS handshake as s1.server.dc1.consul"),
        "{error}"
    );
    assert!(
        error.contains("it has: DnsName(\"s9.server.dc1.consul\")")
            || error.contains("s9.server.dc1.consul"),
        "{error}"
    );
    let error = call_with(&port, &Tls::disabled(), native("server.dc1.consul"), true)
        .await
        .unwrap_err();
    assert!(error.contains("ca_file"), "{error}");
    let error = call_with(&port, &lab.tls(None), native("server.dc1.consul"), false)
        .await
        .unwrap_err();
    assert!(error.starts_with("rpc error"), "{error}");
    port.check_alive().await;
}

#[tokio::test]
async fn type_byte_7_serves_two_methods_without_a_certificate() {
    let lab = Lab::new();
    let port = lab.strict_port();
    let connect = || async {
        let mut tcp = port.connect().await;
        tcp.write_all(&[7]).await.unwrap();
        let client = lab.tls(None).tool_client("server.dc1.consul", "").unwrap();
        Stream::connect_tls(tcp, client).await.unwrap()
    };
    let mut stream = connect().await;
    let (header, body) = exchange(&mut stream, "AutoEncrypt.Sign", 5, b"\xa2hi")
        .await
        .unwrap();
    assert_eq!(header.get("Error").unwrap().as_str(), Some(""));
    assert_eq!(body.as_str(), Some("hi"));
    for method in ["Status.Ping", "Catalog.ListServices", "AutoEncrypt.Other"] {
        let mut stream = connect().await;
        let (header, _) = exchange(&mut stream, method, 6, &[0x80]).await.unwrap();
        let expected = format!("rpc: can't find service {method}");
        assert_eq!(header.get("Error").unwrap().as_str(), Some(&*expected));
        until_closed(&mut stream).await;
    }
}

#[tokio::test]
async fn bytes_that_lead_nowhere_close_the_connection() {
    let lab = Lab::new();
    let plain = Port::plain();
    let tls = Setup::new(lab.tls(Some(&lab.server))).start();
    for byte in [1, 2, 5, 6, 8, 0x16, 0xff] {
        for port in [&plain, &tls] {
            let mut stream = port.connect().await;
            stream.write_all(&[byte; 64]).await.unwrap();
            until_closed(&mut stream).await;
        }
    }
    for byte in [3, 7] {
        let mut stream = plain.connect().await;
        stream.write_all(&[byte]).await.unwrap();
        assert!(
            until_closed(&mut stream).await.is_empty(),
            "no TLS is configured"
        );
        // TLS inside TLS.
        let mut tcp = tls.connect().await;
        tcp.write_all(&[3]).await.unwrap();
        let client = tls.tls.lan_client("dc1", tls.address.ip()).unwrap();
        let mut stream = Stream::connect_tls(tcp, client).await.unwrap();
        stream.write_all(&[byte]).await.unwrap();
        until_closed(&mut stream).await;
    }
    plain.check_alive().await;
    tls.check_alive().await;
}

fn plugs() -> (Plugs, mpsc::Receiver<Incoming>, mpsc::Receiver<Incoming>) {
    let mut plugs = Plugs::default();
    let raft = plugs.plug(Protocol::Raft, 4);
    let packets = plugs.plug(Protocol::GossipPacket, 4);
    (plugs, raft, packets)
}

#[tokio::test]
async fn raft_and_wan_gossip_are_for_servers() {
    let lab = Lab::new();
    let (plugs, mut raft, mut packets) = plugs();
    let setup = Setup {
        plugs,
        ..Setup::new(lab.tls(Some(&lab.server)))
    };
    let port = setup.start();
    let client = lab.tls(Some(&lab.ca.sign(&["client.dc1.consul"])));
    let (own, remote) = (
        lab.tls(Some(&lab.server)),
        lab.tls(Some(&lab.ca.server("t1", "dc2"))),
    );
    let open = |tls: &Tls, name: &str| {
        let client = tls.named_client("server.dc1.consul", name).unwrap();
        let port = &port;
        async move {
            Stream::connect_tls(port.connect().await, client)
                .await
                .unwrap()
        }
    };
    for (tls, name) in [
        (&client, "consul/raft"),
        (&remote, "consul/raft"),
        (&client, "consul/wan-gossip/packet"),
        (&own, "consul/wan-gossip/stream"), // Nobody registered for it.
        (&own, "consul/rpc-snapshot"),
    ] {
        assert!(
            until_closed(&mut open(tls, name).await).await.is_empty(),
            "{name}"
        );
    }
    let mut plain = port.connect().await;
    plain.write_all(&[1]).await.unwrap();
    until_closed(&mut plain).await;
    assert!(raft.try_recv().is_err() && packets.try_recv().is_err());
    for (tls, name, receiver, datacenter) in [
        (&own, "consul/raft", &mut raft, "dc1"),
        (&remote, "consul/wan-gossip/packet", &mut packets, "dc2"),
    ] {
        let mut ours = open(tls, name).await;
        ours.write_all(b"hello").await.unwrap();
        let mut theirs = receiver.recv().await.unwrap();
        let mut said = [0; 5];
        theirs.stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hello", "no byte of ours is lost");
        assert!(
            theirs
                .context
                .peer_identity
                .unwrap()
                .is_server_of(datacenter, "consul")
        );
    }
}

#[tokio::test]
async fn without_tls_raft_needs_no_certificate() {
    let (plugs, mut raft, _packets) = plugs();
    let setup = Setup {
        plugs,
        ..Setup::new(Tls::disabled())
    };
    let port = setup.start();
    let mut ours = port.connect().await;
    ours.write_all(b"\x01hello").await.unwrap();
    let mut said = [0; 5];
    raft.recv()
        .await
        .unwrap()
        .stream
        .read_exact(&mut said)
        .await
        .unwrap();
    assert_eq!(&said, b"hello");
}

/// Serves one type byte and one ALPN name by saying what it got.
struct Custom;

impl Edition for Custom {
    fn connection(
        &self,
        kind: ConnectionKind,
        mut stream: BoxedStream,
    ) -> Result<Serving, BoxedStream> {
        let text = match kind {
            ConnectionKind::TypeByte(9) => "byte",
            ConnectionKind::Alpn(name) if name == "custom/1" => "alpn",
            ConnectionKind::Gossip => "gossip",
            _ => return Err(stream),
        };
        Ok(Box::pin(async move {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }))
    }

    fn validate_request(&self, method: &str, _body: &[u8]) -> Result<(), String> {
        match method {
            "Test.Echo" => Err("not in this edition".to_owned()),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn an_edition_can_add_protocols_and_refuse_requests() {
    let lab = Lab::new();
    let tls = || {
        lab.tls_with(Some(&lab.server), |settings| {
            settings.extra_alpn = vec!["custom/1".into()]
        })
    };
    let with = |tls| Setup {
        edition: Arc::new(Custom),
        ..Setup::new(tls)
    };
    let plain = with(Tls::disabled()).start();
    for (byte, expected) in [(9, "byte"), (6, "gossip"), (10, "")] {
        let mut stream = plain.connect().await;
        stream.write_all(&[byte]).await.unwrap();
        assert_eq!(
            until_closed(&mut stream).await,
            expected.as_bytes(),
            "{byte}"
        );
    }
    let mut stream = plain.connect().await;
    stream.write_all(&[0]).await.unwrap();
    let (header, _) = exchange(&mut stream, "Test.Echo", 1, &[0x80])
        .await
        .unwrap();
    assert_eq!(
        header.get("Error").unwrap().as_str(),
        Some("not in this edition")
    );
    let port = with(tls()).start();
    for (name, expected) in [("custom/1", "alpn"), ("consul/rpc-gossip", "gossip")] {
        let client = tls().named_client("server.dc1.consul", name).unwrap();
        let mut stream = Stream::connect_tls(port.connect().await, client)
            .await
            .unwrap();
        assert_eq!(
            until_closed(&mut stream).await,
            expected.as_bytes(),
            "the decrypted stream"
        );
    }
}
