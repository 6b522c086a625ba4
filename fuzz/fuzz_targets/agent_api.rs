//! The target `agent_api`, for `cargo fuzz run --features libfuzzer agent_api`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("agent_api", data));
