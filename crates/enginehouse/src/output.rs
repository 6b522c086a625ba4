//! Output for users, on standard output and standard error.
//!
//! A reader that has closed its end (`enginehouse … | head`) is ignored: the program may have engines to manage and must not
//! end, as it would with `println!` and `eprintln!`, which panic.

use std::io::Write as _;

use model::cause::chain;

/// Writes one line to standard output; ignores a closed pipe.
pub fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Writes one line to standard error; ignores a closed pipe.
pub fn print_error(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// The error with its causes, each once: many errors have the text of their cause in their own.
pub fn with_causes(error: &anyhow::Error) -> String {
    let error: &(dyn std::error::Error + 'static) = error.as_ref();
    chain(error).to_string()
}

/// Makes external text safe for a terminal: control characters become blanks, except line breaks.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_printed_once() {
        let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = hs2::ClientError::Connect { address: "h:1".to_owned(), source };
        let error = anyhow::Error::new(error).context("could not open a session");
        assert_eq!(with_causes(&error), "could not open a session: could not connect to h:1: connection refused");
    }

    #[test]
    fn no_control_character_but_line_breaks_reaches_a_terminal() {
        assert_eq!(printable("a\u{1b}]0;x\u{7}b\r\n\tc\u{9b}2J\u{7f}"), "a ]0;x b \n c 2J ");
    }
}
