//! Entries of the key/value store.

use crate::model::ids::Index;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A key with its value. Field names are those of Consul's RPC messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct KvEntry {
    /// How often the key was locked.
    pub lock_index: u64,
    /// The whole key.
    pub key: Arc<str>,
    /// Opaque to the server.
    pub flags: u64,
    /// At most `kv_max_value_size` bytes.
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
    /// The session that holds the lock; empty when none.
    pub session: String,
    /// Raft index of the first write.
    pub create_index: Index,
    /// Raft index of the newest change.
    pub modify_index: Index,
}
