//! The target `gssapi_layer`, for `cargo fuzz run --features libfuzzer gssapi_layer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("gssapi_layer", data));
