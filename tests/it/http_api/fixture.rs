//! A server in this process with a real port, and a client that sees every byte.

use crossway::api::{Api, Settings as ApiSettings};
use crossway::consensus::{Config, Consensus};
use crossway::http::{Route, Server, Settings};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Longer than anything here takes; a test that needs it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Fixture {
    pub(crate) api: Api,
    pub(crate) address: SocketAddr,
    _stop: DropGuard,
}

impl Fixture {
    pub(crate) async fn start(datacenter: &str, node: &str, rpc: &str) -> Self {
        Self::with(datacenter, node, rpc, Settings::default(), None).await
    }

    pub(crate) async fn limited(settings: Settings) -> Self {
        Self::with("dc1", "n1", "127.0.0.1:8300", settings, None).await
    }

    pub(crate) async fn with(
        datacenter: &str,
        node: &str,
        rpc: &str,
        settings: Settings,
        extra: Option<&'static Route>,
    ) -> Self {
        let id = "ddd6fddd-b174-f428-7633-0e0dabed6a2c";
        let mut config = Config::new(id.into(), node.into(), rpc);
        config.bootstrap = true;
        let consensus = Consensus::open(config).await.unwrap();
        let api = Api::new(
            ApiSettings {
                datacenter: datacenter.into(),
                node: node.into(),
                ..ApiSettings::default()
            },
            consensus,
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let routes = crossway::http::routes().into_iter().chain(extra);
        let server = Server::with_routes(api.clone(), settings, routes);
        tokio::spawn(server.serve(listener, None, stop.clone()));
        Self {
            api,
            address,
            _stop: stop.drop_guard(),
        }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Response {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        Response::parse(&self.raw(&request).await)
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, "", b"").await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        let body = serde_json::to_vec(body).unwrap();
        self.send("PUT", path, "", &body).await
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut out = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut out))
            .await
            .expect("the server closes")
            .unwrap();
        out
    }
}

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
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = std::str::from_utf8(&bytes[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap().splitn(3, ' ');
        let version = first.next().unwrap().to_owned();
        let status = first.next().unwrap().parse().unwrap();
        let headers = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            version,
            status,
            headers,
            body: bytes[end + 4..].to_vec(),
        }
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
