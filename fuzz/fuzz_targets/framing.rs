//! The target `framing`, for `cargo fuzz run --features libfuzzer framing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("framing", data));
