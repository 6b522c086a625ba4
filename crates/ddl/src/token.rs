//! The tokens of a control statement, from `sqlparser`, each with its position and source.
//!
//! Only the text after the head is tokenised. `sqlparser` gives each token's kind and unescaped value; the source
//! text is kept as well, so that `500m`, `1G` or `rp-1.a` can be read as one piece however the tokeniser splits them.

use model::error::{ErrorKind, UserError};
use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Location, Token as SqlToken, TokenWithSpan, Tokenizer};

use crate::error::{ParseError, Position};

/// The longest control statement, in bytes: the alteration's node holds it with the old object.
pub const MAX_STATEMENT_BYTES: usize = 256 << 10;

/// The kind of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A word without quotes: a keyword or a name.
    Word,
    QuotedName(String),
    Text(String),
    Number,
    Comma,
    Open,
    Close,
    Equals,
    Semicolon,
    /// `-` or `.`: parts of bare names and quantities.
    Joint,
    /// A character that the language does not use.
    Other,
    /// The end of the statement.
    End,
}

#[derive(Debug, Clone)]
pub(crate) struct Token<'a> {
    pub(crate) kind: TokenKind,
    /// The source text, including quotes.
    pub(crate) source: &'a str,
    pub(crate) position: Position,
}

impl Token<'_> {
    /// Where it ends, in bytes from the beginning of the text.
    pub(crate) const fn end(&self) -> usize {
        self.position.offset + self.source.len()
    }
}

/// The tokeniser's dialect: names in `"…"` or `` `…` ``, strings in `'…'` without backslash escapes, nested comments.
#[derive(Debug)]
struct ControlLanguage;

impl Dialect for ControlLanguage {
    fn is_identifier_start(&self, c: char) -> bool {
        c.is_alphabetic() || c == '_'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        c.is_alphanumeric() || c == '_'
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }
}

/// The tokens from the offset on, without white space and comments, ended by [`TokenKind::End`].
pub(crate) fn tokenize(text: &str, offset: usize) -> Result<Vec<Token<'_>>, ParseError> {
    let mut walk = Walk::new(text, offset);
    if text.len() > MAX_STATEMENT_BYTES {
        let error = UserError::new(ErrorKind::ProgramLimit, "statement too long")
            .detail(format!("It has {} bytes; the limit is {MAX_STATEMENT_BYTES}.", text.len()));
        return Err(ParseError::at(walk.position, error));
    }
    if let Some(at) = text[offset..].find('\0') {
        while walk.position.offset < offset + at && walk.step() {}
        let error = UserError::new(ErrorKind::InvalidValue, "null character in statement")
            .detail("A statement cannot contain the character U+0000, because PostgreSQL cannot store it.")
            .hint("Remove the character.");
        return Err(ParseError::at(walk.position, error));
    }
    let dialect: &dyn Dialect = &ControlLanguage;
    let mut found: Vec<TokenWithSpan> = Vec::new();
    let result = Tokenizer::new(dialect, &text[offset..]).tokenize_with_location_into_buf(&mut found);
    let mut tokens = Vec::with_capacity(found.len() / 2 + 1);
    for TokenWithSpan { token, span } in found {
        let position = walk.to(span.start);
        let end = walk.to(span.end);
        if let Some(kind) = kind(token) {
            if let TokenKind::Text(text) | TokenKind::QuotedName(text) = &kind {
                check_characters(text).map_err(|error| ParseError::at(position, error))?;
            }
            tokens.push(Token { kind, source: &text[position.offset..end.offset], position });
        }
    }
    if let Err(error) = result {
        let position = walk.to(error.location);
        return Err(unreadable(&text[position.offset..], position));
    }
    tokens.push(Token { kind: TokenKind::End, source: "", position: walk.finish() });
    Ok(tokens)
}

/// Refuses control characters in quotes. Such text is stored, and printed to the terminals of others, by SHOW and in the audit also
/// that of a refused statement: it could forge lines there.
fn check_characters(text: &str) -> Result<(), UserError> {
    let Some(c) = text.chars().find(|c| c.is_control()) else { return Ok(()) };
    Err(UserError::new(ErrorKind::InvalidValue, "control character in quoted text")
        .detail(format!(
            "Quoted text cannot contain line breaks, tabs and other control characters such as U+{:04X}.",
            u32::from(c)
        ))
        .hint("Write a space instead."))
}

/// Converts a token of `sqlparser`; `None` for white space and comments.
fn kind(token: SqlToken) -> Option<TokenKind> {
    Some(match token {
        SqlToken::Whitespace(_) => return None,
        SqlToken::Word(word) if word.quote_style.is_some() => TokenKind::QuotedName(word.value),
        SqlToken::Word(_) => TokenKind::Word,
        SqlToken::SingleQuotedString(text) => TokenKind::Text(text),
        SqlToken::Number(..) => TokenKind::Number,
        SqlToken::Comma => TokenKind::Comma,
        SqlToken::LParen => TokenKind::Open,
        SqlToken::RParen => TokenKind::Close,
        SqlToken::Eq => TokenKind::Equals,
        SqlToken::SemiColon => TokenKind::Semicolon,
        SqlToken::Minus | SqlToken::Period => TokenKind::Joint,
        _ => TokenKind::Other,
    })
}

/// The error for text that cannot be split into tokens.
fn unreadable(rest: &str, position: Position) -> ParseError {
    match rest.chars().next() {
        Some('\'') => ParseError::syntax(position, "unterminated quoted string")
            .or_hint("Double a quote inside a string: 'it''s'."),
        Some(quote @ ('"' | '`')) => ParseError::syntax(position, format!("unterminated name in {quote} quotes")),
        Some(c) => ParseError::syntax(position, format!("unexpected character \"{c}\"")),
        None => ParseError::syntax(position, "unterminated comment"),
    }
}

/// Walks through the text once, counting lines and columns as `sqlparser` does (a line ends with a line feed, every
/// other character is a column), and so finds the offsets that its locations stand for.
struct Walk<'a> {
    text: &'a str,
    position: Position,
    /// `sqlparser` begins to count at the offset.
    relative: Location,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str, offset: usize) -> Self {
        let mut walk = Self {
            text,
            position: Position { line: 1, column: 1, offset: if text.starts_with('\u{feff}') { 3 } else { 0 } },
            relative: Location { line: 1, column: 1 },
        };
        while walk.position.offset < offset && walk.step() {}
        walk.relative = Location { line: 1, column: 1 };
        walk
    }

    /// Goes one character on; false at the end.
    fn step(&mut self) -> bool {
        let Some(c) = self.text[self.position.offset..].chars().next() else { return false };
        self.position.offset += c.len_utf8();
        if c == '\n' {
            (self.position.line, self.position.column) = (self.position.line + 1, 1);
            self.relative = Location { line: self.relative.line + 1, column: 1 };
        } else {
            self.position.column += 1;
            self.relative.column += 1;
        }
        true
    }

    fn to(&mut self, location: Location) -> Position {
        while self.relative < location && self.step() {}
        self.position
    }

    fn finish(&mut self) -> Position {
        while self.step() {}
        self.position
    }
}
