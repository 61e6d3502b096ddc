//! An xDS server over memory, and clients that speak to it as Envoys do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // Test code: a failed step should stop the test.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use crossway::proto::envoy::config::cluster::v3::Cluster;
use crossway::proto::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig,
};
use crossway::proto::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use crossway::proto::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, Node, SocketAddress, address,
    socket_address,
};
use crossway::proto::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use crossway::proto::envoy::config::listener::v3::{
    Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter, filter, listener_filter,
};
use crossway::proto::envoy::extensions::filters::listener::tls_inspector::v3::TlsInspector;
use crossway::proto::envoy::extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy};
use crossway::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crossway::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use crossway::proto::google::protobuf::value::Kind;
use crossway::proto::google::protobuf::{Any, Duration as ProtoDuration, Struct, Value};
use crossway::proto::google::rpc::Status as RpcStatus;
use crossway::testing::xds::MemorySource;
use crossway::xds::resources::{ProxyResources, Resource, ResourceType};
use crossway::xds::server::{Server, Settings, serve};
use futures_util::stream::unfold;
use prost::{Message, Name};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// How many bytes a client takes without being asked whether it wants more.
const WINDOW: u32 = 65_535;

/// How long a test waits for something that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// A running server.
pub(crate) struct XdsServer {
    pub(crate) source: MemorySource,
    pub(crate) server: Server<MemorySource>,
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
}

impl XdsServer {
    pub(crate) async fn start(settings: Settings) -> Self {
        let source = MemorySource::default();
        let shutdown = CancellationToken::new();
        let server = Server::new(source.clone(), settings, shutdown.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = unfold(listener, |listener| async move {
            let (tcp, peer) = listener.accept().await.unwrap();
            tcp.set_nodelay(true).unwrap();
            Some(((tcp, peer), listener))
        });
        let routes = server.routes().await;
        tokio::spawn(serve(routes, connections, shutdown.clone()));
        Self {
            source,
            server,
            address,
            shutdown,
        }
    }

    pub(crate) async fn channel(&self) -> Channel {
        channel(self.address).await
    }

    /// Opens a delta stream as the proxy `id` on node `host-1`.
    pub(crate) async fn delta(&self, id: &str) -> DeltaClient {
        delta(self.address, id).await
    }
    /// Opens a state-of-the-world stream as the proxy `id` on node `host-1`.
    pub(crate) async fn sotw(&self, id: &str) -> SotwClient {
        let mut client = AggregatedDiscoveryServiceClient::new(self.channel().await);
        let (requests, stream) = mpsc::unbounded_channel();
        let stream = UnboundedReceiverStream::new(stream);
        let responses = client.stream_aggregated_resources(stream).await.unwrap();
        SotwClient {
            requests,
            responses: responses.into_inner(),
            node: Some(node(id, Some("host-1"))),
        }
    }
}

/// A connection as an Envoy makes it.
async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    // As small as Envoy's are large, so that clients that do not read are noticed.
    let endpoint = endpoint
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    endpoint.connect().await.unwrap()
}

/// Opens a delta stream to this address as the proxy `id` on node `host-1`.
pub(crate) async fn delta(address: SocketAddr, id: &str) -> DeltaClient {
    let mut client = AggregatedDiscoveryServiceClient::new(channel(address).await);
    let (requests, stream) = mpsc::unbounded_channel();
    let stream = UnboundedReceiverStream::new(stream);
    // Answers may come before the first request is sent, so the call must not wait for them.
    let responses = client.delta_aggregated_resources(stream).await.unwrap();
    DeltaClient {
        requests: Some(requests),
        responses: responses.into_inner(),
        node: Some(node(id, Some("host-1"))),
    }
}

/// A way to `server` that carries so many bytes a second back; the sender changes how many.
pub(crate) async fn slow_link(
    server: SocketAddr,
    bytes_per_second: usize,
) -> (SocketAddr, watch::Sender<usize>) {
    const STEPS: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, speed) = watch::channel(bytes_per_second);
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.unwrap();
        let far = TcpSocket::new_v4().unwrap();
        far.set_recv_buffer_size(4096).unwrap(); // What waits, waits at the server.
        let far = far.connect(server).await.unwrap();
        let (mut from_near, mut to_near) = near.into_split();
        let (mut from_far, mut to_far) = far.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_near, &mut to_far).await });
        let mut pace = tokio::time::interval(Duration::from_secs(1) / STEPS as u32);
        loop {
            pace.tick().await;
            let mut bytes = vec![0; *speed.borrow() / STEPS];
            match from_far.read(&mut bytes).await {
                Ok(n) if n > 0 && to_near.write_all(&bytes[..n]).await.is_ok() => {}
                _ => return,
            }
        }
    });
    (address, sender)
}

impl Drop for XdsServer {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// What an Envoy says about itself.
pub(crate) fn node(id: &str, node_name: Option<&str>) -> Node {
    let fields = node_name.map(|name| {
        let value = Value {
            kind: Some(Kind::StringValue(name.to_owned())),
        };
        HashMap::from([("node_name".to_owned(), value)])
    });
    Node {
        id: id.to_owned(),
        cluster: "mesh-gateway".to_owned(),
        metadata: fields.map(|fields| Struct { fields }),
        ..Default::default()
    }
}

/// A delta stream.
pub(crate) struct DeltaClient {
    pub(crate) requests: Option<mpsc::UnboundedSender<DeltaDiscoveryRequest>>,
    pub(crate) responses: Streaming<DeltaDiscoveryResponse>,
    pub(crate) node: Option<Node>,
}

impl DeltaClient {
    pub(crate) fn send(&mut self, mut request: DeltaDiscoveryRequest) {
        if request.node.is_none() {
            request.node = self.node.take();
        }
        let _ = self.requests.as_ref().unwrap().send(request);
    }

    pub(crate) fn subscribe(&mut self, kind: ResourceType, names: &[&str]) {
        self.send(DeltaDiscoveryRequest {
            type_url: kind.url().to_owned(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        });
    }

    pub(crate) fn ack(&mut self, response: &DeltaDiscoveryResponse) {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            ..Default::default()
        });
    }

    pub(crate) fn nack(&mut self, response: &DeltaDiscoveryResponse, message: &str) {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: Some(refusal(message)),
            ..Default::default()
        });
    }

    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = DeltaDiscoveryResponse> {
        let next = self.responses.message();
        async move {
            let next = tokio::time::timeout(SOON, next).await;
            next.expect("a response in time").unwrap().expect("no end")
        }
    }

    /// The next response must be of this type; it is acknowledged.
    pub(crate) async fn accept(&mut self, kind: ResourceType) -> DeltaDiscoveryResponse {
        let response = self.next().await;
        assert_eq!(response.type_url, kind.url());
        self.ack(&response);
        response
    }

    /// The status with which the stream ends.
    pub(crate) async fn end(&mut self) -> Status {
        let end = tokio::time::timeout(SOON, self.responses.message()).await;
        match end.expect("an end in time") {
            Err(status) => status,
            Ok(None) => Status::ok(""),
            Ok(Some(response)) => panic!("no end but {response:?}"),
        }
    }

    /// Nothing may come for a while.
    pub(crate) async fn silence(&mut self, length: Duration) {
        let next = tokio::time::timeout(length, self.responses.message()).await;
        assert!(next.is_err(), "silence, but {next:?}");
    }
}

/// A state-of-the-world stream.
pub(crate) struct SotwClient {
    requests: mpsc::UnboundedSender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    node: Option<Node>,
}

impl SotwClient {
    pub(crate) fn ask(&mut self, kind: ResourceType, names: &[&str], last: &DiscoveryResponse) {
        let request = DiscoveryRequest {
            node: self.node.take(),
            type_url: kind.url().to_owned(),
            resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
            version_info: last.version_info.clone(),
            response_nonce: last.nonce.clone(),
            ..Default::default()
        };
        self.requests.send(request).unwrap();
    }

    pub(crate) async fn next(&mut self, kind: ResourceType) -> DiscoveryResponse {
        let next = tokio::time::timeout(SOON, self.responses.message()).await;
        let next = next.expect("a response in time").unwrap().expect("no end");
        assert_eq!(next.type_url, kind.url());
        next
    }
}

fn refusal(message: &str) -> RpcStatus {
    RpcStatus {
        code: 13,
        message: message.to_owned(),
        details: Vec::new(),
    }
}

pub(crate) fn names(response: &DeltaDiscoveryResponse) -> Vec<&str> {
    let names = response.resources.iter();
    names.map(|resource| resource.name.as_str()).collect()
}

fn socket(ip: &str, port: u32) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: ip.to_owned(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
            ..Default::default()
        })),
    }
}

/// An EDS cluster.
pub(crate) fn cluster(name: &str, connect_timeout_ms: i32) -> Resource {
    let ads = ConfigSource {
        resource_api_version: ApiVersion::V3 as i32,
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    };
    Resource::cluster(&Cluster {
        name: name.to_owned(),
        connect_timeout: Some(ProtoDuration {
            seconds: i64::from(connect_timeout_ms / 1000),
            nanos: connect_timeout_ms % 1000 * 1_000_000,
        }),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds as i32)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: Some(ads),
            service_name: String::new(),
        }),
        ..Default::default()
    })
}

/// One endpoint for a cluster.
pub(crate) fn endpoints(cluster: &str, port: u32) -> Resource {
    let endpoint = Endpoint {
        address: Some(socket("127.0.0.1", port)),
        ..Default::default()
    };
    Resource::endpoints(&ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: vec![LbEndpoint {
                host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    })
}

fn any<M: Message + Name>(message: &M) -> Any {
    Any {
        type_url: M::type_url(),
        value: message.encode_to_vec(),
    }
}

/// A listener with one SNI chain for each cluster.
pub(crate) fn listener(port: u32, clusters: &[&str]) -> Resource {
    let chain = |cluster: &&str| FilterChain {
        filter_chain_match: Some(FilterChainMatch {
            server_names: vec![(*cluster).to_owned()],
            ..Default::default()
        }),
        filters: vec![Filter {
            name: "envoy.filters.network.tcp_proxy".to_owned(),
            config_type: Some(filter::ConfigType::TypedConfig(any(&TcpProxy {
                stat_prefix: (*cluster).to_owned(),
                cluster_specifier: Some(tcp_proxy::ClusterSpecifier::Cluster(
                    (*cluster).to_owned(),
                )),
                ..Default::default()
            }))),
        }],
        ..Default::default()
    };
    let name = format!("default:127.0.0.1:{port}");
    let message = Listener {
        name: name.clone(),
        address: Some(socket("127.0.0.1", port)),
        listener_filters: vec![ListenerFilter {
            name: "envoy.filters.listener.tls_inspector".to_owned(),
            config_type: Some(listener_filter::ConfigType::TypedConfig(any(
                &TlsInspector::default(),
            ))),
            ..Default::default()
        }],
        filter_chains: clusters.iter().map(chain).collect(),
        ..Default::default()
    };
    Resource::new(ResourceType::Listener, name, &message)
}

/// A gateway with these clusters, one endpoint each, and a listener.
pub(crate) fn gateway(port: u32, clusters: &[&str]) -> ProxyResources {
    ProxyResources {
        clusters: clusters.iter().map(|name| cluster(name, 5000)).collect(),
        endpoints: clusters.iter().map(|name| endpoints(name, 9)).collect(),
        listeners: [listener(port, clusters)].into_iter().collect(),
        ..Default::default()
    }
}
