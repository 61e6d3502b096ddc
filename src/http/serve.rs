//! Listeners and connections: limits, TLS and orderly ends.

use crate::api::Api;
use crate::http::conversation::{Conversation, LastWord};
use crate::http::request::Query;
use crate::http::routes;
use crate::http::service::{BODY_TIMEOUT, Service};
use crate::http::table::Route;
use crate::net;
use crate::net::{ClientLimit, Place, ReadBy};
use crate::telemetry::Quiet;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ipnet::IpNet;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the end of a server waits for the requests that it still answers.
const DRAIN: Duration = Duration::from_secs(5);

/// How long idle connections may take to close themselves at the end of the server.
const GOODBYE: Duration = Duration::from_secs(1);

/// How long accepting pauses when the system has no more descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a client gets that has too many connections.
const TOO_MANY: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nConnection: close\r\n\
Content-Length: 80\r\n\r\nYour IP is issuing too many concurrent connections, please rate limit your calls";

/// The TLS configuration, and newer ones; a connection gets the newest at the time it opens.
pub type TlsSource = watch::Receiver<Arc<ServerConfig>>;

/// Limits of the HTTP API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Connections that one client address may have; 0 for any number (`http_max_conns_per_client`).
    pub connections: ClientLimit,
    /// Networks from which anything but `GET` is accepted; empty for all (`allow_write_http_from`).
    pub allow_write_from: Vec<IpNet>,
    /// Beginnings of paths that answer 403 (`block_endpoints`).
    pub block_endpoints: Vec<String>,
    /// Headers of every answer, in place of those it would have (`response_headers`).
    pub response_headers: HeaderMap,
    /// How long a client may take for its request head, and how long an idle connection is kept.
    pub header_timeout: Duration,
    /// How long a client may take for a body.
    pub body_timeout: Duration,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// The largest body in bytes, except for keys, whose limit is `kv_max_value_size`.
    pub max_body: usize,
    /// How many bytes of encoded answers are kept for others who ask the same.
    pub cache_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: ClientLimit::new(200),
            allow_write_from: Vec::new(),
            block_endpoints: Vec::new(),
            response_headers: HeaderMap::new(),
            header_timeout: Duration::from_secs(60),
            body_timeout: BODY_TIMEOUT,
            handshake_timeout: Duration::from_secs(5),
            max_body: 4 * 1024 * 1024,
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

/// The HTTP API, ready to serve listeners. Cloning it shares it.
#[derive(Clone)]
pub struct Server {
    service: Arc<Service>,
    quiet: Arc<Quiet>,
    settings: Settings,
}

impl Server {
    /// The API with all its routes.
    pub fn new(api: Api, settings: Settings) -> Self {
        Self::with_routes(api, settings, routes())
    }

    /// The API with these routes.
    pub fn with_routes(
        api: Api,
        settings: Settings,
        routes: impl IntoIterator<Item = &'static Route>,
    ) -> Self {
        Self {
            quiet: Arc::default(),
            service: Arc::new(Service::new(api, routes, settings.clone())),
            settings,
        }
    }

    /// Serves a listener until `stop`, then waits a moment for the requests under way. With `tls` every connection is
    /// TLS, with the newest configuration at the time it opens.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<TlsSource>,
        stop: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, remote) = match accepted {
                Ok((stream, remote)) => (stream, remote.ip().to_canonical()),
                Err(error) => {
                    let own = IpAddr::from(Ipv4Addr::UNSPECIFIED);
                    if let Some(unsaid) = self.quiet.speak(now(), own, "accept") {
                        tracing::warn!(%error, unsaid, "cannot accept HTTP connections; are there too many open files?");
                    }
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(admission) = self.settings.connections.admit(remote) else {
                metrics::counter!("consul.http.refused_connections").increment(1);
                if let Some(unsaid) = self.quiet.speak(now(), remote, "limit") {
                    tracing::warn!(
                        client = %remote,
                        unsaid,
                        "HTTP connection refused: the address has as many as limits.http_max_conns_per_client allows"
                    );
                }
                connections.spawn(refuse(stream, tls.is_some()));
                continue;
            };
            let (server, stop, tls) = (self.clone(), stop.clone(), tls.clone());
            connections.spawn(async move {
                server.connection(stream, remote, tls, stop).await;
                drop::<Place>(admission);
            });
        }
        drop(listener);
        connections.close();
        if timeout(DRAIN, connections.wait()).await.is_err() {
            tracing::debug!(left = connections.len(), "HTTP requests cut off at the end");
        }
    }

    async fn connection(
        self,
        stream: TcpStream,
        remote: IpAddr,
        tls: Option<TlsSource>,
        stop: CancellationToken,
    ) {
        if let Err(error) = net::Stream::tune(&stream) {
            tracing::debug!(%error, "socket options could not be set");
        }
        let Some(tls) = tls else {
            return self.http1(stream, remote, stop).await;
        };
        let config = tls.borrow().clone();
        let handshake = TlsAcceptor::from(config).accept(stream);
        let limit = self.settings.handshake_timeout;
        let error = match timeout(limit, handshake).await {
            Ok(Ok(stream)) => {
                let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                return match h2 {
                    true => self.http2(stream, remote, stop).await,
                    false => self.http1(stream, remote, stop).await,
                };
            }
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                // A port probe, or a health check of a load balancer.
                tracing::debug!(client = %remote, "closed before TLS was set up");
                return;
            }
            Ok(Err(error)) => net::describe_handshake(&error),
            Err(_) => format!("it was not done within {limit:?}"),
        };
        if let Some(unsaid) = self.quiet.speak(now(), remote, &error) {
            tracing::warn!(client = %remote, error, unsaid, "HTTPS connection refused: TLS handshake failed");
        }
    }

    async fn http1<S>(self, stream: S, remote: IpAddr, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let conversation = Conversation::default();
        let stream = ReadBy::new(LastWord::new(conversation.clone()), stream);
        let service = service_fn(|request| {
            let under_way = conversation.begin();
            let answer = respond(self.service.clone(), request, remote, stop.clone());
            async move {
                let answer = answer.await;
                drop(under_way);
                Ok::<_, Infallible>(answer)
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(self.settings.header_timeout)
                .title_case_headers(true)
                .max_buf_size(64 * 1024)
                .serve_connection(TokioIo::new(stream), service)
        );
        let mut goodbye = pin!(goodbye(&stop));
        let (mut stopping, mut parted) = (false, false);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(client = %remote, %error, "HTTP connection failed");
                    }
                    return;
                }
                () = goodbye.as_mut(), if !parted => {
                    parted = true;
                    if conversation.is_idle() {
                        return;
                    }
                }
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    async fn http2<S>(self, stream: S, remote: IpAddr, stop: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let asked = AtomicBool::new(false);
        let conversation = Conversation::default();
        let service = service_fn(|request| {
            asked.store(true, Ordering::Relaxed);
            let under_way = conversation.begin();
            let answer = respond(self.service.clone(), request, remote, stop.clone());
            async move {
                let answer = answer.await;
                drop(under_way);
                Ok::<_, Infallible>(answer)
            }
        });
        let mut connection = pin!(
            http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(self.settings.header_timeout)
                .max_concurrent_streams(250)
                .serve_connection(TokioIo::new(stream), service)
        );
        // Pings of HTTP/2 begin after the client's preface only; before it a silent client must be cut off otherwise.
        let mut silent = pin!(sleep(self.settings.header_timeout));
        let mut goodbye = pin!(goodbye(&stop));
        let (mut waiting, mut stopping, mut parted) = (true, false, false);
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(client = %remote, %error, "HTTP/2 connection failed");
                    }
                    return;
                }
                () = goodbye.as_mut(), if !parted => {
                    parted = true;
                    if conversation.is_idle() {
                        return;
                    }
                }
                () = silent.as_mut(), if waiting => {
                    waiting = false;
                    if !asked.load(Ordering::Relaxed) {
                        tracing::debug!(client = %remote, "HTTP/2 connection without a request closed");
                        return;
                    }
                }
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Answers a request. A reader that waits for a change is told when the server stops; all others get their answer.
async fn respond(
    service: Arc<Service>,
    request: http::Request<hyper::body::Incoming>,
    remote: IpAddr,
    stop: CancellationToken,
) -> http::Response<Full<Bytes>> {
    let query = request.uri().query().unwrap_or_default();
    let waits = request.method() == http::Method::GET && Query::parse(query).has("index");
    let answer = service.respond(request, remote);
    if !waits {
        return answer.await;
    }
    tokio::select! {
        answer = answer => answer,
        () = stop.cancelled() => {
            let mut response = http::Response::new(Full::from("The server is shutting down"));
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

/// The time after `stop` when clients that are asking nothing are not waited for any longer.
async fn goodbye(stop: &CancellationToken) {
    stop.cancelled().await;
    sleep(GOODBYE).await;
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Instant {
    Instant::now()
}

/// Tells a client in plain text that it has too many connections; inside TLS there is nobody to tell yet.
async fn refuse(mut stream: TcpStream, tls: bool) {
    if !tls {
        let told = timeout(Duration::from_secs(1), stream.write_all(TOO_MANY)).await;
        if told.is_ok_and(|r| r.is_ok())
            && let Err(error) = stream.shutdown().await
        {
            tracing::trace!(%error, "the refused client was gone");
        }
    }
}
