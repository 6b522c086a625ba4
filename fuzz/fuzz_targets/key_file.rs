//! The target `key_file`, for `cargo fuzz run --features libfuzzer key_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("key_file", data));
