//! What Raft reads from disk and from peers.

use crate::consensus::decode_record_for_fuzzing;

/// A Raft log record with its commands.
pub fn fuzz_raft_record(data: &[u8]) {
    let _ = decode_record_for_fuzzing(data);
}
