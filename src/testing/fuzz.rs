//! Entry points for fuzzing: outside bytes in, no panic and no unbounded work out.
//!
//! `fuzz/fuzz_targets` runs each under cargo-fuzz; a property test beside each reader runs it on random input.

pub mod agent;
pub mod filter;
pub mod gossip;
pub mod http;
pub mod raft;
pub mod rpc;
pub mod rpc_front;
pub mod xds;

use crate::codec;
use crate::codec::Scanner;
use crate::codec::Value;
use crate::config;
use crate::config::host::Host;
use crate::model::catalog::CheckServiceNode;
use crate::model::federation_state::FederationState;
use crate::rpc::MAX_BODY;

/// A configuration text, HCL or JSON, through reading and all rules.
pub fn fuzz_config(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = config::check_text(text, &Host::default());
    }
}

/// A msgpack value from a peer: as any value, as a typed one, and as part of a stream.
pub fn fuzz_rpc_codec(data: &[u8]) {
    let scanned = Scanner::default().advance(data, MAX_BODY);
    let mut rest = data;
    if let Ok(value) = codec::take::<Value>(&mut rest) {
        assert_eq!(scanned, Ok(Some(data.len() - rest.len())));
        let written = codec::to_vec(&value).unwrap_or_default();
        let again = codec::from_slice::<Value>(&written).and_then(|value| codec::to_vec(&value));
        assert_eq!(again, Ok(written));
    }
    let _ = codec::from_slice::<CheckServiceNode>(data);
    let _ = codec::from_slice::<Vec<FederationState>>(data);
}
