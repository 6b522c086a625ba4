//! The target `cookie`, for `cargo fuzz run --features libfuzzer cookie`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("cookie", data));
