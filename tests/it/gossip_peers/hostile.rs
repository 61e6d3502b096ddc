//! Peers that send nonsense, nothing, or too much.

use super::pair;
use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::member;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::PATIENCE;
use crate::support::serf::Serf;
use crate::support::server::loopback;
use crossway::gossip::MemberStatus;
use futures_util::future::join_all;
use rand::Rng;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::Resource;
use rustix::process::Rlimit;
use std::net::SocketAddr;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpSocket;
use tokio::net::TcpStream;
use tokio::net::UdpSocket;
use tokio::time::timeout;

fn recorded() -> Vec<Vec<u8>> {
    let text = include_str!("../../data/gossip/packets.json");
    let all: Vec<(String, serde_json::Value)> = serde_json::from_str(text).unwrap();
    let byte = |hex: &str, at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes = |hex: &String| (0..hex.len()).step_by(2).map(|at| byte(hex, at)).collect();
    all.iter().map(|(hex, _)| bytes(hex)).collect()
}

/// Bytes that look like gossip for a while: recorded packets with changes, and noise.
fn nonsense(recorded: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    let mut bytes = recorded[rng.random_range(0..recorded.len())].clone();
    if bytes[0] == 12 {
        bytes.drain(..5); // Without its checksum, the rest of it is looked at.
    }
    if rng.random_bool(0.3) {
        bytes = (0..rng.random_range(0..1400))
            .map(|_| rng.random())
            .collect();
    }
    for _ in 0..rng.random_range(1..6) {
        if !bytes.is_empty() {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_breaks_nothing() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    let to = address(&ours);
    let (recorded, mut rng) = (recorded(), StdRng::seed_from_u64(3));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for _ in 0..3000 {
        // A full buffer on the way loses packets, which is no matter.
        let _ = socket.send_to(&nonsense(&recorded, &mut rng), to).await;
    }
    for kind in 0..=20 {
        let mut stream = TcpStream::connect(to).await.unwrap();
        let mut bytes = nonsense(&recorded, &mut rng);
        bytes.insert(0, kind);
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap();
    }
    // It still answers probes, and takes part.
    until_status(&ours, "serf", MemberStatus::Alive).await;
    serf.run("event", &["still-here"]).await;
    serf.until_status("ours", "alive").await;
    let late = member("late").await;
    late.join(&[at(to)]).await.unwrap();
    serf.until_status("late", "alive").await;
}

/// A length of four gigabytes is refused before anything is allocated for it, and the sender is told.
#[tokio::test(flavor = "multi_thread")]
async fn lies_about_lengths_are_refused_at_once() {
    let ours = member("ours").await;
    let headers: [&[u8]; 3] = [
        // Encrypted, of 4 GiB.
        &[10, 0xff, 0xff, 0xff, 0xff],
        // A push/pull of a million nodes: {Nodes: 1,000,000, UserStateLen: 0, Join: false}.
        b"\x06\x83\xa5Nodes\xce\x00\x0f\x42\x40\xacUserStateLen\x00\xa4Join\xc2",
        // A user message of 2 GiB.
        b"\x08\x81\xaaUserMsgLen\xce\x7f\xff\xff\xff",
    ];
    for header in headers {
        let mut stream = TcpStream::connect(address(&ours)).await.unwrap();
        stream.write_all(header).await.unwrap();
        let mut answer = Vec::new();
        // Before the deadline of the stream, for the peer keeps it open.
        let half = std::time::Duration::from_millis(900);
        let read = timeout(half, stream.read(&mut [0; 1][..])).await;
        drop(read.expect("an answer at once"));
        stream.shutdown().await.unwrap();
        timeout(PATIENCE, stream.read_to_end(&mut answer))
            .await
            .unwrap()
            .unwrap();
    }
}

/// A stream is served within the time that it may take, and then closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_is_closed() {
    let ours = member("ours").await;
    for start in [&b""[..], b"\x06", b"\x06\x83\xa5Nodes"] {
        let mut stream = TcpStream::connect(address(&ours)).await.unwrap();
        stream.write_all(start).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        let _ = read.expect("it is closed");
    }
}

/// More streams than are served at once, which say nothing, neither keep others out nor stop the member's own work.
#[tokio::test(flavor = "multi_thread")]
async fn twelve_hundred_half_open_streams_keep_nobody_out() {
    let Some((ours, serf)) = pair(&[]).await else {
        return;
    };
    let Some(program) = peers::find("serf") else {
        return;
    };
    let to: SocketAddr = address(&ours);
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    rustix::process::setrlimit(Resource::Nofile, raised).unwrap();
    // From an address of their own: others must not suffer for it.
    let from = SocketAddr::from((loopback(), 0));
    let open = || async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(from).unwrap();
        socket.connect(to).await.unwrap()
    };
    let streams = join_all((0..1200).map(|_| open())).await;
    let late = Serf::start(program, "late", &[]).await;
    late.run("join", &[&to.to_string()]).await;
    until_status(&ours, "late", MemberStatus::Alive).await;
    serf.until_status("late", "alive").await;
    serf.until_status("ours", "alive").await;
    // All of them are closed in the end.
    for mut stream in streams {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest))
            .await
            .unwrap();
    }
}
