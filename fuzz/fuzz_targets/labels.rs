//! The target `labels`, for `cargo fuzz run --features libfuzzer labels`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("labels", data));
