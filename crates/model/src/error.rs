//! Errors that reach users: what object, what is wrong, detail, hint, SQLSTATE.
//!
//! The style is `PostgreSQL`'s: a lower-case message without a full stop that names the object kind, then detail, then
//! hint. [`UserError`] is the only error type that is ever shown to a client; every crate's own error enums turn
//! into it at the border where the statement is known. It has deliberately no `From<anyhow::Error>` or
//! `From<io::Error>`: what a user is told is decided, not inherited.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stack_trace;

/// The `errorCode` of HiveServer2's `TStatus` that says: this engine drains, nothing of the statement was executed,
/// send it to another engine.
pub const ENGINE_DRAINING: i32 = 45_001;

/// The `errorCode` that an engine agent answers when this one session at its engine is gone, and the engine is not:
/// nothing of the statement was executed, and a new session at any engine may run it.
pub const ENGINE_SESSION_LOST: i32 = 45_002;

/// What kind of thing went wrong: fixes the SQLSTATE, whose fault it is, and whether another try makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The statement can't be read.
    Syntax,
    /// A name breaks the rules for names.
    InvalidName,
    /// An option or parameter has a value that it can't have.
    InvalidValue,
    /// A tenant, pool, unit or engine that is not there.
    UndefinedObject,
    /// A table that is not there.
    UndefinedTable,
    /// A column that is not there.
    UndefinedColumn,
    /// An object of that name exists already.
    DuplicateObject,
    /// Other objects depend on this one.
    DependentObjects,
    /// The object is not in the state that the statement needs.
    WrongState,
    /// A limit of the object's own definition is reached (`MAX_ENGINES`, `MIN_ENGINES`).
    LimitReached,
    /// A named limit of the program is reached (sessions, frame size, list length).
    ProgramLimit,
    /// Another alteration is on its way.
    LockNotAvailable,
    /// What the statement was computed from has changed meanwhile.
    Conflict,
    /// The user may not do that.
    InsufficientPrivilege,
    /// The client did not prove who it is.
    InvalidAuthorization,
    /// The connection, or the engine behind it, is gone.
    ConnectionLost,
    /// The engine drains; nothing of the statement was executed.
    EngineDraining,
    /// The engine no longer has the session; nothing of the statement was executed.
    EngineSessionLost,
    /// No part of the system that could answer can be reached now.
    Unavailable,
    /// It is not known whether the change was made; the same request id may be sent again.
    OutcomeUnknown,
    /// The deadline passed.
    Timeout,
    /// The statement was cancelled.
    Canceled,
    /// Too little memory for the statement.
    OutOfMemory,
    /// No room on the disk.
    DiskFull,
    /// A value can't be computed (division by zero, overflow, bad cast).
    DataException,
    /// The feature is not supported.
    NotSupported,
    /// A file or device failed.
    Io,
    /// A defect of ours.
    Internal,
}

/// Whether and how a caller may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same statement fails again.
    No,
    /// A later try may succeed; nothing was changed.
    Later,
    /// The same request may be sent again under the same id; under a new one it might take effect twice.
    SameId,
    /// Nothing was executed: send it elsewhere at once.
    Elsewhere,
}

impl ErrorKind {
    /// The five characters of the SQLSTATE.
    pub const fn sqlstate(self) -> &'static str {
        match self {
            Self::Syntax => "42601",
            Self::InvalidName => "42602",
            Self::InvalidValue => "22023",
            Self::UndefinedObject => "42704",
            Self::UndefinedTable => "42P01",
            Self::UndefinedColumn => "42703",
            Self::DuplicateObject => "42710",
            Self::DependentObjects => "2BP01",
            Self::WrongState => "55000",
            Self::LimitReached => "53400",
            Self::ProgramLimit => "54000",
            Self::LockNotAvailable => "55P03",
            Self::Conflict => "40001",
            Self::InsufficientPrivilege => "42501",
            Self::InvalidAuthorization => "28000",
            Self::ConnectionLost | Self::EngineDraining | Self::EngineSessionLost => "08S01",
            Self::Unavailable => "57P03",
            Self::OutcomeUnknown => "08007",
            Self::Timeout => "HYT00",
            Self::Canceled => "57014",
            Self::OutOfMemory => "53200",
            Self::DiskFull => "53100",
            Self::DataException => "22000",
            Self::NotSupported => "0A000",
            Self::Io => "58030",
            Self::Internal => "XX000",
        }
    }

    /// The `errorCode` of `TStatus`: 0 except where a program must tell one 08S01 from another.
    pub const fn error_code(self) -> i32 {
        match self {
            Self::EngineDraining => ENGINE_DRAINING,
            Self::EngineSessionLost => ENGINE_SESSION_LOST,
            _ => 0,
        }
    }

    /// Whether and how a caller may try again.
    pub const fn retry(self) -> Retry {
        match self {
            Self::LockNotAvailable | Self::Conflict | Self::Unavailable | Self::LimitReached | Self::OutOfMemory => {
                Retry::Later
            }
            Self::OutcomeUnknown => Retry::SameId,
            Self::EngineDraining | Self::EngineSessionLost => Retry::Elsewhere,
            _ => Retry::No,
        }
    }
}

/// An error as a user reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserError {
    /// What kind of thing went wrong.
    pub kind: ErrorKind,
    /// One line, lower case, no full stop, naming the object: `tenant "t_1" does not exist`.
    pub message: String,
    /// More facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do next, with the exact statement or command where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// A SQLSTATE more exact than the kind's, as a backend gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

impl UserError {
    /// An error with its message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), detail: None, hint: None, state: None }
    }

    /// A defect of ours: the user can do nothing but report it.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Adds facts.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Replaces the kind's SQLSTATE by a more exact one.
    #[must_use]
    pub fn with_sqlstate(mut self, state: impl Into<String>) -> Self {
        self.state = Some(state.into());
        self
    }

    /// The five characters of the SQLSTATE.
    pub fn sqlstate(&self) -> &str {
        self.state.as_deref().unwrap_or(self.kind.sqlstate())
    }

    /// Message, detail and hint as lines of one text: the form of `TStatus.errorMessage`.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (head, line) in [("Detail", &self.detail), ("Hint", &self.hint)] {
            if let Some(line) = line {
                text.extend(["\n", head, ": ", line]);
            }
        }
        text
    }

    /// The same without the stack traces of Java, as [`stack_trace::without_frames`] cuts them.
    #[must_use]
    pub fn without_stack_trace(mut self) -> Self {
        for text in [Some(&mut self.message), self.detail.as_mut(), self.hint.as_mut()].into_iter().flatten() {
            if let Cow::Owned(short) = stack_trace::without_frames(text) {
                *text = short;
            }
        }
        self
    }

    /// The same with message, detail and hint cut to at most `max` bytes each: for errors that are kept and whose text
    /// an engine chose.
    #[must_use]
    pub fn cut(mut self, max: usize) -> Self {
        for text in [Some(&mut self.message), self.detail.as_mut(), self.hint.as_mut()].into_iter().flatten() {
            let end = crate::observation::cut(text, max).len();
            text.truncate(end);
            text.shrink_to_fit();
        }
        self
    }

    /// Reads back what [`UserError::text`] wrote.
    pub fn from_text(kind: ErrorKind, text: &str) -> Self {
        let mut error = Self::new(kind, "");
        let mut rest = text;
        if let Some((before, hint)) = rest.split_once("\nHint: ") {
            error.hint = Some(hint.to_owned());
            rest = before;
        }
        if let Some((before, detail)) = rest.split_once("\nDetail: ") {
            error.detail = Some(detail.to_owned());
            rest = before;
        }
        rest.clone_into(&mut error.message);
        error
    }
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl std::error::Error for UserError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_text_has_message_detail_and_hint_on_lines_of_their_own_and_is_read_back() {
        let error = UserError::new(ErrorKind::UndefinedObject, "tenant \"t_1\" does not exist")
            .detail("there are 2 tenants")
            .hint("SHOW TENANTS");
        assert_eq!(error.text(), "tenant \"t_1\" does not exist\nDetail: there are 2 tenants\nHint: SHOW TENANTS");
        assert_eq!(UserError::from_text(error.kind, &error.text()), error);
    }

    #[test]
    fn a_stack_trace_is_cut_and_the_message_stays() {
        let java = "[TABLE_NOT_FOUND] no table t; line 1\nselect * from t\n              ^\n\n\tat org.a.B.c(B.java:1)\n\tat d";
        let error = UserError::new(ErrorKind::Internal, java).detail("plain").without_stack_trace();
        assert_eq!(error.message, "[TABLE_NOT_FOUND] no table t; line 1\nselect * from t\n              ^");
        assert_eq!(error.detail.as_deref(), Some("plain"));
        assert_eq!(error.clone().cut(10).message, "[TABLE_NOT");
    }

    #[test]
    fn only_a_draining_engine_may_be_left_for_another_at_once() {
        assert_eq!(ErrorKind::EngineDraining.error_code(), ENGINE_DRAINING);
        assert_eq!(ErrorKind::EngineDraining.retry(), Retry::Elsewhere);
        assert_eq!(ErrorKind::EngineSessionLost.error_code(), ENGINE_SESSION_LOST);
        assert_eq!(ErrorKind::ConnectionLost.error_code(), 0);
        assert_eq!(ErrorKind::ConnectionLost.retry(), Retry::No);
    }
}
