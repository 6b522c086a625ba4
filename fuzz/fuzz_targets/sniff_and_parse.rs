//! The target `sniff_and_parse`, for `cargo fuzz run --features libfuzzer sniff_and_parse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("sniff_and_parse", data));
