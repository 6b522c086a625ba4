//! Core files: none is written, because it would have the keys of the role, and passwords of its clients.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Less than any core file has. Linux takes this value as the request to run no program of `core_pattern` either, which it
/// would with a limit of 0.
const NONE_BYTES: u64 = 1;

/// Forbids core files of this process and of those that it starts.
pub fn forbid() {
    // A lower limit that the process was started with stays.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(NONE_BYTES), maximum: Some(NONE_BYTES) });
}
