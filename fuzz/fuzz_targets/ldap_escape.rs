//! The target `ldap_escape`, for `cargo fuzz run --features libfuzzer ldap_escape`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("ldap_escape", data));
