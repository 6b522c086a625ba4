//! The target `http_request`, for `cargo fuzz run --features libfuzzer http_request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("http_request", data));
