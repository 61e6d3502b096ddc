#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crossway::testing::fuzz::filter::fuzz_filter(data));
