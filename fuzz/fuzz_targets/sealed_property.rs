//! The target `sealed_property`, for `cargo fuzz run --features libfuzzer sealed_property`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("sealed_property", data));
