//! HTTP requests that nobody should send, each with the answer it gets.

use crate::hostile::all_ports;
use crate::hostile::check_alive;
use crate::support::server::Server;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Sends bytes and reads until the server closes, or until there is a whole head.
fn send(server: &Server, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.port(8500)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let _ = stream.write_all(bytes); // The answer may come before everything is sent.
    let mut out = Vec::new();
    let mut chunk = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut chunk) {
        out.extend_from_slice(&chunk[..n]);
        if out.windows(4).any(|w| w == b"\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn put(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

fn sized(path: &str, body: &[u8]) -> Vec<u8> {
    put(path, &format!("Content-Length: {}\r\n", body.len()), body)
}

fn get(target: &[u8]) -> Vec<u8> {
    [
        b"GET ",
        target,
        b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ]
    .concat()
}

fn get_of(start: &str, middle: &str, times: usize) -> Vec<u8> {
    get(format!("{start}{}", middle.repeat(times)).as_bytes())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_malformed_request_has_an_answer() {
    let server = Server::start(&all_ports());
    let many: String = (0..500).map(|n| format!("X-{n}: y\r\n")).collect();
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (what, request, status) in [
        (
            "a chunk size of letters",
            put("/v1/kv/a", chunked, b"ZZ\r\nabc\r\n"),
            "400",
        ),
        (
            "two lengths",
            put(
                "/v1/kv/a",
                "Content-Length: 1\r\nContent-Length: 2\r\n",
                b"ab",
            ),
            "400",
        ),
        (
            "a negative length",
            put("/v1/kv/a", "Content-Length: -4\r\n", b"ab"),
            "400",
        ),
        (
            "an endless length",
            put(
                "/v1/kv/a",
                "Content-Length: 99999999999999999999999\r\n",
                b"",
            ),
            "400",
        ),
        (
            "a length beyond the limit",
            put("/v1/kv/a", "Content-Length: 9999999999\r\n", b""),
            "413",
        ),
        (
            "a large registration",
            put("/v1/catalog/register", "Content-Length: 5000000\r\n", b"{"),
            "413",
        ),
        (
            "100-continue",
            put(
                "/v1/kv/a",
                "Expect: 100-continue\r\nContent-Length: 9999999\r\n",
                b"",
            ),
            "413",
        ),
        ("a long path", get_of("/v1/kv/", "a", 70_000), "414"),
        ("many headers", put("/v1/kv/a", &many, b""), "431"),
        ("a path that is not UTF-8", get(b"/v1/kv/\xff\xfe"), "400"),
        ("a broken escape", get(b"/v1/kv/%ff%zz"), "400"),
        (
            "a body that is not UTF-8",
            sized("/v1/catalog/register", b"{\"Node\":\"\xff\xfe\"}"),
            "400",
        ),
        (
            "a deep array",
            sized("/v1/catalog/register", &[b'['; 1_000_000]),
            "400",
        ),
        (
            "a deep object",
            sized(
                "/v1/agent/service/register",
                "{\"a\":".repeat(100_000).as_bytes(),
            ),
            "400",
        ),
        (
            "a deep entry",
            sized("/v1/config", "{\"a\":".repeat(100_000).as_bytes()),
            "400",
        ),
        (
            "half a check",
            sized("/v1/agent/check/register", b"{\"Name\":\"x\",\"Interval\":"),
            "400",
        ),
        (
            "no JSON",
            sized("/v1/agent/service/register", b"\0\0\0"),
            "400",
        ),
        (
            "a filter of brackets",
            get_of("/v1/catalog/nodes?filter=", "(", 20_000),
            "500",
        ),
        (
            "a filter of negations",
            get_of("/v1/catalog/nodes?filter=", "not+", 12_000),
            "500",
        ),
        (
            "a costly pattern",
            get(b"/v1/catalog/nodes?filter=Node+matches+%22(a%7B1000%7D)%7B1000%7D%22"),
            "500",
        ),
        (
            "an endless index",
            get(b"/v1/catalog/nodes?index=99999999999999999999999"),
            "400",
        ),
        (
            "an endless wait",
            get(b"/v1/catalog/nodes?index=1&wait=999999999999999999h"),
            "400",
        ),
        (
            "another protocol version",
            b"GET / HTTP/7.7\r\nHost: x\r\n\r\n".to_vec(),
            "400",
        ),
        ("half a line", b"GET /\r\n\r\n".to_vec(), "400"),
        (
            "a tunnel",
            b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
            "404",
        ),
    ] {
        let answer = send(&server, &request);
        let expected = format!("HTTP/1.1 {status} ");
        assert!(answer.starts_with(&expected), "{what}: {answer:?}");
    }
    // A compressed body is taken as it is: nothing here unpacks what clients send.
    let bomb = put(
        "/v1/kv/zip",
        "Content-Encoding: gzip\r\nContent-Length: 4\r\n",
        b"\x1f\x8bab",
    );
    assert!(send(&server, &bomb).starts_with("HTTP/1.1 200 "));
    let (_, stored) = server.get("/v1/kv/zip").unwrap();
    assert_eq!(stored[0]["Value"], "H4thYg==");
    assert_eq!(
        send(&server, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        "",
        "HTTP/2 needs TLS"
    );
    check_alive(&server);
}

#[test]
fn a_request_is_answered_although_its_client_has_said_its_last_word() {
    let server = Server::start(&all_ports());
    for _ in 0..20 {
        let mut stream = TcpStream::connect(server.port(8500)).unwrap();
        stream.write_all(&get(b"/v1/status/leader")).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    }
}
