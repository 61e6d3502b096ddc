//! A Raft log record.
#![no_main]

use crossway::testing::fuzz::raft::fuzz_raft_record;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz_raft_record(data));
