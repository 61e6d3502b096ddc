#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crossway::testing::fuzz::agent::fuzz_agent_body(data));
