//! The target `thrift_decode`, for `cargo fuzz run --features libfuzzer thrift_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("thrift_decode", data));
