//! An RPC port to test against, and raw clients of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use bytes::Bytes;
use crossway::codec;
use crossway::codec::Value;
use crossway::hooks::Edition;
use crossway::hooks::Open;
use crossway::net::Tls;
use crossway::net::TlsSettings;
use crossway::rpc::CallContext;
use crossway::rpc::Handler;
use crossway::rpc::Limits;
use crossway::rpc::Plugs;
use crossway::rpc::RpcError;
use crossway::rpc::Security;
use crossway::rpc::ServerConfig;
use crossway::rpc::Session;
use crossway::rpc::Target;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWrite;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::support::certs::Authority;
use crate::support::certs::Pair;

/// No test waits longer than this for anything.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A handler of a few methods; counts the calls under way.
#[derive(Clone, Default)]
pub(super) struct TestHandler {
    pub(super) waiting: Arc<AtomicUsize>,
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for TestHandler {
    async fn call(&self, ctx: CallContext, method: &str, body: Bytes) -> Result<Bytes, RpcError> {
        let reply = |value: Value| Ok(codec::to_vec(&value)?.into());
        match method {
            "Status.Ping" => reply(Value::Map(Vec::new())),
            "Status.Leader" => reply(Value::Raw(b"10.71.0.11:8300".into())),
            "Catalog.ListServices" => Err(RpcError::failed("No path to datacenter")),
            "Test.Echo" | "AutoEncrypt.Sign" => Ok(body),
            "Test.Number" => {
                let number: u64 = codec::from_slice(&body)?;
                reply(Value::Uint(number))
            }
            "Test.Wait" => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _waiting = Waiting(self.waiting.clone());
                std::future::pending().await
            }
            "Test.Panic" => panic!("a bug in a handler"),
            "Test.WhoAmI" => {
                let names = ctx.peer_identity.map(|peer| peer.dns_names().join(" "));
                let text = format!("{:?} {}", ctx.transport, names.unwrap_or_default());
                reply(Value::Raw(text.into_bytes()))
            }
            _ if method.starts_with("Status.") => Err(RpcError::UnknownMethod(method.into())),
            _ => Err(RpcError::UnknownService(method.into())),
        }
    }
}

/// A running port.
pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) handler: TestHandler,
    pub(super) tls: Arc<Tls>,
    pub(super) shutdown: CancellationToken,
    pub(super) task: tokio::task::JoinHandle<()>,
}

/// What a port is started with.
pub(super) struct Setup {
    pub(super) tls: Tls,
    pub(super) limits: Limits,
    pub(super) plugs: Plugs,
    pub(super) edition: Arc<dyn Edition>,
}

impl Setup {
    pub(super) fn new(tls: Tls) -> Self {
        let limits = Limits {
            max_conns_per_client: 0,
            ..Limits::default()
        };
        Self {
            tls,
            limits,
            plugs: Plugs::default(),
            edition: Arc::new(Open),
        }
    }

    pub(super) fn start(self) -> Port {
        let listener =
            crossway::net::listen("127.0.0.1:0".parse().unwrap(), "ports.server").unwrap();
        let address = listener.local_addr().unwrap();
        let (handler, tls) = (TestHandler::default(), Arc::new(self.tls));
        let shutdown = CancellationToken::new();
        let config = ServerConfig {
            tls: tls.clone(),
            limits: Arc::new(ArcSwap::from_pointee(self.limits)),
            plugs: self.plugs,
        };
        let served = crossway::rpc::serve(
            listener,
            config,
            handler.clone(),
            self.edition,
            shutdown.clone(),
        );
        Port {
            address,
            handler,
            tls,
            task: tokio::spawn(served),
            shutdown,
        }
    }
}

impl Port {
    /// A port without TLS.
    pub(super) fn plain() -> Self {
        Setup::new(Tls::disabled()).start()
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    pub(super) fn target(&self, security: Security, multiplexed: bool) -> Target {
        Target {
            address: self.address,
            datacenter: "dc1".into(),
            node: "s1".into(),
            security,
            multiplexed,
        }
    }

    /// The port still answers.
    pub(super) async fn check_alive(&self) {
        let security = match self.tls.is_mutual() {
            true => Security::Native { sni: None },
            false => Security::Plain,
        };
        let target = self.target(security, true);
        let session = Session::connect(&target, &self.tls, PATIENCE)
            .await
            .unwrap();
        session
            .call("Status.Ping", &[0x80], PATIENCE)
            .await
            .unwrap();
    }

    /// Waits until so many `Test.Wait` calls are under way.
    pub(super) async fn until_waiting(&self, count: usize) {
        let start = Instant::now();
        while self.handler.waiting.load(Ordering::SeqCst) != count {
            assert!(start.elapsed() < PATIENCE, "never {count} calls under way");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The certificates of a lab with two datacenters.
pub(super) struct Lab {
    pub(super) folder: tempfile::TempDir,
    pub(super) ca: Authority,
    pub(super) server: Pair,
}

impl Lab {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new(folder.path(), "ca");
        let server = ca.server("s1", "dc1");
        Self { folder, ca, server }
    }

    /// The TLS of someone with this certificate.
    pub(super) fn tls(&self, pair: Option<&Pair>) -> Tls {
        self.tls_with(pair, |_| {})
    }

    pub(super) fn tls_with(
        &self,
        pair: Option<&Pair>,
        change: impl FnOnce(&mut TlsSettings),
    ) -> Tls {
        let mut settings = TlsSettings {
            ca_files: vec![self.ca.file()],
            cert_file: pair.map(|pair| pair.cert.clone()),
            key_file: pair.map(|pair| pair.key.clone()),
            domain: "consul".into(),
            datacenter: "dc1".into(),
            node: "s1".into(),
            ..TlsSettings::default()
        };
        change(&mut settings);
        Tls::load(settings, SystemTime::now()).unwrap()
    }

    /// A port with TLS that lets nobody in without a certificate.
    pub(super) fn strict_port(&self) -> Port {
        Setup::new(self.tls_with(Some(&self.server), |settings| {
            settings.verify_incoming = true
        }))
        .start()
    }
}

/// Writes a request and reads the two values of its reply.
pub(super) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    method: &str,
    seq: u64,
    body: &[u8],
) -> std::io::Result<(Value, Value)> {
    stream.write_all(&request(method, seq, body)).await?;
    stream.flush().await?;
    reply(stream).await
}

pub(super) fn request(method: &str, seq: u64, body: &[u8]) -> Vec<u8> {
    let header = serde_json::json!({ "ServiceMethod": method, "Seq": seq });
    let mut bytes = codec::to_vec(&Value::from_json(&header).unwrap()).unwrap();
    bytes.extend_from_slice(body);
    bytes
}

/// Reads the two values of a reply, byte by byte so as to leave the next one alone.
pub(super) async fn reply(
    stream: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<(Value, Value)> {
    let mut values = Vec::new();
    while values.len() < 2 {
        let (mut bytes, mut scanner) = (Vec::new(), codec::Scanner::default());
        while scanner.advance(&bytes, usize::MAX).unwrap().is_none() {
            let read = tokio::time::timeout(PATIENCE, stream.read_u8()).await;
            bytes.push(read.expect("an answer in time")?);
        }
        values.push(codec::from_slice(&bytes).unwrap());
    }
    let body = values.pop().unwrap();
    Ok((values.pop().unwrap(), body))
}

/// Waits until the server closes the connection; gives what it said before.
pub(super) async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut said = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut said)).await;
    let _ = read.expect("the server closes the connection"); // By FIN or RST.
    said
}
