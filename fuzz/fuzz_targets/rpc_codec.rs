#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crossway::testing::fuzz::fuzz_rpc_codec(data));
