//! The target `bearer`, for `cargo fuzz run --features libfuzzer bearer`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("bearer", data));
