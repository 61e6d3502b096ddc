//! A server in this process with a real port, and a client that sees every byte.

use crate::support::http;
pub(crate) use crate::support::http::{PATIENCE, Response};
use crossway::api::{Api, Settings as ApiSettings};
use crossway::consensus::{Config, Consensus};
use crossway::http::{Route, Server, Settings};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

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
        let request = http::message(method, path, headers, body);
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
        http::exchange(self.address, bytes).await
    }
}
