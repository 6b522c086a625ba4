//! Why a statement can't be read, and where.

use std::fmt;

use model::error::{ErrorKind, UserError};
use thiserror::Error;

/// A place in the text of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1; lines end with a line feed.
    pub line: usize,
    /// The character in the line, from 1; a tab is one character.
    pub column: usize,
    /// Bytes from the beginning of the text; always a border between characters.
    pub offset: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A control statement that can't be read. Its detail ends with the place, so that the place reaches the user; no
/// quoted string of the statement stands in it, because a string may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct ParseError {
    /// Where.
    pub position: Position,
    error: Box<UserError>,
}

impl ParseError {
    /// Makes an error of the given place out of what a user is told; the place is added to the detail.
    pub(crate) fn at(position: Position, mut error: UserError) -> Self {
        error.detail = Some(match error.detail {
            Some(detail) => format!("{detail}; at {position}"),
            None => format!("at {position}"),
        });
        Self { position, error: Box::new(error) }
    }

    /// A syntax error.
    pub(crate) fn syntax(position: Position, message: impl Into<String>) -> Self {
        Self::at(position, UserError::new(ErrorKind::Syntax, message))
    }

    /// Adds what to do next, unless there is a hint already.
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint.get_or_insert(hint.into());
        self
    }

    /// What kind of error: a syntax error, an invalid name or value, a limit.
    pub fn kind(&self) -> ErrorKind {
        self.error.kind
    }

    /// What the user is told.
    pub fn user_error(&self) -> &UserError {
        &self.error
    }
}

impl From<ParseError> for UserError {
    fn from(error: ParseError) -> Self {
        *error.error
    }
}
