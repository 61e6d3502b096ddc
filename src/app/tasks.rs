//! Small tasks that connect parts which do not know each other.

use crate::model::ServiceKind;
use crate::probe::ProxyEvent;
use crate::rpc::Limits;
use crate::store::State;
use crate::store::Store;
use crate::store::Topic;
use crate::xds::registry::StreamEvent;
use arc_swap::ArcSwap;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Runs `task` until `stop`.
pub(super) async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        () = task => {}
        () = stop.cancelled() => {}
    }
}

/// Tells the prober of streams that open and end.
pub(super) async fn forward_proxy_events(
    mut streams: broadcast::Receiver<StreamEvent>,
    events: broadcast::Sender<ProxyEvent>,
) {
    loop {
        match streams.recv().await {
            // Without a leader's prober nobody listens.
            Ok(StreamEvent { proxy, opened }) => drop(events.send(ProxyEvent {
                node: proxy.node,
                service_id: proxy.service,
                opened,
            })),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Keeps the addresses of the datacenter's own gateways in the limits of the RPC port: all other datacenters come through
/// them.
pub(super) async fn follow_gateways(
    store: Store,
    limits: Arc<ArcSwap<Limits>>,
    stop: CancellationToken,
) {
    let mut watch = store.watch([Topic::ServiceKind(ServiceKind::MeshGateway)]);
    loop {
        let gateways = gateway_addresses(&store.latest());
        if limits.load().gateways != gateways {
            limits.rcu(|old| Limits {
                gateways: gateways.clone(),
                ..(**old).clone()
            });
        }
        tokio::select! {
            () = watch.changed() => {}
            () = stop.cancelled() => return,
        }
    }
}

fn gateway_addresses(state: &State) -> HashSet<IpAddr> {
    let mut found = HashSet::new();
    for instance in state.kind_dump(&ServiceKind::MeshGateway) {
        let node = instance.node.iter().map(|n| n.address.as_str());
        let service = instance.service.iter().flat_map(|s| {
            let tagged = s.tagged_addresses.values().map(|a| a.address.as_str());
            tagged.chain([s.address.as_str()])
        });
        found.extend(
            node.chain(service)
                .filter_map(|text| text.parse::<IpAddr>().ok()),
        );
    }
    found
}
