//! The target `users_file`, for `cargo fuzz run --features libfuzzer users_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("users_file", data));
