//! Clients that say nonsense, half of something, or nothing, at every port.

use crate::hostile::all_ports;
use crate::hostile::check_alive;
use crate::hostile::soak;
use crate::support::server::Server;
use crate::support::server::eventually;
use serde_json::json;
use std::io::Read;
use std::io::Write;
use std::net::Ipv4Addr;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;
use std::time::Instant;

const PORTS: [u16; 5] = [8300, 8500, 8501, 8502, 8503];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn connect(server: &Server, port: u16) -> TcpStream {
    let stream = TcpStream::connect((server.address, port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(15)))
        .unwrap();
    stream
}

/// Reads until the server ends the connection; a reset is an end too.
#[track_caller]
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut out = Vec::new();
    if let Err(error) = stream.read_to_end(&mut out) {
        let reset = error.kind() == std::io::ErrorKind::ConnectionReset;
        assert!(reset, "the server keeps the connection: {error}");
    }
    out
}

#[test]
fn nonsense_closes_its_own_connection_only() {
    let server = Server::start(&all_ports());
    let noise: Vec<u8> = (0..4000_u32).map(|n| (n * n % 251) as u8 | 0x80).collect();
    for port in PORTS {
        for (what, bytes) in [
            ("nothing", &b""[..]),
            ("noise", &noise),
            ("HTTP/1", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("HTTP/2", PREFACE),
            ("half of a TLS record", b"\x16\x03\x01\x02\x00\x01\x00"),
            ("a TLS record of nonsense", b"\x16\x03\x01\x00\x05hello"),
            ("a type byte", b"\x04"),
            ("an old type byte", b"\x02"),
        ] {
            let mut stream = connect(&server, port);
            let _ = stream.write_all(bytes); // It may be refused midway.
            stream.shutdown(Shutdown::Write).unwrap_or_default();
            let start = Instant::now();
            until_closed(&mut stream);
            let took = start.elapsed();
            assert!(took < Duration::from_secs(7), "{port} {what}: {took:?}");
        }
    }
    check_alive(&server);
    let warnings = server.lines(" WARN ");
    assert!(
        warnings.len() < 20,
        "one line for each reason at most:\n{}",
        warnings.join("\n")
    );
    for text in [
        "RPC connection refused",
        "HTTPS connection refused",
        "gRPC connection refused",
    ] {
        let said = warnings
            .iter()
            .any(|line| line.contains(text) && line.contains("does not speak TLS"));
        assert!(said, "{text}:\n{}", warnings.join("\n"));
    }
}

/// Handshakes, prefaces and request heads that never come to an end. HTTP/1 has a minute, which is too long for a test.
#[test]
fn those_who_say_nothing_are_cut_off() {
    let server = Server::start(&all_ports());
    let cases: [(u16, &[u8]); 9] = [
        (8300, b""),
        (8300, b"\x03"),
        (8300, b"\x16\x03\x01\x02\x00"),
        (8501, b""),
        (8501, b"\x16\x03\x01\x02\x00"),
        (8502, b""),
        (8502, &PREFACE[..20]),
        (8503, b""),
        (8503, b"\x16\x03\x01\x02\x00"),
    ];
    let open: Vec<_> = cases
        .iter()
        .map(|(port, bytes)| {
            let mut stream = connect(&server, *port);
            stream.write_all(bytes).unwrap();
            (port, bytes, stream)
        })
        .collect();
    check_alive(&server);
    for (port, bytes, mut stream) in open {
        let start = Instant::now();
        until_closed(&mut stream);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(14), "{port} {bytes:?}: {took:?}");
    }
    check_alive(&server);
}

/// A client that connects from one of many addresses, so that no limit for one address is met.
fn connect_from(from: usize, to: SocketAddr) -> TcpStream {
    use socket2::Domain;
    use socket2::Socket;
    use socket2::Type;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let [high, low] = u16::try_from(from / 50).unwrap().to_be_bytes();
    let own = SocketAddr::from((Ipv4Addr::new(127, 251, high, low + 1), 0));
    socket.bind(&own.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// Resident memory in MiB and open files of a process.
fn usage(pid: u32) -> (u64, usize) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let files = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count();
    (kib / 1024, files)
}

#[test]
fn idle_connections_cost_little_and_are_given_back() {
    let count = soak(300, 5000);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
    let server = Server::start(&all_ports());
    let (before, files_before) = usage(server.pid());
    let waiting = "GET /v1/kv/nothing?index=1000&wait=60s HTTP/1.1\r\nHost: x\r\n\r\n";
    for (port, bytes) in [
        (8300, &b"\x03"[..]),
        (8500, b""),
        (8500, waiting.as_bytes()),
        (8501, b""),
        (8502, PREFACE),
        (8503, b""),
    ] {
        let to = SocketAddr::from((server.address, port));
        let mut idle = Vec::new();
        for number in 0..count {
            let mut stream = connect_from(number, to);
            stream.write_all(bytes).unwrap();
            idle.push(stream);
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let start = Instant::now();
            assert_eq!(server.get("/v1/status/leader").unwrap().0, 200);
            slowest = slowest.max(start.elapsed());
        }
        let (memory, files) = usage(server.pid());
        println!(
            "{count} idle on {port}: {memory} MiB (was {before}), {files} files, slowest answer {slowest:?}"
        );
        assert!(slowest < Duration::from_secs(5), "{port}: {slowest:?}");
        assert!(
            memory < before + 100 + count as u64 / 20,
            "{port}: {memory} MiB"
        );
        drop(idle);
        eventually("the files", || {
            (usage(server.pid()).1 < files_before + 20).then_some(())
        });
    }
    // The allocator gives memory back in its own time.
    let after = eventually("the memory", || {
        let (memory, _) = usage(server.pid());
        (memory < before + 100).then_some(memory)
    });
    println!("afterwards: {after} MiB");
    check_alive(&server);
}

#[test]
fn too_many_connections_of_one_address_are_refused_and_told_once() {
    let server = Server::start(&json!({
        "limits": {"http_max_conns_per_client": 20, "rpc_max_conns_per_client": 10, "grpc_max_conns_per_client": 15},
    }));
    let mut open: Vec<_> = (0..20)
        .map(|_| connect_from(0, (server.address, 8500).into()))
        .collect();
    for _ in 0..30 {
        let mut refused = connect_from(0, (server.address, 8500).into());
        let answer = String::from_utf8(until_closed(&mut refused)).unwrap();
        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    }
    open.extend((0..10).map(|_| {
        let mut stream = connect_from(0, (server.address, 8300).into());
        stream.write_all(&[0]).unwrap();
        stream
    }));
    for _ in 0..30 {
        let mut refused = connect_from(0, (server.address, 8300).into());
        until_closed(&mut refused);
    }
    // The gRPC ports share one limit; over TLS the refusal comes before the handshake.
    open.extend((0..15).map(|_| {
        let mut stream = connect_from(0, (server.address, 8502).into());
        let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(greeting).unwrap();
        stream.read_exact(&mut [0; 9]).unwrap(); // It is served.
        stream
    }));
    for port in [8502, 8503] {
        for _ in 0..15 {
            until_closed(&mut connect_from(0, (server.address, port).into()));
        }
    }
    for key in [
        "limits.http_max_conns_per_client",
        "limits.rpc_max_conns_per_client",
        "limits.grpc_max_conns_per_client",
    ] {
        let lines = server
            .log()
            .lines()
            .filter(|line| line.contains(key))
            .count();
        assert_eq!(lines, 1, "{key}: {}", server.log());
    }
    check_alive(&server);
}
