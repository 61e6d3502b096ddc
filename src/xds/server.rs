//! The gRPC services: aggregated and single-type discovery, CSDS, health and reflection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::Response;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryServiceServer;
use futures_util::{Stream, StreamExt};
use http::{HeaderValue, Request, StatusCode, header};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::service::Routes;
use tower::Service;

use crate::xds::admission::{Admission, Rate};
use crate::xds::csds::Csds;
use crate::xds::life::Patience;
use crate::xds::reflection;
use crate::xds::registry::Registry;
use crate::xds::resources::ResourceType;
use crate::xds::server::connection::{Connection, Watched};
use crate::xds::session::Protocol;
use crate::xds::source::Source;
use crate::xds::stream::{Purpose, StreamBody, now};

pub(crate) use connection::{OwedBy, Peer};

mod connection;

/// Pause between two looks at a state that changes all the time. The first change after a quiet time does not wait.
pub const HOLD_OFF: Duration = Duration::from_millis(50);

/// How long a client may take to make room for 16 KiB of a response, unless set otherwise.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_STREAMS_PER_CONNECTION: u32 = 2048;
/// Receive windows: requests are small, so there is no reason to let a client fill memory.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
const MAX_HEADER_LIST: u32 = 16 * 1024;

/// How long clients may take to close their connections at the end, when all streams have ended already.
const GOODBYE: Duration = Duration::from_secs(1);

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long streams wait for their proxies.
    pub patience: Patience,
    /// See [`HOLD_OFF`].
    pub hold_off: Duration,
    /// Longest request in bytes. The first one of an Envoy has about 61 KB, and 100 bytes for each resource that it
    /// has from an earlier stream.
    pub message_limit: usize,
    /// How long a stream may stay silent at its start.
    pub first_message: Duration,
    /// How fast one address may open streams.
    pub new_streams: Rate,
    /// The largest answer of CSDS in bytes, see [`Csds::LIMIT`].
    pub status_limit: usize,
    /// How long a client may take to make room for 16 KiB of a response.
    pub send_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            patience: Patience::default(),
            hold_off: HOLD_OFF,
            message_limit: 16 * 1024 * 1024,
            first_message: Duration::from_secs(30),
            new_streams: Rate::default(),
            status_limit: Csds::LIMIT,
            send_timeout: SEND_TIMEOUT,
        }
    }
}

/// What all streams share.
pub(crate) struct Shared<S> {
    pub(crate) source: S,
    pub(crate) registry: Arc<Registry>,
    pub(crate) settings: Settings,
    pub(crate) shutdown: CancellationToken,
    admission: Mutex<Admission>,
}

/// The xDS server: makes services, and serves them on as many listeners as there are.
pub struct Server<S> {
    shared: Arc<Shared<S>>,
    /// Full names of services that others add to the routes; reflection and health name them too.
    others: Vec<String>,
}

impl<S: Source> Server<S> {
    /// A server that configures proxies from `source` until `shutdown`.
    pub fn new(source: S, settings: Settings, shutdown: CancellationToken) -> Self {
        Self {
            shared: Arc::new(Shared {
                source,
                registry: Arc::default(),
                settings,
                shutdown,
                admission: Mutex::new(Admission::new(settings.new_streams)),
            }),
            others: Vec::new(),
        }
    }

    /// Names a service that the caller adds to [`Self::routes`], so that reflection lists it.
    #[must_use]
    pub fn with_service_name(mut self, name: impl Into<String>) -> Self {
        self.others.push(name.into());
        self
    }

    /// The live streams.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// All services, for one or more calls of [`serve`].
    pub async fn routes(&self) -> Routes {
        let mut routes = Routes::default();
        let mut router = std::mem::take(routes.axum_router_mut());
        for service in SERVICES {
            let endpoint = Endpoint {
                shared: Arc::clone(&self.shared),
                service,
            };
            router = router.route_service(&format!("/{}/{{method}}", service.name), endpoint);
        }
        let names = SERVICES.iter().map(|service| service.name.to_owned());
        let mut names: Vec<_> = names.chain([Csds::NAME.to_owned()]).collect();
        names.extend(self.others.iter().cloned());
        let (reporter, health) = tonic_health::server::health_reporter();
        for name in &names {
            let serving = tonic_health::ServingStatus::Serving;
            reporter.set_service_status(name, serving).await;
        }
        *routes.axum_router_mut() = reflection::add(router, names);
        let csds = Csds::new(
            Arc::clone(&self.shared.registry),
            self.shared.settings.status_limit,
        );
        routes
            .add_service(health)
            .add_service(ClientStatusDiscoveryServiceServer::new(csds))
    }
}

/// One discovery service and its methods.
#[derive(Debug)]
struct DiscoveryService {
    name: &'static str,
    only: Option<ResourceType>,
    sotw: &'static str,
    delta: &'static str,
    fetch: &'static str,
}

const SERVICES: &[DiscoveryService] = &[
    DiscoveryService {
        name: "envoy.service.discovery.v3.AggregatedDiscoveryService",
        only: None,
        sotw: "StreamAggregatedResources",
        delta: "DeltaAggregatedResources",
        fetch: "",
    },
    DiscoveryService {
        name: "envoy.service.cluster.v3.ClusterDiscoveryService",
        only: Some(ResourceType::Cluster),
        sotw: "StreamClusters",
        delta: "DeltaClusters",
        fetch: "FetchClusters",
    },
    DiscoveryService {
        name: "envoy.service.endpoint.v3.EndpointDiscoveryService",
        only: Some(ResourceType::Endpoint),
        sotw: "StreamEndpoints",
        delta: "DeltaEndpoints",
        fetch: "FetchEndpoints",
    },
    DiscoveryService {
        name: "envoy.service.listener.v3.ListenerDiscoveryService",
        only: Some(ResourceType::Listener),
        sotw: "StreamListeners",
        delta: "DeltaListeners",
        fetch: "FetchListeners",
    },
    DiscoveryService {
        name: "envoy.service.route.v3.RouteDiscoveryService",
        only: Some(ResourceType::Route),
        sotw: "StreamRoutes",
        delta: "DeltaRoutes",
        fetch: "FetchRoutes",
    },
    DiscoveryService {
        name: "envoy.service.secret.v3.SecretDiscoveryService",
        only: Some(ResourceType::Secret),
        sotw: "StreamSecrets",
        delta: "DeltaSecrets",
        fetch: "FetchSecrets",
    },
];

impl DiscoveryService {
    fn purpose(&self, method: &str) -> Option<Purpose> {
        let purpose = |protocol, once| Purpose {
            protocol,
            only: self.only,
            once,
        };
        match method {
            "" => None,
            _ if method == self.sotw => Some(purpose(Protocol::Sotw, false)),
            _ if method == self.delta => Some(purpose(Protocol::Delta, false)),
            _ if method == self.fetch => Some(purpose(Protocol::Sotw, true)),
            _ => None,
        }
    }
}

/// Serves the methods of one discovery service.
struct Endpoint<S> {
    shared: Arc<Shared<S>>,
    service: &'static DiscoveryService,
}

impl<S> Clone for Endpoint<S> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            service: self.service,
        }
    }
}

impl<S: Source> Endpoint<S> {
    fn answer(&self, request: Request<axum::body::Body>) -> Response {
        let grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
        if !request
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(grpc)
        {
            let mut response = Response::new(axum::body::Body::from("this port speaks gRPC\n"));
            *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return response;
        }
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let Some(purpose) = self.service.purpose(method) else {
            let text = format!("{} has no method {method:?}", self.service.name);
            return framed(StreamBody::refused(Status::unimplemented(text)));
        };
        let peer = request.extensions().get::<Peer>().cloned();
        if let Some(peer) = &peer
            && !self
                .shared
                .admission
                .lock()
                .admit(peer.address.ip(), now().instant)
        {
            let text = "too many new streams from this address, try again later";
            return framed(StreamBody::refused(Status::resource_exhausted(text)));
        }
        let body = request.into_body();
        framed(StreamBody::new(
            Arc::clone(&self.shared),
            purpose,
            peer,
            body,
        ))
    }
}

fn framed(body: StreamBody) -> Response {
    let mut response = Response::new(axum::body::Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

impl<S: Source> Service<Request<axum::body::Body>> for Endpoint<S> {
    type Response = Response;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<axum::body::Body>) -> Self::Future {
        std::future::ready(Ok(self.answer(request)))
    }
}

/// Serves `routes` on accepted connections (plain, or TLS after the handshake) until `shutdown`.
///
/// # Errors
/// The transport failed; an error of one connection ends only that connection.
pub async fn serve<IO>(
    routes: Routes,
    connections: impl Stream<Item = (IO, SocketAddr)>,
    shutdown: CancellationToken,
) -> Result<(), tonic::transport::Error>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connections =
        connections.map(|(io, peer)| Ok::<_, Infallible>(Connection::new(Watched::new(peer), io)));
    let goodbye = async {
        shutdown.cancelled().await;
        tokio::time::sleep(GOODBYE).await;
    };
    let served = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(MAX_HEADER_LIST)
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, shutdown.clone().cancelled_owned());
    tokio::select! {
        ended = served => ended,
        () = goodbye => Ok(()),
    }
}
