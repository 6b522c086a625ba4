//! The target `first_bytes`, for `cargo fuzz run --features libfuzzer first_bytes`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("first_bytes", data));
