//! Who must not take part in raft, and what must not stop it.

use crate::support::certs::Authority;
use crate::support::raft::{Servers, get, peer, set, tls, until};
use crate::support::server::{PATIENCE, loopback};
use bytes::Bytes;
use crossway::consensus::{Lane, Peer, RaftTransport, Transport};
use crossway::net::Tls;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

async fn call(tls: Tls, to: &Peer, bytes: &'static [u8]) -> Result<Bytes, String> {
    let me = peer(7);
    let transport = RaftTransport::new(Arc::new(tls), me.id, me.node);
    let called = transport.call(to, Lane::Prompt, Bytes::from_static(bytes));
    let answer = timeout(PATIENCE, called).await.expect("an answer in time");
    answer.map_err(|error| error.to_string())
}

/// CVE-2021-37219: a certificate of the same authority is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_servers_of_this_datacenter_speak_raft() {
    let servers = Servers::start(1, true).await;
    let (to, authority) = (&servers.peers[0], servers.authority());
    let own = authority.server("n7", "dc1");
    let answered = call(tls(authority, own, "dc1"), to, b"nonsense")
        .await
        .unwrap_err();
    assert!(
        answered.contains("raft request"),
        "it was let in: {answered}"
    );

    let other_folder = tempfile::tempdir().unwrap();
    let stranger = Authority::new(other_folder.path(), "other");
    for (what, tls) in [
        (
            "client",
            tls(authority, authority.sign(&["client.dc1.consul"]), "dc1"),
        ),
        (
            "node only",
            tls(authority, authority.sign(&["n7.server.dc1.consul"]), "dc1"),
        ),
        ("other datacenter", {
            // Verifies the name it dials, so it must believe to be in dc1.
            tls(authority, authority.server("n7", "dc2"), "dc1")
        }),
        (
            "other authority",
            tls(&stranger, stranger.server("n7", "dc1"), "dc1"),
        ),
        ("no certificate", Tls::disabled()),
    ] {
        let refused = call(tls, to, b"nonsense").await.unwrap_err();
        assert!(
            !refused.contains("raft request"),
            "{what} was let in: {refused}"
        );
        println!("{what}: {refused}");
    }
    // And we do not send our log to whoever has no server's certificate.
    let impostor = Authority::new(other_folder.path(), "impostor");
    let refused = call(tls(&impostor, impostor.server("n7", "dc1"), "dc1"), to, b"").await;
    assert!(
        refused
            .unwrap_err()
            .contains("TLS handshake as server.dc1.consul")
    );
    servers.end().await;
}

/// What is sent is not raft of this kind: the connection ends at once, and the others work on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_ends_its_own_connection_alone() {
    let servers = Servers::start(3, false).await;
    let leader = servers.leader().await;
    let greeting = b"CWRAFT\r\n\x01\x00\x21\x82\xa4node\xa2n9\xa2id\xb51234567890123456789012";
    let garbage: [&[u8]; 8] = [
        b"\x00\x8aAppendEntries of Consul's raft",
        b"\x02\x8aInstallSnapshot of it",
        b"GET / HTTP/1.1\r\nHost: raft\r\n\r\n",
        b"CWRAFT\r\n\x09\x00\x00",
        b"CWRAFT\r\n\x01\xff\xff",
        b"CWRAFT\r\n\x01\x00\x01\xc1",
        &[greeting, &b"\xff\xff\xff\xff\x00\x00\x00\x01\x00"[..]].concat(),
        &[greeting, &b"\x00\x00\x00\x01\x00\x00\x00\x01\x07x"[..]].concat(),
    ];
    for bytes in garbage {
        let mut tcp = TcpStream::connect(&servers.peers[leader].address)
            .await
            .unwrap();
        tcp.write_all(&[&[1], bytes].concat()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, tcp.read_to_end(&mut answer)).await;
        let _ = read.expect("the connection is closed"); // A reset is fine, too.
    }
    // One that greets, and then keeps silent in the middle of a frame, holds nobody up.
    let mut silent = TcpStream::connect(&servers.peers[leader].address)
        .await
        .unwrap();
    silent
        .write_all(&[&[1][..], greeting, b"\x00\x00"].concat())
        .await
        .unwrap();
    servers.at(leader).propose(set("works", "")).await.unwrap();
    assert_eq!(servers.leader().await, leader);
    servers.end().await;
}

/// A frame that is whole and means nothing is answered with a reason, and the connection goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_never_answers_delays_nobody() {
    let mut servers = Servers::prepare(3, false).await;
    for at in 0..2 {
        servers.run(at).await;
    }
    // The third accepts connections and says nothing.
    let hole = TcpListener::bind(&servers.peers[2].address).await.unwrap();
    let swallow = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((tcp, _)) = hole.accept().await {
            kept.push(tcp);
        }
    });
    for at in 0..2 {
        servers
            .at(at)
            .initialize(servers.peers.clone())
            .await
            .unwrap();
    }
    let leader = servers.leader_among(&[0, 1]).await;
    for at in 0..50 {
        servers
            .at(leader)
            .propose(set(&format!("{at}"), ""))
            .await
            .unwrap();
    }
    swallow.abort();
    let _ = swallow.await;
    servers.run(2).await;
    until("the third has it all", || {
        get(servers.at(2), "49").is_some()
    })
    .await;
    servers.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_from_elsewhere_go_before_the_membership() {
    let servers = Servers::start(1, false).await;
    let moved = Peer {
        address: format!("{}:1", loopback()),
        ..servers.peers[0].clone()
    };
    let transport = RaftTransport::new(Arc::new(Tls::disabled()), "x".into(), "x".into());
    let ask = || transport.call(&moved, Lane::Bulk, Bytes::from_static(b"nonsense"));
    let refused = ask().await.unwrap_err().to_string();
    assert!(refused.contains(&moved.address), "{refused}");
    let known = HashMap::from([(moved.id.clone(), servers.peers[0].address.clone())]);
    transport.set_addresses(known);
    let answered = timeout(Duration::from_secs(5), ask()).await.unwrap();
    assert!(answered.unwrap_err().to_string().contains("raft request"));
    servers.end().await;
}
