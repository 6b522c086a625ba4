//! Output for users, on standard output and standard error.
//!
//! A reader that has closed its end (`enginehouse … | head`) is ignored: the program may have engines to manage and must not
//! end, as it would with `println!` and `eprintln!`, which panic.

use std::io::Write as _;

/// Writes one line to standard output; ignores a closed pipe.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error; ignores a closed pipe.
pub fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Makes external text safe for a terminal: control characters become blanks, except line breaks.
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
