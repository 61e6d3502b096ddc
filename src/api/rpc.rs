//! The RPC edge: methods by name to verbs.
//!
//! Requests and replies are the structs of [`crate::model::query`] in Go's msgpack. Config entries travel as blobs of their
//! own ([`blob`]). A service that is not in the table, or a method that its service does not have, is answered with the
//! words of Go's net/rpc.

mod blob;
mod config_entry;
mod coordinate;
mod kvs;
mod rows;

use crate::api::Api;
use crate::api::error::Error;
use crate::api::forward;
use crate::api::operator::PeerName;
use crate::codec;
use crate::model::query::{
    ChecksInStateRequest, DatacenterIndexedCheckServiceNodes, DcSpecificRequest, DeregisterRequest,
    FederationStateQuery, FederationStateRequest, FederationStateResponse, IndexedCaRoots,
    IndexedCheckServiceNodes, IndexedFederationStates, IndexedHealthChecks, IndexedNodes,
    IndexedServices, KeyringRequest, NodeSpecificRequest, RaftRemovePeerRequest, RegisterRequest,
    ServiceDumpRequest, ServiceSpecificRequest,
};
use crate::model::{Datacenter, QueryMeta, Timestamp};
use crate::net::PeerIdentity;
use crate::rpc::{CallContext, Handler, RpcError};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;
use std::collections::BTreeSet;
use std::time::SystemTime;

/// Every method that is served, in name order.
pub const METHODS: &[&str] = &[
    "Catalog.Deregister",
    "Catalog.ListDatacenters",
    "Catalog.ListNodes",
    "Catalog.ListServices",
    "Catalog.NodeServiceList",
    "Catalog.NodeServices",
    "Catalog.Register",
    "Catalog.ServiceList",
    "Catalog.ServiceNodes",
    "ConfigEntry.Apply",
    "ConfigEntry.Delete",
    "ConfigEntry.Get",
    "ConfigEntry.List",
    "ConfigEntry.ListAll",
    "ConfigEntry.ResolveServiceConfig",
    "ConnectCA.Roots",
    "ConnectCA.Sign",
    "Consensus.Ask",
    "Coordinate.ListNodes",
    "Coordinate.Node",
    "Coordinate.Update",
    "FederationState.Apply",
    "FederationState.Get",
    "FederationState.List",
    "FederationState.ListMeshGateways",
    "Health.ChecksInState",
    "Health.NodeChecks",
    "Health.ServiceChecks",
    "Health.ServiceNodes",
    "Internal.KeyringOperation",
    "Internal.NodeDump",
    "Internal.NodeInfo",
    "Internal.ServiceDump",
    "KVS.Apply",
    "KVS.Get",
    "KVS.List",
    "KVS.ListKeys",
    "Operator.RaftGetConfiguration",
    "Operator.RaftRemovePeerByAddress",
    "Operator.RaftRemovePeerByID",
    "Status.Leader",
    "Status.Peers",
    "Status.Ping",
    "Status.RaftStats",
];

/// Go's `struct{}`.
#[derive(Serialize)]
struct Nothing {}

impl From<Error> for RpcError {
    fn from(error: Error) -> Self {
        Self::Failed(error.to_string())
    }
}

type Reply = Result<Bytes, RpcError>;

fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, RpcError> {
    Ok(codec::from_slice(body)?)
}

fn encode<T: Serialize + ?Sized>(reply: &T) -> Reply {
    let bytes = codec::to_vec(reply).map_err(|error| RpcError::failed(error.to_string()))?;
    Ok(bytes.into())
}

/// Answers a reading verb: decodes the request, runs it, and puts the rows and the facts into the reply.
macro_rules! read {
    ($api:expr, $body:expr, $request:ty, $verb:ident, $reply:ident { $field:ident }) => {{
        let request: $request = decode($body)?;
        let (meta, rows) = $api.$verb(&request).await?.into_parts();
        let mut reply = $reply {
            $field: rows.into(),
            ..$reply::default()
        };
        reply.set_meta(meta);
        encode(&reply)
    }};
}
use read;

impl Handler for Api {
    async fn call(&self, ctx: CallContext, method: &str, body: Bytes) -> Reply {
        let (service, _) = method
            .split_once('.')
            .ok_or_else(|| RpcError::IllFormed(method.to_owned()))?;
        let known = |known: &&str| {
            known
                .strip_prefix(service)
                .is_some_and(|r| r.starts_with('.'))
        };
        if !METHODS.iter().any(known) {
            return Err(RpcError::UnknownService(method.to_owned()));
        }
        match service {
            "Catalog" => self.rpc_catalog(method, &body).await,
            "ConfigEntry" => self.rpc_config_entry(method, &body).await,
            "Consensus" => self.rpc_consensus(&ctx, method, &body).await,
            "Coordinate" => self.rpc_coordinate(method, &body).await,
            "FederationState" => self.rpc_federation_state(&ctx, method, &body).await,
            "Health" => self.rpc_health(method, &body).await,
            "KVS" => self.rpc_kvs(method, &body).await,
            "Operator" => self.rpc_operator(method, &body).await,
            "Status" => self.rpc_status(method),
            _ => self.rpc_other(method, &body).await,
        }
    }
}

/// Whether a body is a request to write or delete a config entry. For the fuzz entry alone.
#[cfg(feature = "testing")]
pub(crate) fn reads_config_request(body: &[u8]) -> bool {
    blob::request(body).is_ok()
}

fn unknown(method: &str) -> Reply {
    Err(RpcError::UnknownMethod(method.to_owned()))
}

impl Api {
    fn rpc_status(&self, method: &str) -> Reply {
        match method {
            "Status.Ping" => encode(&Nothing {}),
            "Status.Leader" => encode(&self.leader()),
            "Status.Peers" => encode(&self.peers()),
            "Status.RaftStats" => encode(&rows::RaftStats::of(&self.consensus().stats())),
            _ => unknown(method),
        }
    }

    /// What a server of this datacenter that does not lead asks the leader.
    async fn rpc_consensus(&self, ctx: &CallContext, method: &str, body: &[u8]) -> Reply {
        if method != forward::METHOD {
            return unknown(method);
        }
        if !ctx.is_local_server {
            return Err(RpcError::failed(
                "Permission denied: this method needs a certificate with the name server.<datacenter>.<domain> of this datacenter",
            ));
        }
        let question: ByteBuf = decode(body)?;
        let answered = self.consensus().answer(&question).await;
        let answer = answered.map_err(|error| RpcError::failed(error.to_string()))?;
        encode(serde_bytes::Bytes::new(&answer))
    }

    async fn rpc_operator(&self, method: &str, body: &[u8]) -> Reply {
        if method == "Operator.RaftGetConfiguration" {
            let request: DcSpecificRequest = decode(body)?;
            return encode(&self.raft_configuration(&request).await?);
        }
        let request: RaftRemovePeerRequest = decode(body)?;
        let name = match method {
            "Operator.RaftRemovePeerByAddress" => PeerName::Address(request.address),
            "Operator.RaftRemovePeerByID" => PeerName::Id(request.id),
            _ => return unknown(method),
        };
        self.raft_remove_peer(&request.datacenter, &name).await?;
        encode(&Nothing {})
    }

    async fn rpc_catalog(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "Catalog.Register" => {
                self.register(decode::<RegisterRequest>(body)?).await?;
                encode(&Nothing {})
            }
            "Catalog.Deregister" => {
                self.deregister(decode::<DeregisterRequest>(body)?).await?;
                encode(&Nothing {})
            }
            "Catalog.NodeServiceList" => {
                let request: NodeSpecificRequest = decode(body)?;
                let (meta, row) = self.node_services(&request).await?.into_parts();
                encode(&rows::IndexedNodeServiceList::of(row, meta))
            }
            "Catalog.ServiceList" => {
                let request: DcSpecificRequest = decode(body)?;
                let (meta, services) = self.services(&request).await?.into_parts();
                encode(&rows::IndexedServiceList::of(services.into_keys(), meta))
            }
            "Catalog.ListDatacenters" => encode(&self.datacenters()),
            "Catalog.ListNodes" => {
                read!(self, body, DcSpecificRequest, nodes, IndexedNodes { nodes })
            }
            "Catalog.ListServices" => {
                read!(
                    self,
                    body,
                    DcSpecificRequest,
                    services,
                    IndexedServices { services }
                )
            }
            "Catalog.ServiceNodes" => {
                let request: ServiceSpecificRequest = decode(body)?;
                let (meta, rows) = self.service_nodes(&request).await?.into_parts();
                encode(&rows::IndexedServiceNodes::of(&rows, meta))
            }
            "Catalog.NodeServices" => {
                let request: NodeSpecificRequest = decode(body)?;
                let (meta, row) = self.node_services(&request).await?.into_parts();
                encode(&rows::IndexedNodeServices::of(row, meta))
            }
            _ => unknown(method),
        }
    }

    async fn rpc_health(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "Health.ServiceNodes" => read!(
                self,
                body,
                ServiceSpecificRequest,
                health_service,
                IndexedCheckServiceNodes { nodes }
            ),
            "Health.NodeChecks" => read!(
                self,
                body,
                NodeSpecificRequest,
                node_checks,
                IndexedHealthChecks { health_checks }
            ),
            "Health.ServiceChecks" => read!(
                self,
                body,
                ServiceSpecificRequest,
                service_checks,
                IndexedHealthChecks { health_checks }
            ),
            "Health.ChecksInState" => read!(
                self,
                body,
                ChecksInStateRequest,
                checks_in_state,
                IndexedHealthChecks { health_checks }
            ),
            _ => unknown(method),
        }
    }

    async fn rpc_federation_state(&self, ctx: &CallContext, method: &str, body: &[u8]) -> Reply {
        match method {
            "FederationState.Apply" => {
                let request: FederationStateRequest = decode(body)?;
                let here = &self.settings().datacenter;
                if let (Some(peer), Some(state)) = (&ctx.peer_identity, &request.state) {
                    may_write(peer, &state.datacenter, here, &self.settings().domain)?;
                }
                encode(&self.apply_federation_state(request, now()).await?)
            }
            "FederationState.Get" => read!(
                self,
                body,
                FederationStateQuery,
                federation_state,
                FederationStateResponse { state }
            ),
            "FederationState.List" => read!(
                self,
                body,
                DcSpecificRequest,
                federation_states,
                IndexedFederationStates { states }
            ),
            "FederationState.ListMeshGateways" => read!(
                self,
                body,
                DcSpecificRequest,
                federation_mesh_gateways,
                DatacenterIndexedCheckServiceNodes { datacenter_nodes }
            ),
            _ => unknown(method),
        }
    }

    async fn rpc_other(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "Internal.NodeInfo" => {
                let request: NodeSpecificRequest = decode(body)?;
                let (meta, rows) = self.node_info(&request).await?.into_parts();
                encode(&rows::IndexedNodeDump::of(rows, meta))
            }
            "Internal.NodeDump" => {
                let request: DcSpecificRequest = decode(body)?;
                let (meta, rows) = self.node_dump(&request).await?.into_parts();
                encode(&rows::IndexedNodeDump::of(rows, meta))
            }
            "Internal.ServiceDump" => read!(
                self,
                body,
                ServiceDumpRequest,
                service_dump,
                IndexedCheckServiceNodes { nodes }
            ),
            "Internal.KeyringOperation" => {
                encode(&self.keyring(&decode::<KeyringRequest>(body)?).await?)
            }
            "ConnectCA.Sign" => encode(&self.sign_leaf(decode(body)?).await?),
            "ConnectCA.Roots" => {
                let request: DcSpecificRequest = decode(body)?;
                let (meta, roots) = self.ca_roots(&request).await?.into_parts();
                // In Consul the list replaces the facts that were there before it, all but the index.
                let meta = QueryMeta {
                    index: meta.index,
                    ..QueryMeta::default()
                };
                let mut reply = IndexedCaRoots {
                    active_root_id: roots.active,
                    trust_domain: roots.trust_domain,
                    roots: roots.roots.to_vec(),
                    ..IndexedCaRoots::default()
                };
                reply.set_meta(meta);
                encode(&reply)
            }
            _ => unknown(method),
        }
    }
}

/// A server of another datacenter may write that datacenter's record only; one of our own passes on what was checked where
/// it came in. Callers without a server certificate are a matter of access rules (C033).
fn may_write(
    peer: &PeerIdentity,
    record: &Datacenter,
    here: &Datacenter,
    domain: &str,
) -> Result<(), RpcError> {
    let served: BTreeSet<&str> = peer.server_datacenters(domain).collect();
    let allowed = served.is_empty()
        || served.contains(here.as_str())
        || served.contains(record.as_str().to_lowercase().as_str());
    if allowed {
        return Ok(());
    }
    let served: Vec<&str> = served.into_iter().collect();
    Err(RpcError::failed(format!(
        "Permission denied: a server of datacenter {} may not write the federation state of {record}",
        served.join(", "),
    )))
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_writes_its_own_datacenters_record_only() {
        let server = |dc: &str| {
            PeerIdentity::new([
                format!("s1.server.{dc}.consul"),
                format!("server.{dc}.consul"),
            ])
        };
        let ask = |peer: &PeerIdentity, record: &str| {
            may_write(peer, &record.into(), &"dc1".into(), "consul").is_ok()
        };
        assert!(ask(&server("dc2"), "dc2") && ask(&server("dc2"), "DC2"));
        assert!(!ask(&server("dc3"), "dc2"));
        assert!(ask(&server("dc1"), "dc2"));
        assert!(ask(&PeerIdentity::new(["client.dc3.consul"]), "dc2"));
    }
}
