//! The target `registration`, for `cargo fuzz run --features libfuzzer registration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("registration", data));
