//! The token cursor: reads tokens one after the other and collects what was expected.
//!
//! The cursor collects everything that the parser tries at a token without success. The error lists all of it, and the hint
//! the closest match, so errors need no second copy of the grammar.

mod names;

use std::str::FromStr;
use std::time::Duration;

use model::error::{ErrorKind, UserError};
use model::span;

use crate::distance::nearest;
use crate::error::{ParseError, Position};
use crate::token::{Token, TokenKind, tokenize};

/// The longest piece of a statement that an error repeats, in characters.
const MAX_FOUND_CHARS: usize = 40;

/// One thing that the parser expected at a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A keyword or the name of an option, as it is written.
    Word(&'static str),
    /// A description of anything else.
    Thing(&'static str),
}

impl Expected {
    const fn text(self) -> &'static str {
        match self {
            Self::Word(text) | Self::Thing(text) => text,
        }
    }
}

/// A position among the tokens of one statement.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    expected: Vec<Expected>,
    /// The current tokens may belong to a secret value: no error repeats them.
    hidden: bool,
}

impl<'a> Cursor<'a> {
    /// Tokenises the text from the end of the head.
    pub(crate) fn new(text: &'a str, offset: usize) -> Result<Self, ParseError> {
        Ok(Self { text, tokens: tokenize(text, offset)?, at: 0, expected: Vec::new(), hidden: false })
    }

    fn token(&self) -> &Token<'a> {
        // The last token is the end, and the cursor never moves beyond it.
        &self.tokens[self.at]
    }

    pub(crate) fn position(&self) -> Position {
        self.token().position
    }

    pub(crate) fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        self.expected.clear();
    }

    fn expect(&mut self, expected: Expected) {
        if !self.expected.contains(&expected) {
            self.expected.push(expected);
        }
    }

    /// Collects what the parser expected here.
    pub(crate) fn could_be(&mut self, thing: &'static str) {
        self.expect(Expected::Thing(thing));
    }

    /// Whether errors repeat text of the statement from here on.
    pub(crate) fn hide(&mut self, hidden: bool) {
        self.hidden = hidden;
    }

    /// The error for a missing mandatory token.
    pub(crate) fn missing(&mut self, thing: &'static str) -> ParseError {
        self.expect(Expected::Thing(thing));
        self.unexpected()
    }

    /// The next token if it is a word without quotes.
    pub(crate) fn peek_word(&self) -> Option<&'a str> {
        (self.token().kind == TokenKind::Word).then(|| self.token().source)
    }

    /// Whether the next token is this keyword; collects nothing.
    pub(crate) fn is(&self, keyword: &str) -> bool {
        self.peek_word().is_some_and(|word| word.eq_ignore_ascii_case(keyword))
    }

    /// Skips the keyword if it comes next.
    pub(crate) fn eat(&mut self, keyword: &'static str) -> bool {
        let found = self.is(keyword);
        if found {
            self.advance();
        } else {
            self.expect(Expected::Word(keyword));
        }
        found
    }

    /// Whether `IN PLACE` comes next; collects nothing.
    pub(crate) fn at_in_place(&self) -> bool {
        let place = self.tokens.get(self.at + 1);
        self.is("IN")
            && place.is_some_and(|token| token.kind == TokenKind::Word && token.source.eq_ignore_ascii_case("PLACE"))
    }

    /// Skips `IN PLACE` if it comes next; an error if something else follows IN.
    pub(crate) fn eat_in_place(&mut self) -> Result<bool, ParseError> {
        if self.is("IN") {
            self.advance();
            self.keyword("PLACE")?;
            return Ok(true);
        }
        self.expect(Expected::Word("IN PLACE"));
        Ok(false)
    }

    /// Skips the keyword; an error if something else comes next.
    pub(crate) fn keyword(&mut self, keyword: &'static str) -> Result<(), ParseError> {
        if self.eat(keyword) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Skips the symbol if it comes next.
    pub(crate) fn eat_symbol(&mut self, kind: &TokenKind) -> bool {
        let found = self.token().kind == *kind;
        if found {
            self.advance();
        } else if let Some(symbol) = symbol(kind) {
            self.expect(Expected::Thing(symbol));
        }
        found
    }

    /// Skips the symbol; an error if something else comes next.
    pub(crate) fn symbol(&mut self, kind: &TokenKind) -> Result<(), ParseError> {
        if self.eat_symbol(kind) { Ok(()) } else { Err(self.unexpected()) }
    }

    /// Accepts one optional `;` and the end of the statement.
    pub(crate) fn finish(&mut self) -> Result<(), ParseError> {
        if self.token().kind == TokenKind::Semicolon {
            self.advance();
            if self.token().kind != TokenKind::End {
                return Err(self
                    .missing("the end of the statement")
                    .or_hint("Run one statement at a time; one ; may end it."));
            }
        }
        if self.token().kind == TokenKind::End { Ok(()) } else { Err(self.missing("the end of the statement")) }
    }

    pub(crate) fn at_end(&self) -> bool {
        matches!(self.token().kind, TokenKind::End | TokenKind::Semicolon)
    }

    pub(crate) fn at_string(&self) -> bool {
        matches!(self.token().kind, TokenKind::Text(_))
    }

    /// Whether the next token can begin a string, a number or a quantity.
    pub(crate) fn at_scalar(&self) -> bool {
        matches!(self.token().kind, TokenKind::Text(_) | TokenKind::Number)
    }

    /// A string in single quotes.
    pub(crate) fn string(&mut self, what: &'static str) -> Result<String, ParseError> {
        let TokenKind::Text(text) = &self.token().kind else {
            let hint = self.bare_hint();
            let error = self.missing(what);
            return Err(match hint {
                Some(hint) => error.or_hint(hint),
                None => error,
            });
        };
        let text = text.clone();
        self.advance();
        Ok(text)
    }

    /// The text at the cursor as a string literal, for a hint.
    fn bare_hint(&self) -> Option<String> {
        if self.hidden {
            return None;
        }
        let text = match &self.token().kind {
            TokenKind::Word | TokenKind::Number => self.bare_run().0,
            TokenKind::QuotedName(name) => name,
            _ => return None,
        };
        Some(format!("Write {}.", crate::quote::quoted_string(&shorten(text))))
    }

    /// A string, or a number, word or quantity without quotes.
    pub(crate) fn scalar(&mut self, what: &'static str) -> Result<(String, Position), ParseError> {
        let position = self.position();
        match &self.token().kind {
            TokenKind::Text(text) => {
                let text = text.clone();
                self.advance();
                Ok((text, position))
            }
            TokenKind::Word | TokenKind::Number | TokenKind::Joint => Ok((self.take_bare_run().to_owned(), position)),
            _ => Err(self.missing(what)),
        }
    }

    /// A string or a bare word, parsed as a value of its own type.
    pub(crate) fn value<T>(&mut self, option: &'static str, what: &'static str) -> Result<T, ParseError>
    where
        T: FromStr<Err = UserError>,
    {
        let (text, position) = self.scalar(what)?;
        // A text that is too long for any value is cut, and remains invalid.
        shorten(&text).parse().map_err(|error: UserError| {
            let message = format!("{option}: {}", error.message);
            ParseError::at(position, UserError { message, ..error })
        })
    }

    pub(crate) fn number(&mut self, option: &'static str) -> Result<u32, ParseError> {
        let (text, position) = self.scalar("a whole number")?;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| digits).ok_or_else(|| {
            let message = format!("{option}: invalid number \"{}\"", shorten(&text));
            let error = UserError::new(ErrorKind::InvalidValue, message);
            ParseError::at(position, error.detail(format!("It is a whole number from 0 to {}.", u32::MAX)))
        })
    }

    pub(crate) fn span(&mut self) -> Result<Duration, ParseError> {
        let (text, position) = self.scalar("a length of time such as '5m'")?;
        span::parse(&shorten(&text)).map_err(|error| ParseError::at(position, error))
    }

    /// The source from here to the end of a bare name or quantity, and the number of its tokens: adjacent words,
    /// numbers, `-` and `.`.
    fn bare_run(&self) -> (&'a str, usize) {
        let first = self.token();
        let mut end = first.end();
        let following = self.tokens[self.at + 1..].iter().take_while(|token| {
            let joined = token.position.offset == end
                && matches!(token.kind, TokenKind::Word | TokenKind::Number | TokenKind::Joint);
            if joined {
                end = token.end();
            }
            joined
        });
        let count = 1 + following.count();
        (&self.text[first.position.offset..end], count)
    }

    fn take_bare_run(&mut self) -> &'a str {
        let (source, count) = self.bare_run();
        for _ in 0..count {
            self.advance();
        }
        source
    }

    /// The next token for an error message. A string may be a secret, so it is never repeated.
    fn found(&self) -> String {
        match &self.token().kind {
            TokenKind::End => "the end of the statement".to_owned(),
            _ if self.hidden => "a value that may be secret".to_owned(),
            TokenKind::Text(_) => "a quoted string".to_owned(),
            TokenKind::Word | TokenKind::Number => format!("\"{}\"", shorten(self.bare_run().0)),
            TokenKind::QuotedName(name) => format!("the quoted name \"{}\"", shorten(name)),
            _ => format!("\"{}\"", shorten(self.token().source)),
        }
    }

    /// The error for an unexpected token.
    pub(crate) fn unexpected(&self) -> ParseError {
        let expected: Vec<&str> = self.expected.iter().map(|expected| expected.text()).collect();
        let mut error = UserError::new(ErrorKind::Syntax, format!("syntax error at {}", self.found()));
        error.detail = Some(format!("Expected {}.", join_or(&expected)));
        let error = ParseError::at(self.position(), error);
        match self.hint() {
            Some(hint) => error.or_hint(hint),
            None => error,
        }
    }

    fn hint(&self) -> Option<String> {
        let words = self.expected.iter().filter_map(|expected| match expected {
            Expected::Word(word) => Some(*word),
            Expected::Thing(_) => None,
        });
        if let Some(word) = self.peek_word().filter(|_| !self.hidden) {
            return nearest(word, words).map(|meant| format!("Did you mean {meant}?"));
        }
        let after_backslash = self
            .at
            .checked_sub(1)
            .is_some_and(|before| matches!(&self.tokens[before].kind, TokenKind::Text(text) if text.ends_with('\\')));
        if after_backslash {
            return Some("Double a quote inside a string instead of escaping it: 'it''s'.".to_owned());
        }
        let curly = self.token().source.contains(['\u{2018}', '\u{2019}', '\u{201c}', '\u{201d}']);
        curly.then(|| "Use straight quotes for strings: 'like this'.".to_owned())
    }
}

/// The name of a symbol in errors.
const fn symbol(kind: &TokenKind) -> Option<&'static str> {
    match kind {
        TokenKind::Comma => Some("\",\""),
        TokenKind::Open => Some("\"(\""),
        TokenKind::Close => Some("\")\""),
        TokenKind::Equals => Some("\"=\""),
        _ => None,
    }
}

/// `A`, `A or B`, `A, B or C`.
pub(crate) fn join_or(items: &[&str]) -> String {
    match items {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}

fn shorten(text: &str) -> String {
    let mut shown: String = text.chars().take(MAX_FOUND_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
