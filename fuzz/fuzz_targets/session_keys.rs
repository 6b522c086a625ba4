//! The target `session_keys`, for `cargo fuzz run --features libfuzzer session_keys`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("session_keys", data));
