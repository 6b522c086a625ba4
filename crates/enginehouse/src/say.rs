//! Lines for a person, on standard output.
//!
//! Whoever read them may be gone (`enginehouse … | head`): that ends the talking, never the program, which may have
//! engines to look after.

use std::io::Write as _;

/// Writes one line; a reader that is gone is no error.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
