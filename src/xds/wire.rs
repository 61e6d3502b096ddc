//! The requests of xDS, decoded only as far as they are used.
//!
//! An Envoy lists more than five hundred extensions in the first message of a stream. The generated types would build
//! objects for all of them; these skip them, so that thousands of proxies can reconnect at once.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::Struct;
use envoy_types::pb::google::protobuf::value::Kind;

use crate::xds::source::{EnvoyNode, EnvoyVersion};

/// The used part of `envoy.service.discovery.v3.DiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SotwRequest {
    /// The last version that the client accepted.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Who the client is; needed in the first message only.
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    /// All names that the client subscribes to.
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    /// The type that the request is about.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// The response that this one answers.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// Why the client refused that response.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<ErrorDetail>,
}

/// The used part of `envoy.service.discovery.v3.DeltaDiscoveryRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeltaRequest {
    /// Who the client is; needed in the first message only.
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// The type that the request is about.
    #[prost(string, tag = "2")]
    pub type_url: String,
    /// Names to subscribe to.
    #[prost(string, repeated, tag = "3")]
    pub resource_names_subscribe: Vec<String>,
    /// Names to unsubscribe from.
    #[prost(string, repeated, tag = "4")]
    pub resource_names_unsubscribe: Vec<String>,
    /// What the client still has from an earlier stream.
    #[prost(btree_map = "string, string", tag = "5")]
    pub initial_resource_versions: BTreeMap<String, String>,
    /// The response that this one answers.
    #[prost(string, tag = "6")]
    pub response_nonce: String,
    /// Why the client refused that response.
    #[prost(message, optional, tag = "7")]
    pub error_detail: Option<ErrorDetail>,
}

/// The used part of `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ErrorDetail {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The reason in words.
    #[prost(string, tag = "2")]
    pub message: String,
}

/// The used part of `envoy.config.core.v3.Node`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Node {
    /// The proxy's service id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Only for statistics.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Free fields; `node_name` is used.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
    /// `envoy` for Envoy.
    #[prost(string, tag = "6")]
    pub user_agent_name: String,
    /// The version as numbers.
    #[prost(message, optional, tag = "8")]
    pub user_agent_build_version: Option<BuildVersion>,
}

/// The used part of `envoy.config.core.v3.BuildVersion`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct BuildVersion {
    /// The version.
    #[prost(message, optional, tag = "1")]
    pub version: Option<SemanticVersion>,
}

/// `envoy.type.v3.SemanticVersion`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SemanticVersion {
    /// 1 in 1.40.0.
    #[prost(uint32, tag = "1")]
    pub major_number: u32,
    /// 40 in 1.40.0.
    #[prost(uint32, tag = "2")]
    pub minor_number: u32,
    /// 0 in 1.40.0.
    #[prost(uint32, tag = "3")]
    pub patch: u32,
}

impl Node {
    fn text(&self, key: &str) -> Option<String> {
        let value = self.metadata.as_ref()?.fields.get(key)?;
        match &value.kind {
            Some(Kind::StringValue(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        }
    }

    fn version(&self) -> Option<EnvoyVersion> {
        if self.user_agent_name != "envoy" {
            return None;
        }
        let version = self.user_agent_build_version?.version?;
        Some(EnvoyVersion {
            major: version.major_number,
            minor: version.minor_number,
            patch: version.patch,
        })
    }
}

impl From<&Node> for EnvoyNode {
    fn from(node: &Node) -> Self {
        Self {
            id: node.id.clone(),
            node_name: node.text("node_name"),
            cluster: node.cluster.clone(),
            version: node.version(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use envoy_types::pb::envoy::config::core::v3 as core;
    use envoy_types::pb::envoy::service::discovery::v3 as discovery;
    use envoy_types::pb::envoy::r#type::v3 as kinds;
    use envoy_types::pb::google::protobuf::Value;
    use envoy_types::pb::google::rpc::Status;
    use prost::Message;

    use super::*;

    fn full_node() -> core::Node {
        let name = Value {
            kind: Some(Kind::StringValue("host-1".to_owned())),
        };
        let version = kinds::SemanticVersion {
            major_number: 1,
            minor_number: 40,
            patch: 2,
        };
        core::Node {
            id: "gw".to_owned(),
            cluster: "mesh-gateway".to_owned(),
            metadata: Some(Struct {
                fields: HashMap::from([("node_name".to_owned(), name)]),
            }),
            user_agent_name: "envoy".to_owned(),
            user_agent_version_type: Some(core::node::UserAgentVersionType::UserAgentBuildVersion(
                core::BuildVersion {
                    version: Some(version),
                    metadata: None,
                },
            )),
            extensions: vec![core::Extension::default(); 500],
            ..Default::default()
        }
    }

    #[test]
    fn both_requests_read_what_the_full_types_write() {
        let error = Status {
            code: 3,
            message: "no".to_owned(),
            details: Vec::new(),
        };
        let sotw = discovery::DiscoveryRequest {
            version_info: "1".to_owned(),
            node: Some(full_node()),
            resource_names: vec!["a".to_owned()],
            type_url: "t".to_owned(),
            response_nonce: "2".to_owned(),
            error_detail: Some(error.clone()),
            ..Default::default()
        };
        let got = SotwRequest::decode(sotw.encode_to_vec().as_slice()).unwrap();
        assert_eq!(got.resource_names, ["a"]);
        assert_eq!((&*got.version_info, &*got.type_url), ("1", "t"));
        assert_eq!(got.error_detail.unwrap().message, "no");
        let delta = discovery::DeltaDiscoveryRequest {
            node: Some(full_node()),
            type_url: "t".to_owned(),
            resource_names_subscribe: vec!["a".to_owned()],
            resource_names_unsubscribe: vec!["b".to_owned()],
            initial_resource_versions: HashMap::from([("c".to_owned(), "v".to_owned())]),
            response_nonce: "2".to_owned(),
            error_detail: Some(error),
            ..Default::default()
        };
        let got = DeltaRequest::decode(delta.encode_to_vec().as_slice()).unwrap();
        assert_eq!(got.resource_names_subscribe, ["a"]);
        assert_eq!(got.resource_names_unsubscribe, ["b"]);
        assert_eq!(got.initial_resource_versions["c"], "v");
        assert_eq!(got.error_detail.unwrap().message, "no");
        let node = EnvoyNode::from(got.node.as_ref().unwrap());
        assert_eq!(node.id, "gw");
        assert_eq!(node.node_name.as_deref(), Some("host-1"));
        assert_eq!(node.version.unwrap().to_string(), "1.40.2");
    }
}
