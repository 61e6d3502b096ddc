#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| crossway::testing::fuzz::xds::fuzz_xds_request(data));
