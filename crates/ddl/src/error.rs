//! Parse errors with their position.

use std::fmt;

use model::error::{ErrorKind, UserError};
use thiserror::Error;

/// A position in the text of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// From 1; lines end with a line feed.
    pub line: usize,
    /// The character in the line, from 1; a tab is one character.
    pub column: usize,
    /// In bytes from the beginning of the text; always a character boundary.
    pub offset: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The error of a control statement that cannot be parsed. Its detail ends with the position. It repeats no quoted
/// string of the statement, because a string may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{error}")]
pub struct ParseError {
    pub position: Position,
    error: Box<UserError>,
}

impl ParseError {
    /// Adds the position to the detail.
    pub(crate) fn at(position: Position, mut error: UserError) -> Self {
        error.detail = Some(match error.detail {
            Some(detail) => format!("{detail} The error is at {position}."),
            None => format!("The error is at {position}."),
        });
        Self { position, error: Box::new(error) }
    }

    pub(crate) fn syntax(position: Position, message: impl Into<String>) -> Self {
        Self::at(position, UserError::new(ErrorKind::Syntax, message))
    }

    /// Adds a hint, unless there is one already.
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint.get_or_insert(hint.into());
        self
    }

    pub fn kind(&self) -> ErrorKind {
        self.error.kind
    }

    pub fn user_error(&self) -> &UserError {
        &self.error
    }
}

impl From<ParseError> for UserError {
    fn from(error: ParseError) -> Self {
        *error.error
    }
}
