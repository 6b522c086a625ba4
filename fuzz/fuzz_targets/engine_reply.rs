//! The target `engine_reply`, for `cargo fuzz run --features libfuzzer engine_reply`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("engine_reply", data));
