//! User errors: message, detail, hint and SQLSTATE.
//!
//! The style is PostgreSQL's: a lower-case message without a full stop that names the object kind; detail and hint
//! are sentences. [`UserError`] is the only error type that a client receives; every crate converts its own errors to
//! it where the statement is known. It deliberately has no `From<anyhow::Error>` or `From<io::Error>`: the text for a
//! user is always chosen.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stack_trace;
use crate::text::cut;

/// The `errorCode` of HiveServer2's `TStatus` for a draining engine: nothing of the statement was executed; send it
/// to another engine.
pub const ENGINE_DRAINING: i32 = 45_001;

/// The `errorCode` of an engine agent that no longer has the session, while the engine still runs: nothing of the
/// statement was executed, and a new session at any engine may run it.
pub const ENGINE_SESSION_LOST: i32 = 45_002;

/// The `errorCode` of an engine agent that opens no session now, because its seats are taken or the engine is about to end:
/// nothing was executed; open the session at another engine, or wait.
pub const ENGINE_FULL: i32 = 45_003;

/// The `errorCode` of an engine agent that refuses a session because the engine is dedicated to another user, group or session:
/// nothing was executed; open the session at another engine.
pub const ENGINE_OWNED: i32 = 45_004;

/// The `errorCode` of a call that did not get a row lock of the ledger in time; it changed nothing.
pub const LOCK_TIMEOUT: i32 = 46_051;

/// The `errorCode` of a call whose deadline passed before it could be decided; it changed nothing.
pub const REQUEST_TIMEOUT: i32 = 46_052;

/// The `errorCode` of a reservation that does not exist in the state that its holder assumes: the holder must stop.
pub const UNKNOWN_RESERVATION: i32 = 46_061;

/// The `errorCode` of a request for a pool that does not exist.
pub const NO_POOL: i32 = 46_071;

/// The `errorCode` of a request for a pool of whose capacity nothing is left without its protected part.
pub const EMPTY_POOL: i32 = 46_072;

/// The `errorCode` of a request for a pool whose capacity no program has registered.
pub const POOL_NOT_REGISTERED: i32 = 46_073;

/// The `errorCode` of a resource whose kind does not exist, or that no request policy accepts.
pub const KIND_UNKNOWN: i32 = 46_091;

/// The `errorCode` of two resources whose kinds do not combine.
pub const KIND_MISMATCH: i32 = 46_092;

/// The `errorCode` of a write of a deposed master; it changed nothing.
pub const FENCED: i32 = 46_099;

/// The kind of an error: it determines the SQLSTATE, the error code and the retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The statement is not valid.
    Syntax,
    InvalidName,
    /// An option or parameter has an impossible value.
    InvalidValue,
    /// A tenant, pool, unit or engine does not exist.
    UndefinedObject,
    UndefinedTable,
    UndefinedColumn,
    /// An object of that name already exists.
    DuplicateObject,
    /// Other objects depend on this one.
    DependentObjects,
    /// The object is not in the state that the statement needs.
    WrongState,
    /// A limit of the object's own definition is reached (`MAX_ENGINES`, `MIN_ENGINES`).
    LimitReached,
    /// A request is short of what others hold now.
    InsufficientResources,
    /// A named limit of the program is reached (sessions, frame size, list length).
    ProgramLimit,
    /// Another alteration is in progress.
    LockNotAvailable,
    /// The state that the statement was derived from has changed.
    Conflict,
    InsufficientPrivilege,
    /// Authentication failed.
    InvalidAuthorization,
    /// The connection, or the engine behind it, was lost.
    ConnectionLost,
    /// The engine drains; nothing of the statement was executed.
    EngineDraining,
    /// The engine no longer has the session; nothing of the statement was executed.
    EngineSessionLost,
    /// The engine opens no session now; nothing was executed.
    EngineFull,
    /// The engine is dedicated to another owner; nothing was executed.
    EngineOwned,
    /// No component that could answer is reachable.
    Unavailable,
    /// Whether the change was made is not known; the same request id may be sent again.
    OutcomeUnknown,
    Timeout,
    Canceled,
    OutOfMemory,
    DiskFull,
    /// A value cannot be computed (division by zero, overflow, bad cast).
    DataException,
    NotSupported,
    Io,
    /// A defect in Enginehouse.
    Internal,
}

/// Whether and how a caller may retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The same statement will fail again.
    No,
    /// A later retry may succeed; nothing was changed.
    Later,
    /// The request may be repeated under the same id; under a new one it might take effect twice.
    SameId,
    /// Nothing was executed: send it to another engine at once.
    Elsewhere,
}

impl ErrorKind {
    /// The SQLSTATE: five characters.
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
            Self::InsufficientResources => "53000",
            Self::ProgramLimit => "54000",
            Self::LockNotAvailable => "55P03",
            Self::Conflict => "40001",
            Self::InsufficientPrivilege => "42501",
            Self::InvalidAuthorization => "28000",
            Self::ConnectionLost
            | Self::EngineDraining
            | Self::EngineSessionLost
            | Self::EngineFull
            | Self::EngineOwned => "08S01",
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

    /// The `errorCode` of `TStatus`: 0 except where programs must distinguish one 08S01 from another.
    pub const fn error_code(self) -> i32 {
        match self {
            Self::EngineDraining => ENGINE_DRAINING,
            Self::EngineSessionLost => ENGINE_SESSION_LOST,
            Self::EngineFull => ENGINE_FULL,
            Self::EngineOwned => ENGINE_OWNED,
            _ => 0,
        }
    }

    pub const fn retry(self) -> Retry {
        match self {
            Self::LockNotAvailable
            | Self::Conflict
            | Self::Unavailable
            | Self::LimitReached
            | Self::InsufficientResources
            | Self::OutOfMemory => Retry::Later,
            Self::OutcomeUnknown => Retry::SameId,
            Self::EngineDraining | Self::EngineSessionLost | Self::EngineFull | Self::EngineOwned => Retry::Elsewhere,
            _ => Retry::No,
        }
    }
}

/// An error for a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserError {
    pub kind: ErrorKind,
    /// One line, lower case, no full stop, with the object: `tenant "t_1" does not exist`.
    pub message: String,
    /// Whole sentences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do next, in whole sentences; the exact statement or command where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// A SQLSTATE more specific than the kind's, from a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// An `errorCode` more specific than the kind's, for programs that must distinguish errors of one SQLSTATE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

impl UserError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), detail: None, hint: None, state: None, code: None }
    }

    /// A defect: the user can only report it.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn with_sqlstate(mut self, state: impl Into<String>) -> Self {
        self.state = Some(state.into());
        self
    }

    #[must_use]
    pub fn with_error_code(mut self, code: i32) -> Self {
        self.code = Some(code);
        self
    }

    /// The `errorCode` of `TStatus`.
    pub fn error_code(&self) -> i32 {
        self.code.unwrap_or(self.kind.error_code())
    }

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

    /// The same without Java stack traces; see [`stack_trace::without_frames`].
    #[must_use]
    pub fn without_stack_trace(mut self) -> Self {
        for text in [Some(&mut self.message), self.detail.as_mut(), self.hint.as_mut()].into_iter().flatten() {
            if let Cow::Owned(short) = stack_trace::without_frames(text) {
                *text = short;
            }
        }
        self
    }

    /// The same with message, detail and hint cut to at most `max` bytes each: for errors that are stored and whose
    /// text an engine chose.
    #[must_use]
    pub fn cut(mut self, max: usize) -> Self {
        for text in [Some(&mut self.message), self.detail.as_mut(), self.hint.as_mut()].into_iter().flatten() {
            let end = cut(text, max).len();
            text.truncate(end);
            text.shrink_to_fit();
        }
        self
    }

    /// Parses the output of [`UserError::text`].
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
    fn the_text_has_message_detail_and_hint_on_lines_and_parses_back() {
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
    fn an_08s01_error_is_retried_elsewhere_only_with_an_error_code() {
        assert_eq!(ErrorKind::EngineDraining.error_code(), ENGINE_DRAINING);
        assert_eq!(ErrorKind::EngineDraining.retry(), Retry::Elsewhere);
        assert_eq!(ErrorKind::EngineSessionLost.error_code(), ENGINE_SESSION_LOST);
        assert_eq!(ErrorKind::EngineFull.error_code(), ENGINE_FULL);
        assert_eq!(ErrorKind::EngineFull.retry(), Retry::Elsewhere);
        assert_eq!(ErrorKind::EngineOwned.error_code(), ENGINE_OWNED);
        assert_eq!(ErrorKind::EngineOwned.retry(), Retry::Elsewhere);
        assert_eq!(ErrorKind::ConnectionLost.error_code(), 0);
        assert_eq!(ErrorKind::ConnectionLost.retry(), Retry::No);
    }

    #[test]
    fn an_error_code_of_its_own_survives_serialization_and_replaces_the_kind_s() {
        let plain = UserError::new(ErrorKind::EngineDraining, "engine is draining");
        assert_eq!(plain.error_code(), ENGINE_DRAINING);
        let specific = UserError::new(ErrorKind::InvalidValue, "kinds do not combine").with_error_code(KIND_MISMATCH);
        let read: UserError = serde_json::from_str(&serde_json::to_string(&specific).unwrap()).unwrap();
        assert_eq!((read.error_code(), read.sqlstate()), (KIND_MISMATCH, "22023"));
    }
}
