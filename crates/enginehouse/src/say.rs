//! Lines for a person, on standard output and standard error.
//!
//! Whoever read them may be gone (`enginehouse … | head`): that ends the talking, never the program, which may have
//! engines to look after. (`println!` and `eprintln!` panic then.)

use std::io::Write as _;

/// Writes one line to standard output; a reader that is gone is no error.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error; a reader that is gone is no error.
pub fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
