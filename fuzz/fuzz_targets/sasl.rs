//! The target `sasl`, for `cargo fuzz run --features libfuzzer sasl`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("sasl", data));
