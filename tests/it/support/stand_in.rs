//! A stand-in for an HTTP service, with or without TLS: a function answers each request.

use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncRead;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWrite;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A request as it came.
pub(crate) struct Asked {
    pub(crate) method: String,
    /// With the query.
    pub(crate) path: String,
    /// By name in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

type Answer = Arc<dyn Fn(&Asked) -> (u16, String) + Send + Sync>;

/// Serves until it is dropped.
pub(crate) struct StandIn {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl StandIn {
    pub(crate) async fn start(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Asked) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer: Answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, answer) = (tls.clone(), answer.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, &answer).await,
                        Some(config) => match TlsAcceptor::from(config).accept(stream).await {
                            Ok(stream) => serve(stream, &answer).await,
                            Err(_) => None, // The client does not like the certificate.
                        },
                    }
                });
            }
        });
        Self { address, task }
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request, one answer, and the connection ends.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &Answer) -> Option<()> {
    let mut bytes = Vec::new();
    let asked = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(asked) = read(&String::from_utf8_lossy(&bytes)) {
            break asked;
        }
    };
    let (status, body) = answer(&asked);
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

/// The request, once it is whole.
fn read(text: &str) -> Option<Asked> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .map_or(0, |l| l.parse().unwrap());
    (body.len() >= length).then(|| Asked {
        method: first.next().unwrap().to_owned(),
        path: first.next().unwrap().to_owned(),
        headers,
        body: body.to_owned(),
    })
}
