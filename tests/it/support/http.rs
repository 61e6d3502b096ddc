//! One HTTP/1.1 request on a connection of its own, with or without a runtime.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use serde_json::Value;
use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longer than anything here takes; a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The bytes of a request; each line of `headers` ends with CR and LF.
pub(crate) fn message(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut message = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    )
    .into_bytes();
    message.extend_from_slice(body);
    message
}

/// Sends bytes and reads until the server closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut out = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut out)).await;
    read.expect("the server closes").unwrap();
    out
}

/// Status and body of the answer, for tests without a runtime.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(&message(method, path, "", body.as_bytes()))?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let response = Response::read(&bytes).ok_or(std::io::ErrorKind::UnexpectedEof)?;
    Ok((response.status, response.text()))
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) version: String,
    pub(crate) status: u16,
    /// Names in the case they came in.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        Self::read(bytes)
            .unwrap_or_else(|| panic!("no answer: {:?}", String::from_utf8_lossy(bytes)))
    }

    /// Nothing when it is cut off in the head.
    fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?;
        let mut lines = head.split("\r\n");
        let mut first = lines.next()?.splitn(3, ' ');
        let version = first.next()?.to_owned();
        let status = first.next()?.parse().ok()?;
        let headers = lines
            .map(|line| line.split_once(": "))
            .map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect::<Option<Vec<_>>>()?;
        let body = &bytes[end + 4..];
        let chunked = headers.iter().any(|(name, value)| {
            name.eq_ignore_ascii_case("transfer-encoding") && value == "chunked"
        });
        Some(Self {
            version,
            status,
            headers,
            body: if chunked { join(body) } else { body.to_vec() },
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn index(&self) -> u64 {
        self.header("X-Consul-Index").unwrap().parse().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }
}

/// The content of a chunked body.
fn join(mut body: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some(end) = body.windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let rest = &body[end + 2..];
        let Some(chunk) = size
            .filter(|size| *size > 0)
            .and_then(|size| rest.get(..size))
        else {
            break;
        };
        joined.extend_from_slice(chunk);
        body = rest.get(chunk.len() + 2..).unwrap_or_default();
    }
    joined
}
