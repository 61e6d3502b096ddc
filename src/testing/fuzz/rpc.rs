//! Bodies of RPC requests.

use crate::api::rpc::reads_config_request;
use crate::codec;
use crate::model::query::{
    ChecksInStateRequest, ConfigEntryQuery, DcSpecificRequest, DeregisterRequest,
    FederationStateQuery, FederationStateRequest, KeyListRequest, KeyRequest, KvsRequest,
    NodeSpecificRequest, RegisterRequest, ServiceDumpRequest, ServiceSpecificRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A body from a peer, read as the argument of every method. What could be read is written and read again the same.
///
/// # Panics
/// When it is not.
pub fn fuzz_rpc_request(data: &[u8]) {
    read::<DcSpecificRequest>(data);
    read::<ServiceSpecificRequest>(data);
    read::<NodeSpecificRequest>(data);
    read::<ChecksInStateRequest>(data);
    read::<ServiceDumpRequest>(data);
    read::<FederationStateQuery>(data);
    read::<FederationStateRequest>(data);
    read::<KeyRequest>(data);
    read::<KeyListRequest>(data);
    read::<KvsRequest>(data);
    read::<ConfigEntryQuery>(data);
    read::<RegisterRequest>(data);
    read::<DeregisterRequest>(data);
    reads_config_request(data);
}

fn read<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(request) = codec::from_slice::<T>(data) else {
        return;
    };
    let written = codec::to_vec(&request).unwrap_or_default();
    let again = codec::from_slice::<T>(&written).and_then(|request| codec::to_vec(&request));
    assert_eq!(again, Ok(written));
}
