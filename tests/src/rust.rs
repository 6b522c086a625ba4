//! A lexer for Rust sources: identifiers, comments, string literals and punctuation, each with its line.
//!
//! It accepts every file that compiles. What it does not need (numbers, characters, lifetimes) is skipped.

/// One token of a source file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub kind: TokenKind,
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Keywords too.
    Identifier,
    /// With its slashes.
    Comment,
    /// Between its quotes, with escapes as they are written.
    Literal,
    /// One character.
    Punctuation,
}

/// All tokens of a source, in order.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: source, line: 1, tokens: Vec::new() };
    while lexer.step() {}
    lexer.tokens
}

/// The words of a name in `snake_case` or `CamelCase`, in lower case.
pub fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = '_';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && !previous.is_uppercase()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    /// Reads one token or white space; `false` at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.push(TokenKind::Comment, 0, end, end);
        } else if self.rest.starts_with("/*") {
            let end = block_comment(self.rest);
            self.push(TokenKind::Comment, 0, end, end);
        } else if let Some((open, hashes)) = string_start(self.rest) {
            let (close, end) = string_end(self.rest, open, hashes);
            self.push(TokenKind::Literal, open, close, end);
        } else if first == '\'' || self.rest.starts_with("b'") {
            self.take(character_or_lifetime(self.rest));
        } else if first.is_alphanumeric() || first == '_' {
            let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
            if first.is_ascii_digit() {
                self.take(end);
            } else {
                self.push(TokenKind::Identifier, 0, end, end);
            }
        } else if first.is_whitespace() {
            self.take(first.len_utf8());
        } else {
            let end = first.len_utf8();
            self.push(TokenKind::Punctuation, 0, end, end);
        }
        true
    }

    fn push(&mut self, kind: TokenKind, from: usize, to: usize, end: usize) {
        self.tokens.push(Token { kind, text: self.rest[from..to].to_owned(), line: self.line });
        self.take(end);
    }

    fn take(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
    }
}

/// The length of the comment that begins here; comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// If a string begins here: where its text begins, and the number of its hashes; `None` for those of a string with escapes.
fn string_start(text: &str) -> Option<(usize, Option<usize>)> {
    let prefix = ["br", "cr", "b", "c", "r", ""].iter().find(|prefix| {
        text.strip_prefix(**prefix)
            .is_some_and(|rest| rest.starts_with('"') || (prefix.ends_with('r') && rest.starts_with('#')))
    })?;
    let rest = &text[prefix.len()..];
    if !prefix.ends_with('r') {
        return Some((prefix.len() + 1, None));
    }
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some((prefix.len() + hashes + 1, Some(hashes)))
}

/// Where the text of the string ends, and where its literal does.
fn string_end(text: &str, open: usize, hashes: Option<usize>) -> (usize, usize) {
    if let Some(hashes) = hashes {
        let quote = format!("\"{}", "#".repeat(hashes));
        let close = text[open..].find(&quote).map_or(text.len(), |at| open + at);
        return (close, close + quote.len());
    }
    let mut escaped = false;
    for (at, c) in text[open..].char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == '"' {
            return (open + at, open + at + 1);
        }
    }
    (text.len(), text.len())
}

fn character_or_lifetime(text: &str) -> usize {
    let quote = text.find('\'').unwrap_or(0) + 1;
    let mut inner = text[quote..].chars();
    match inner.next() {
        Some('\\') => {
            let escaped = quote + 1 + inner.next().map_or(0, char::len_utf8);
            text[escaped..].find('\'').map_or(text.len(), |at| escaped + at + 1)
        }
        Some(c) if inner.next() == Some('\'') => quote + c.len_utf8() + 1,
        // A lifetime; its name is skipped with it.
        _ => quote + text[quote..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len() - quote),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(source: &str, kind: TokenKind) -> Vec<String> {
        tokens(source).into_iter().filter(|token| token.kind == kind).map(|token| token.text).collect()
    }

    #[test]
    fn names_comments_and_literals_are_distinguished() {
        let source =
            "fn a<'b>(c: &'b str) { // \"d\"\n let e = 'f'; /* g /* h */ i */ \"j \\\" k\"; r#\"l\" m\"#; b'\\''; n }";
        assert_eq!(of_kind(source, TokenKind::Identifier), ["fn", "a", "c", "str", "let", "e", "n"]);
        assert_eq!(of_kind(source, TokenKind::Comment), ["// \"d\"", "/* g /* h */ i */"]);
        assert_eq!(of_kind(source, TokenKind::Literal), ["j \\\" k", "l\" m"]);
        assert_eq!(tokens("a\n\"b\nc\"\nd").iter().map(|token| token.line).collect::<Vec<_>>(), [1, 2, 4]);
    }

    #[test]
    fn a_name_is_split_into_its_words() {
        assert_eq!(words_of_name("who_IsTold"), ["who", "is", "told"]);
        assert_eq!(words_of_name("SAID_EVERY"), ["said", "every"]);
        assert_eq!(words_of_name("HttpURL2"), ["http", "url2"]);
    }
}
