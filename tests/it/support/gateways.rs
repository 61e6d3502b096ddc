//! States made from JSON, and what gateways get in them, as JSON.
//!
//! A fixture holds `Datacenter`, `Domain`, `ClusterID` (null: the Connect CA is not set up), `Gateway` (`Node`, `ID`), and
//! what is written, in order: `Register`, `Config`, `FederationStates`, all in the form of Consul's RPC messages.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use crossway::model::query::RegisterRequest;
use crossway::model::{CaConfiguration, CaRoot, ConfigEntry, Datacenter, FederationState};
use crossway::proto::ENVOY_DESCRIPTORS;
use crossway::proxycfg::Place;
use crossway::store::{CaCommand, Command, ConfigOp, FederationCommand, State};
use crossway::xds::resources::{ProxyResources, Resource, ResourceSet, ResourceType};
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use std::sync::LazyLock;

static POOL: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(ENVOY_DESCRIPTORS).unwrap());

/// The commands that bring about what a fixture describes.
pub(crate) fn commands(fixture: &Value) -> Vec<Command> {
    let list = |key: &str| fixture[key].as_array().cloned().unwrap_or_default();
    let register = list("Register").into_iter().map(|value| {
        let request: RegisterRequest = serde_json::from_value(value).unwrap();
        Command::Register(Box::new(request))
    });
    let config = list("Config").into_iter().map(|value| {
        let entry: ConfigEntry = serde_json::from_value(value).unwrap();
        Command::Config(ConfigOp::Upsert(entry))
    });
    let federation = list("FederationStates").into_iter().map(|value| {
        let state: FederationState = serde_json::from_value(value).unwrap();
        Command::Federation(FederationCommand::Upsert(state))
    });
    let ca = fixture["ClusterID"].as_str().map(set_up_ca);
    register.chain(config).chain(federation).chain(ca).collect()
}

/// Makes `<cluster id>.consul` the trust domain.
pub(crate) fn set_up_ca(cluster_id: &str) -> Command {
    Command::Ca(CaCommand::SetRootsAndConfig {
        cas: 0,
        roots: vec![CaRoot {
            id: "aa:bb".to_owned(),
            active: true,
            ..CaRoot::default()
        }],
        config_cas: 0,
        config: CaConfiguration {
            cluster_id: cluster_id.to_owned(),
            ..CaConfiguration::default()
        },
    })
}

/// The state after these commands.
#[track_caller]
pub(crate) fn apply(commands: &[Command]) -> State {
    let mut state = State::default();
    for command in commands {
        let index = state.last_index() + 1;
        let applied = state.apply(index, command);
        assert!(applied.result.is_ok(), "{:?}: {command:?}", applied.result);
    }
    state
}

pub(crate) fn place(fixture: &Value) -> Place {
    let datacenter = Datacenter::from(fixture["Datacenter"].as_str().unwrap());
    Place::new(&datacenter, fixture["Domain"].as_str().unwrap())
}

/// All resources with the fields' proto names.
pub(crate) fn to_json(resources: &ProxyResources) -> Value {
    let all = |set: &ResourceSet| set.iter().map(|r| resource(r)).collect::<Vec<_>>();
    json!({
        "clusters": all(&resources.clusters),
        "endpoints": all(&resources.endpoints),
        "listeners": all(&resources.listeners),
    })
}

fn resource(resource: &Resource) -> Value {
    let name = match resource.kind() {
        ResourceType::Cluster => "envoy.config.cluster.v3.Cluster",
        ResourceType::Endpoint => "envoy.config.endpoint.v3.ClusterLoadAssignment",
        ResourceType::Listener => "envoy.config.listener.v3.Listener",
        other => panic!("no gateway has resources of type {other:?}"),
    };
    let descriptor = POOL.get_message_by_name(name).unwrap();
    let message = DynamicMessage::decode(descriptor, resource.body()).unwrap();
    let options = SerializeOptions::new().use_proto_field_name(true);
    let json = serde_json::value::Serializer;
    message.serialize_with_options(json, &options).unwrap()
}
