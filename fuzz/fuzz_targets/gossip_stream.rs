#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crossway::testing::fuzz::gossip::fuzz_gossip_stream(data));
