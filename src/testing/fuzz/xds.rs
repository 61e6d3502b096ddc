//! Entry for fuzzing the path of an xDS request: bytes of a stream, any cutting, any conversation.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use prost::Message;

use crate::xds::frame::Deframer;
use crate::xds::resources::{ProxyResources, Resource};
use crate::xds::session::{Protocol, Request, Session};
use crate::xds::wire::{DeltaRequest, SotwRequest};

/// Reads `data` as the bytes that a client sends: the first byte chooses the protocol and how the rest is cut.
pub fn fuzz_xds_request(data: &[u8]) {
    let Some((choice, stream)) = data.split_first() else {
        return;
    };
    let protocol = match choice & 1 {
        0 => Protocol::Delta,
        _ => Protocol::Sotw,
    };
    let mut session = Session::new(protocol, None);
    let resources = Arc::new(world());
    session.offer(&resources);
    let mut deframer = Deframer::new(64 * 1024);
    for chunk in stream.chunks(usize::from(choice >> 1) + 1) {
        deframer.push(Bytes::copy_from_slice(chunk));
        loop {
            match deframer.next_message() {
                Ok(Some(message)) => {
                    if !take(&mut session, protocol, message) {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    let _ = deframer.end();
}

fn take(session: &mut Session, protocol: Protocol, message: Bytes) -> bool {
    let request = match protocol {
        Protocol::Delta => DeltaRequest::decode(message).map(Request::Delta),
        Protocol::Sotw => SotwRequest::decode(message).map(Request::Sotw),
    };
    let Ok(request) = request else {
        return false;
    };
    #[expect(clippy::disallowed_methods, reason = "any time will do")]
    let now = Instant::now();
    session.on_request(now, request).is_ok()
}

fn world() -> ProxyResources {
    let cluster = |name: &str| {
        Resource::cluster(&Cluster {
            name: name.to_owned(),
            ..Default::default()
        })
    };
    let endpoints = |name: &str| {
        Resource::endpoints(&ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..Default::default()
        })
    };
    ProxyResources {
        clusters: ["a", "b"].map(cluster).into_iter().collect(),
        endpoints: ["a", "b"].map(endpoints).into_iter().collect(),
        ..Default::default()
    }
}
