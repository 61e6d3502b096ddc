//! The client status discovery service: what every connected Envoy is to have, has, and refused.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::ClientStatusDiscoveryService;
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use futures_util::{Stream, StreamExt};
use prost::Message;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::xds::redact;
use crate::xds::registry::{LiveStream, Now, Registry};
use crate::xds::resources::{Resource, ResourceType, Version};
use crate::xds::status::{self, Progress, ResourceStatus};
use crate::xds::stream::now;
use crate::xds::wire::Node;

/// Answers that are built at the same time: each may hold [`Csds::LIMIT`] bytes.
const BUILDS_AT_ONCE: usize = 1;

/// The service.
#[derive(Clone, Debug)]
pub struct Csds {
    registry: Arc<Registry>,
    limit: usize,
    builds: Arc<Semaphore>,
}

impl Csds {
    /// The full name of the service.
    pub const NAME: &'static str = "envoy.service.status.v3.ClientStatusDiscoveryService";

    /// The largest answer in bytes, unless set otherwise.
    pub const LIMIT: usize = 64 * 1024 * 1024;

    /// The service over these streams; answers have at most `limit` bytes.
    pub fn new(registry: Arc<Registry>, limit: usize) -> Self {
        Self {
            registry,
            limit,
            builds: Arc::new(Semaphore::new(BUILDS_AT_ONCE)),
        }
    }

    /// Builds the answer where it holds up no stream: there may be thousands of them with thousands of resources.
    async fn answer(&self, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let closed = |_| Status::unavailable("this server is shutting down");
        let turn = Arc::clone(&self.builds);
        let turn = turn.acquire_owned().await.map_err(closed)?;
        // Nobody waits for the answer any more when this future is dropped.
        let gone = CancellationToken::new();
        let _unless_dropped = gone.clone().drop_guard();
        let me = self.clone();
        let built = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            me.build(&request, &gone)
        });
        let failed = |error| Status::internal(format!("the answer was not built: {error}"));
        built.await.map_err(failed)?
    }

    fn build(
        &self,
        request: &ClientStatusRequest,
        gone: &CancellationToken,
    ) -> Result<ClientStatusResponse, Status> {
        let now = now();
        let mut config = Vec::new();
        let mut shown = Shown {
            contents: !request.exclude_resource_contents,
            known: HashMap::new(),
        };
        let mut bytes = 0;
        for stream in self.registry.streams() {
            if gone.is_cancelled() {
                return Err(Status::cancelled("nobody waits for the answer"));
            }
            if !matches(&request.node_matchers, &stream.node)? {
                continue;
            }
            let client = client(&stream, now, &mut shown);
            bytes += client.encoded_len();
            if bytes > self.limit {
                let limit = self.limit;
                return Err(Status::resource_exhausted(format!(
                    "the answer would have more than {limit} bytes: choose clients with node_matchers, or set \
                     exclude_resource_contents"
                )));
            }
            config.push(client);
        }
        Ok(ClientStatusResponse { config })
    }
}

/// What clients show of resources. Many have the same ones, so each is made ready once for an answer.
struct Shown {
    contents: bool,
    known: HashMap<(ResourceType, Arc<str>, Version), Any>,
}

impl Shown {
    fn of(&mut self, resource: &Resource) -> Option<Any> {
        if !self.contents {
            return None;
        }
        let key = (
            resource.kind(),
            Arc::clone(resource.name()),
            resource.version(),
        );
        let any = self.known.entry(key);
        Some(any.or_insert_with(|| redact::any(resource)).clone())
    }
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Csds {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let me = self.clone();
        let answers = request.into_inner().then(move |request| {
            let me = me.clone();
            async move { me.answer(request?).await }
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        self.answer(request.into_inner()).await.map(Response::new)
    }
}

/// Whether any matcher (or none being given) fits the node.
fn matches(matchers: &[NodeMatcher], node: &Node) -> Result<bool, Status> {
    let mut any = matchers.is_empty();
    for matcher in matchers {
        if !matcher.node_metadatas.is_empty() {
            let text = "node_matchers: only node_id is supported, not node_metadatas";
            return Err(Status::invalid_argument(text));
        }
        any |= match &matcher.node_id {
            None => true,
            Some(pattern) => text_matches(pattern, &node.id)?,
        };
    }
    Ok(any)
}

fn text_matches(matcher: &StringMatcher, text: &str) -> Result<bool, Status> {
    let fold = |text: &str| {
        if matcher.ignore_case {
            text.to_lowercase()
        } else {
            text.to_owned()
        }
    };
    let text = fold(text);
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(pattern)) => Ok(text == fold(pattern)),
        Some(MatchPattern::Prefix(pattern)) => Ok(text.starts_with(&fold(pattern))),
        Some(MatchPattern::Suffix(pattern)) => Ok(text.ends_with(&fold(pattern))),
        Some(MatchPattern::Contains(pattern)) => Ok(text.contains(&fold(pattern))),
        _ => Err(Status::invalid_argument(
            "node_matchers: node_id must be exact, prefix, suffix or contains",
        )),
    }
}

fn client(stream: &LiveStream, now: Now, shown: &mut Shown) -> ClientConfig {
    let state = stream.state.lock();
    let mut generic_xds_configs = Vec::new();
    for kind in ResourceType::ALL {
        let accepted = state.session.of(kind).accepted_at;
        let accepted = accepted.map(|at| now.wall_at(at));
        let resources = status::resources(&state.session, kind).into_iter();
        generic_xds_configs.extend(resources.map(|one| resource(one, accepted, now, shown)));
    }
    ClientConfig {
        node: Some(node(&stream.node)),
        generic_xds_configs,
        client_scope: format!("stream {} ({})", stream.id, stream.protocol.label()),
        ..Default::default()
    }
}

fn node(node: &Node) -> core::Node {
    let version = node
        .user_agent_build_version
        .and_then(|build| build.version);
    let version = version.map(|version| {
        core::node::UserAgentVersionType::UserAgentBuildVersion(core::BuildVersion {
            version: Some(SemanticVersion {
                major_number: version.major_number,
                minor_number: version.minor_number,
                patch: version.patch,
            }),
            metadata: None,
        })
    });
    core::Node {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata: node.metadata.clone(),
        user_agent_name: node.user_agent_name.clone(),
        user_agent_version_type: version,
        ..Default::default()
    }
}

fn resource(
    one: ResourceStatus,
    accepted: Option<SystemTime>,
    now: Now,
    shown: &mut Shown,
) -> GenericXdsConfig {
    let (config_status, client_status) = match one.progress {
        Progress::Acked => (ConfigStatus::Synced, ClientResourceStatus::Acked),
        Progress::Sent => (ConfigStatus::Stale, ClientResourceStatus::Requested),
        Progress::Due => (ConfigStatus::NotSent, ClientResourceStatus::Requested),
        Progress::Refused => (ConfigStatus::Error, ClientResourceStatus::Nacked),
        Progress::Absent => (ConfigStatus::Synced, ClientResourceStatus::DoesNotExist),
    };
    let refused_at = one.refusal.as_ref().map(|refusal| now.wall_at(refusal.at));
    let any = one.wanted.as_ref().and_then(|resource| shown.of(resource));
    let error_state = one.refusal.as_ref().map(|refusal| UpdateFailureState {
        failed_configuration: any.clone(),
        last_update_attempt: refused_at.map(timestamp),
        details: refusal.detail.to_string(),
        version_info: refusal.version.to_string(),
    });
    GenericXdsConfig {
        type_url: one.kind.url().to_owned(),
        name: one.name.to_string(),
        version_info: one
            .held
            .map(|version| version.to_string())
            .unwrap_or_default(),
        // A refused resource is shown in error_state; what Envoy still has is an older one.
        xds_config: any.filter(|_| one.progress != Progress::Refused),
        last_updated: accepted.or(refused_at).map(timestamp),
        config_status: config_status.into(),
        client_status: client_status.into(),
        error_state,
        ..Default::default()
    }
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }
}
