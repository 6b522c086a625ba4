//! Lines for a person, on standard output and standard error.
//!
//! Whoever read them may be gone (`enginehouse … | head`): that ends the talking, never the program, which may have
//! engines to look after. (`println!` and `eprintln!` panic then.)

use std::io::Write as _;

/// Writes one line to standard output; a reader that is gone is no error.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error; a reader that is gone is no error.
pub fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Text of others as it may be shown on a terminal: control characters, which a terminal would obey, are blanks. Line
/// breaks stay.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_but_line_breaks_reaches_a_terminal() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}b\r\n\tc\u{9b}2J\u{7f}"), "a ]0;x b \n c 2J ");
    }
}
