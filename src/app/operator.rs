//! The operator API's answers, made from the replicated state and the live xDS streams.

use crate::model::CheckServiceNode;
use crate::model::CheckStatus;
use crate::model::FederationState;
use crate::model::Timestamp;
use crate::operator::Backend;
use crate::operator::Changes;
use crate::proto::crossway::v1 as wire;
use crate::store::Store;
use crate::store::Topic;
use crate::store::Watch;
use crate::xds::registry::Now;
use crate::xds::registry::Registry;
use std::sync::Arc;
use std::time::Instant;
use std::time::SystemTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What the operator API shows.
#[derive(Clone)]
pub(super) struct StateBackend {
    store: Store,
    registry: Arc<Registry>,
    stop: CancellationToken,
}

impl StateBackend {
    /// What `store` and `registry` hold; its watches end with `stop`, so that they hold up no shutdown.
    pub(super) fn new(store: Store, registry: Arc<Registry>, stop: CancellationToken) -> Self {
        Self {
            store,
            registry,
            stop,
        }
    }
}

impl Backend for StateBackend {
    type Changes = Either;

    fn federation_states(&self) -> Vec<wire::FederationState> {
        let states = self.store.latest().federation_states();
        states.iter().map(|state| federation_state(state)).collect()
    }

    #[expect(clippy::disallowed_methods, reason = "the shell reads the clocks")]
    fn proxies(&self) -> Vec<wire::Proxy> {
        self.registry.proxies(Now {
            instant: Instant::now(),
            wall: SystemTime::now(),
        })
    }

    fn changes(&self) -> Either {
        Either {
            states: self.store.watch([Topic::FederationStates]),
            proxies: self.registry.changes(),
            stop: self.stop.clone(),
        }
    }
}

/// Changes of either kind.
pub(super) struct Either {
    states: Watch,
    proxies: watch::Receiver<()>,
    stop: CancellationToken,
}

impl Changes for Either {
    async fn changed(&mut self) -> bool {
        tokio::select! {
            () = self.states.changed() => true,
            changed = self.proxies.changed() => changed.is_ok(),
            () = self.stop.cancelled() => false,
        }
    }
}

fn federation_state(state: &FederationState) -> wire::FederationState {
    wire::FederationState {
        datacenter: state.datacenter.to_string(),
        updated_at: timestamp(state.updated_at),
        mesh_gateways: state.mesh_gateways.iter().filter_map(gateway).collect(),
        create_index: state.create_index,
        modify_index: state.modify_index,
    }
}

fn timestamp(at: Timestamp) -> Option<prost_types::Timestamp> {
    (!at.is_zero()).then(|| prost_types::Timestamp {
        seconds: at.unix_seconds(),
        nanos: i32::try_from(at.subsec_nanos()).unwrap_or(0),
    })
}

fn gateway(instance: &CheckServiceNode) -> Option<wire::MeshGateway> {
    let (node, service) = (instance.node.as_ref()?, instance.service.as_ref()?);
    let plain = wire::Endpoint {
        address: if service.address.is_empty() {
            node.address.clone()
        } else {
            service.address.clone()
        },
        port: service.port.into(),
    };
    let wan = service.tagged_addresses.get("wan");
    let wan = wan.map(|wan| wire::Endpoint {
        address: wan.address.clone(),
        port: if wan.port == 0 {
            service.port
        } else {
            wan.port
        }
        .into(),
    });
    let worst = instance.checks.iter().map(|check| check.status).max();
    Some(wire::MeshGateway {
        node_name: node.node.to_string(),
        service_id: service.id.to_string(),
        service_name: service.service.to_string(),
        wan: wan.or_else(|| Some(plain.clone())),
        lan: Some(plain),
        wan_federation: service.exposes_servers(),
        health: worst.unwrap_or(CheckStatus::Passing).to_string(),
    })
}
