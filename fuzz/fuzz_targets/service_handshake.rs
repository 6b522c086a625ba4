//! The target `service_handshake`, for `cargo fuzz run --features libfuzzer service_handshake`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("service_handshake", data));
