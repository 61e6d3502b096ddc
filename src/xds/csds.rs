//! The client status discovery service: what every connected Envoy is to have, has, and refused.

use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use envoy_types::pb::envoy::r#type::v3::SemanticVersion;
use envoy_types::pb::google::protobuf::Timestamp;
use futures_util::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::xds::redact;
use crate::xds::registry::{LiveStream, Now, Registry};
use crate::xds::resources::ResourceType;
use crate::xds::status::{self, Progress, ResourceStatus};
use crate::xds::stream::now;
use crate::xds::wire::Node;

/// The service.
#[derive(Clone, Debug)]
pub struct Csds {
    registry: Arc<Registry>,
}

impl Csds {
    /// The full name of the service.
    pub const NAME: &'static str = "envoy.service.status.v3.ClientStatusDiscoveryService";

    /// The service over these streams.
    pub fn service(registry: Arc<Registry>) -> ClientStatusDiscoveryServiceServer<Self> {
        ClientStatusDiscoveryServiceServer::new(Self { registry })
    }

    fn answer(&self, request: &ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let now = now();
        let mut config = Vec::new();
        for stream in self.registry.streams() {
            if matches(&request.node_matchers, &stream.node)? {
                config.push(client(&stream, now, !request.exclude_resource_contents));
            }
        }
        Ok(ClientStatusResponse { config })
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
        let answers = request
            .into_inner()
            .map(move |request| me.answer(&request?));
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        self.answer(request.get_ref()).map(Response::new)
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

fn client(stream: &LiveStream, now: Now, contents: bool) -> ClientConfig {
    let state = stream.state.lock();
    let mut generic_xds_configs = Vec::new();
    for kind in ResourceType::ALL {
        let accepted = state.session.of(kind).accepted_at;
        let accepted = accepted.map(|at| now.wall_at(at));
        let resources = status::resources(&state.session, kind).into_iter();
        generic_xds_configs.extend(resources.map(|one| resource(one, accepted, now, contents)));
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
    contents: bool,
) -> GenericXdsConfig {
    let (config_status, client_status) = match one.progress {
        Progress::Acked => (ConfigStatus::Synced, ClientResourceStatus::Acked),
        Progress::Sent => (ConfigStatus::Stale, ClientResourceStatus::Requested),
        Progress::Due => (ConfigStatus::NotSent, ClientResourceStatus::Requested),
        Progress::Refused => (ConfigStatus::Error, ClientResourceStatus::Nacked),
        Progress::Absent => (ConfigStatus::Synced, ClientResourceStatus::DoesNotExist),
    };
    let refused_at = one.refusal.as_ref().map(|refusal| now.wall_at(refusal.at));
    let content = one.wanted.as_ref().filter(|_| contents);
    let any = content.map(|resource| redact::any(resource));
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
