//! The target `walker`, for `cargo fuzz run --features libfuzzer walker`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("walker", data));
