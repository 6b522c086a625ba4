//! The target `configuration`, for `cargo fuzz run --features libfuzzer configuration`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("configuration", data));
