//! Reading the beginning of a statement without tokenising it: white space, comments, words.
//!
//! Everything works on borrowed text and allocates nothing. White space is Unicode's, and a byte order mark at the
//! very beginning counts as white space. Comments are Spark's: `--` to the end of the line, where a backslash before
//! the line feed continues the comment, and nested `/* */`; what is not closed reaches to the end of the text.

/// A position in a text, moved forward word by word. A copy is a look-ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// Whether the character can be part of a word; the one after a keyword cannot.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

impl<'a> Scanner<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The position in bytes from the beginning of the text; always a character boundary.
    pub(crate) const fn offset(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// What follows white space and comments.
    pub(crate) fn remaining(&mut self) -> &'a str {
        self.skip_trivia();
        self.rest()
    }

    /// The next character after white space and comments.
    pub(crate) fn peek(&mut self) -> Option<char> {
        self.remaining().chars().next()
    }

    /// Whether nothing but white space and comments is left.
    pub(crate) fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    fn skip_trivia(&mut self) {
        loop {
            let rest = self.rest();
            self.at += if rest.starts_with("--") {
                line_comment_bytes(rest)
            } else if rest.starts_with("/*") {
                block_comment_bytes(rest)
            } else {
                match rest.chars().next() {
                    Some(c) if c.is_whitespace() => c.len_utf8(),
                    Some(c @ '\u{feff}') if self.at == 0 => c.len_utf8(),
                    _ => return,
                }
            };
        }
    }

    /// Steps over the character if it comes next after white space and comments.
    pub(crate) fn symbol(&mut self, symbol: char) -> bool {
        let found = self.peek() == Some(symbol);
        if found {
            self.at += symbol.len_utf8();
        }
        found
    }

    /// Steps over the keyword, in any case, if it comes next as a word of its own.
    pub(crate) fn keyword(&mut self, keyword: &str) -> bool {
        let rest = self.remaining();
        let Some((word, after)) = rest.as_bytes().split_at_checked(keyword.len()) else { return false };
        // The words that are compared are ASCII, so an equal one ends at a character boundary.
        if !word.eq_ignore_ascii_case(keyword.as_bytes()) {
            return false;
        }
        let next = rest[rest.len() - after.len()..].chars().next();
        if next.is_some_and(|c| is_word_char(c) || c == '.') {
            return false;
        }
        self.at += keyword.len();
        true
    }

    /// Steps over the first of the keywords that comes next.
    pub(crate) fn any_keyword(&mut self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.keyword(keyword))
    }

    /// The next word; `None` if something else comes next.
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        let rest = self.remaining();
        let word = &rest[..rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())];
        self.at += word.len();
        if word.is_empty() { None } else { Some(word) }
    }

    /// Steps over a name: a bare one, which may hold `.` and `-` but no comment, or a quoted one.
    pub(crate) fn name(&mut self) -> bool {
        let rest = self.remaining();
        let bytes = if let Some(quote @ ('"' | '`' | '\'')) = rest.chars().next() {
            quoted_bytes(rest, quote)
        } else {
            let end = rest.find(|c| !is_word_char(c) && !matches!(c, '.' | '-')).unwrap_or(rest.len());
            Some(rest[..end].find("--").unwrap_or(end))
        };
        self.at += bytes.unwrap_or(0);
        bytes.is_some_and(|bytes| bytes > 0)
    }
}

/// The length of a quoted text with its quotes, a doubled quote being part of it; `None` if it is not closed.
fn quoted_bytes(rest: &str, quote: char) -> Option<usize> {
    let mut at = 1;
    loop {
        at += rest[at..].find(quote)? + 1;
        if !rest[at..].starts_with(quote) {
            return Some(at);
        }
        at += 1;
    }
}

fn line_comment_bytes(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 2;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if bytes.get(at + 1) == Some(&b'\n') => at += 2,
            b'\r' | b'\n' => return at,
            _ => at += 1,
        }
    }
    at
}

fn block_comment_bytes(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (2, 1);
    while depth > 0 {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (at, depth) = (at + 2, depth + 1),
            Some(b"*/") => (at, depth) = (at + 2, depth - 1),
            Some(_) => at += 1,
            None => return bytes.len(),
        }
    }
    at
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn white_space_and_comments_stand_for_nothing() {
        for text in [
            "x",
            " \t\r\n\u{b}\u{c}\u{a0}\u{3000}x",
            "\u{feff}x",
            "-- a\nx",
            "-- a\rx",
            "--\nx",
            "/* a */x",
            "/**/x",
            "/* a /* b */ c */ x",
            "/*/ */x",
            "-- /*\n/* -- */x",
            "-- a \\\n b\nx",
        ] {
            assert_eq!(Scanner::new(text).remaining(), "x", "{text:?}");
        }
    }

    #[test]
    fn what_is_not_closed_reaches_to_the_end() {
        for text in ["/* x", "/* /* */ x", "-- x", "/*", "/*/", "--", " ", "", "-- x \\\n y"] {
            assert!(Scanner::new(text).at_end(), "{text:?}");
        }
    }

    #[test]
    fn a_keyword_is_a_word_of_its_own() {
        assert!(Scanner::new("show").keyword("SHOW"));
        for text in ["SHOWS", "SHOW_", "SHOW1", "SHOWé", "SHOW.x", "SHOW$", "SHO", "ſHOW", "é", ""] {
            assert!(!Scanner::new(text).keyword("SHOW"), "{text:?}");
        }
    }

    #[test]
    fn names_are_bare_or_quoted() {
        for (text, rest) in [
            ("rp_1 'x'", " 'x'"),
            ("a.b-c 'x'", " 'x'"),
            ("a--b", "--b"),
            ("\"a b\"'x'", "'x'"),
            ("`a``b` y", " y"),
            ("'a''b'", ""),
        ] {
            let mut scanner = Scanner::new(text);
            assert!(scanner.name(), "{text}");
            assert_eq!(scanner.rest(), rest);
        }
        for text in ["", "(", "\"a", "`a``", "=x"] {
            assert!(!Scanner::new(text).name(), "{text}");
        }
    }
}
