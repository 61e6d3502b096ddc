//! The HTTP API over TLS, in both protocol versions.

use crate::http_api::fixture::{Fixture, PATIENCE, Response};
use crate::support::certs::Authority;
use bytes::Bytes;
use crossway::http::{Server, Settings, TlsSource};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

async fn serve(fixture: &Fixture, authority: &Authority) -> (SocketAddr, DropGuard) {
    let pair = authority.server("n1", "dc1");
    let certs = vec![CertificateDer::from_pem_file(&pair.cert).unwrap()];
    let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let source: TlsSource = watch::channel(Arc::new(config)).1;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = Server::new(fixture.api.clone(), Settings::default());
    tokio::spawn(server.serve(listener, Some(source), stop.clone()));
    (address, stop.drop_guard())
}

async fn connect(address: SocketAddr, authority: &Authority, alpn: &str) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(authority.file()).unwrap();
    roots.add(root).unwrap();
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_speaks_http_1_and_2_and_outlives_plain_clients() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let fixture = Fixture::start("dc1", "n1", "127.0.0.1:8300").await;
    let (address, _stop) = serve(&fixture, &authority).await;
    let request = b"GET /v1/status/leader HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(request).await.unwrap();
    let mut refused = Vec::new();
    let _ = timeout(PATIENCE, plain.read_to_end(&mut refused))
        .await
        .unwrap();
    assert!(!refused.starts_with(b"HTTP"), "no answer outside TLS");

    let mut stream = connect(address, &authority, "http/1.1").await;
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    assert_eq!(Response::parse(&answer).text(), "\"127.0.0.1:8300\"");

    let stream = TokioIo::new(connect(address, &authority, "h2").await);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
            .await
            .unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::get("https://localhost/v1/status/leader")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let response = timeout(PATIENCE, client.send_request(request))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "\"127.0.0.1:8300\"");
    driver.abort();
}
