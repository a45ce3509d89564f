#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ccm_fuzz::fuzz_bearer_tokens(data));
