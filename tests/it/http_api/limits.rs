//! Clients that are slow, greedy or broken, and what they may not do.

use crate::http_api::fixture::{Fixture, PATIENCE, Response};
use crossway::http::{Route, Settings, Verb};
use crossway::net::ClientLimit;
use http::{HeaderName, HeaderValue};
use serde_json::json;
use std::io::Read;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

static PANICS: Route = Route {
    path: "/v1/panic",
    verb: Verb::Get,
    handler: |_| Box::pin(async { panic!("on purpose") }),
};

async fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut out = Vec::new();
    // A reset is an end too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut out))
        .await
        .expect("the server closes");
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_too_many_connections_is_told_so() {
    let fixture = Fixture::limited(Settings {
        connections: ClientLimit::new(3),
        ..Settings::default()
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        stream
            .write_all(b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\n\r\n")
            .await
            .unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        open.push(stream);
    }
    let mut refused = TcpStream::connect(fixture.address).await.unwrap();
    let answer = Response::parse(&rest_of(&mut refused).await);
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.text(),
        "Your IP is issuing too many concurrent connections, please rate limit your calls"
    );
    drop(open);
    let served = async {
        // The server notices the closed connections in its own time.
        loop {
            let mut stream = TcpStream::connect(fixture.address).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            let _ = stream.write_all(request).await;
            if rest_of(&mut stream).await.starts_with(b"HTTP/1.1 200") {
                return;
            }
        }
    };
    timeout(PATIENCE, served).await.expect("served again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_cut_off_and_others_served() {
    let fixture = Fixture::limited(Settings {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        ..Settings::default()
    })
    .await;
    let mut streams = Vec::new();
    for part in [
        &b""[..],
        b"GET /v1/status/leader HT",
        b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    ] {
        let mut stream = TcpStream::connect(fixture.address).await.unwrap();
        stream.write_all(part).await.unwrap();
        streams.push(stream);
    }
    assert_eq!(fixture.get("/v1/status/leader").await.status, 200);
    for stream in &mut streams {
        rest_of(stream).await;
    }
    let mut body = TcpStream::connect(fixture.address).await.unwrap();
    let head = b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc";
    body.write_all(head).await.unwrap();
    assert_eq!(Response::parse(&rest_of(&mut body).await).status, 408);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_and_large_bodies_get_one_clear_answer() {
    let fixture = Fixture::limited(Settings::default()).await;
    for garbage in [
        &b"\x16\x03\x01garbage\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        let answer = Response::parse(&fixture.raw(garbage).await);
        assert_eq!(answer.status, 400);
    }
    let long = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n",
        "a".repeat(300_000)
    );
    let mut stream = TcpStream::connect(fixture.address).await.unwrap();
    let _ = stream.write_all(long.as_bytes()).await;
    let answer = rest_of(&mut stream).await;
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"),
        "a head has a limit"
    );
    let value = vec![b'v'; 512 * 1024 + 1];
    let answer = fixture.send("PUT", "/v1/kv/big", "", &value).await;
    assert_eq!(answer.status, 413);
    assert!(
        answer
            .text()
            .starts_with("Request body(524289 bytes) too large, max size: 524288 bytes")
    );
    let answer = fixture.send("PUT", "/v1/kv/big", "", &value[1..]).await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "true"));
    let raw = fixture.get("/v1/kv/big?raw").await;
    assert_eq!(raw.body.len(), 512 * 1024);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_is_an_answer_and_the_server_goes_on() {
    let fixture = Fixture::with(
        "dc1",
        "n1",
        "127.0.0.1:8300",
        Settings::default(),
        Some(&PANICS),
    )
    .await;
    assert_eq!(fixture.get("/v1/panic").await.status, 500);
    assert_eq!(fixture.get("/v1/status/leader").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_are_taken_from_the_networks_allowed() {
    let fixture = Fixture::limited(Settings {
        allow_write_from: vec!["10.0.0.0/8".parse().unwrap()],
        ..Settings::default()
    })
    .await;
    let answer = fixture.put("/v1/kv/a", &json!(1)).await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (403, "Access is restricted")
    );
    assert_eq!(fixture.get("/v1/kv/a").await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_are_refused_and_large_answers_compressed() {
    let fixture = Fixture::limited(Settings::default()).await;
    let answer = fixture.get("/v1/catalog/nodes?ns=team").await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.text(),
        "Invalid query parameter: \"ns\" - Namespaces are a Consul Enterprise feature"
    );
    for n in 0..50 {
        let body = json!({"Node": format!("n{n}"), "Address": "10.0.0.1"});
        fixture.put("/v1/catalog/register", &body).await;
    }
    let plain = fixture.get("/v1/catalog/nodes").await;
    let accept = "Accept-Encoding: br, gzip\r\n";
    let small = fixture.send("GET", "/v1/catalog/nodes", accept, b"").await;
    assert_eq!(small.header("Content-Encoding"), Some("gzip"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&small.body[..])
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, plain.text());
    let refused = "Accept-Encoding: gzip;q=0\r\n";
    let plain = fixture.send("GET", "/v1/catalog/nodes", refused, b"").await;
    assert_eq!(plain.header("Content-Encoding"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_written_conditionally_and_listed_by_prefix() {
    let fixture = Fixture::limited(Settings::default()).await;
    let put = async |path: &str| fixture.send("PUT", path, "", b"v").await.text();
    assert_eq!(put("/v1/kv/a/b?cas=0&flags=7").await, "true");
    assert_eq!(put("/v1/kv/a/b?cas=0").await, "false");
    let entry = fixture.get("/v1/kv/a/b").await.json()[0].clone();
    assert_eq!(entry["Flags"], 7);
    assert_eq!(
        put(&format!("/v1/kv/a/b?cas={}", entry["ModifyIndex"])).await,
        "true"
    );
    assert_eq!(put("/v1/kv/a/c/d").await, "true");
    assert_eq!(put("/v1/kv/a//e%2Ff%20g").await, "true");
    let keys = fixture.get("/v1/kv/a/?keys").await.json();
    assert_eq!(keys, json!(["a//e/f g", "a/b", "a/c/d"]));
    let keys = fixture.get("/v1/kv/a/?keys&separator=/").await.json();
    assert_eq!(keys, json!(["a//", "a/b", "a/c/"]));
    let empty = fixture.send("PUT", "/v1/kv/empty", "", b"").await;
    assert_eq!(empty.text(), "true");
    assert_eq!(
        fixture.get("/v1/kv/empty").await.json()[0]["Value"],
        json!(null)
    );
    let delete = async |path: &str| fixture.send("DELETE", path, "", b"").await;
    assert_eq!(delete("/v1/kv/a/b?cas=1").await.text(), "false");
    assert_eq!(delete("/v1/kv/a/?recurse").await.text(), "true");
    assert_eq!(fixture.get("/v1/kv/a/?recurse").await.status, 404);
    let answer = delete("/v1/kv/a?recurse&cas=1").await;
    assert_eq!(answer.text(), "Conflicting flags: recurse and cas");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_filtered_by_what_they_show() {
    let fixture = Fixture::limited(Settings::default()).await;
    for (node, version, status) in [("a", "1", "passing"), ("b", "2", "critical")] {
        let body = json!({
            "Node": node, "Address": "10.0.0.1", "NodeMeta": {"rack": node},
            "Service": {"Service": "web", "Port": 80, "Meta": {"version": version}},
            "Check": {"Name": "c", "ServiceID": "web", "Status": status},
        });
        fixture.put("/v1/catalog/register", &body).await;
    }
    for (path, rows) in [
        ("/v1/health/service/web?filter=Service.Meta.version+==+2", 1),
        (
            "/v1/health/service/web?filter=Service.Meta.version+==+2&passing",
            0,
        ),
        ("/v1/health/service/web?passing=1", 1),
        ("/v1/health/service/web?passing=0", 2),
        ("/v1/health/service/web?node-meta=rack:a", 1),
        ("/v1/health/service/web?tag=none", 0),
        ("/v1/health/service/WEB", 2),
        ("/v1/health/checks/web?filter=Status+!=+passing", 1),
        ("/v1/catalog/service/web?filter=ServiceMeta.version+==+1", 1),
        ("/v1/catalog/nodes?filter=Meta.rack+==+b", 1),
    ] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.json().as_array().unwrap().len(), rows, "{path}");
    }
    let answer = fixture.get("/v1/health/service/web?filter=((").await;
    assert_eq!(answer.status, 500);
    let near = fixture.get("/v1/catalog/nodes?near=b").await.json();
    assert_eq!(near[0]["Node"], "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_endpoints_answer_403_and_every_answer_has_the_headers_of_the_configuration() {
    let fixture = Fixture::limited(Settings {
        block_endpoints: vec!["/v1/kv/".to_owned()],
        response_headers: [(
            HeaderName::from_static("x-site"),
            HeaderValue::from_static("north"),
        )]
        .into_iter()
        .collect(),
        ..Settings::default()
    })
    .await;
    let answer = fixture.get("/v1/kv/a").await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (403, "Endpoint is blocked by agent configuration")
    );
    assert_eq!(answer.header("X-Site"), Some("north"));
    let other = fixture.get("/v1/status/leader").await;
    assert_eq!((other.status, other.header("X-Site")), (200, Some("north")));
}
