//! Errors of the API: calls without effect, or with an unknown outcome.

use model::cause::Cause;
use model::error::{ErrorKind, UserError};
use model::snapshot::MasterRecord;
use thiserror::Error;

/// The error of a call. Between processes a cause is sent as its text.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ApiError {
    /// Another master has raised the epoch: the current row.
    #[error("deposed: epoch {} is held by {}", .0.epoch, .0.holder)]
    Deposed(Box<MasterRecord>),
    /// The state that the call was derived from has changed. Nothing was changed; the next tick reads again.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Nothing was done: no agent, no database, or not in time.
    #[error("unavailable: {0}")]
    Unavailable(#[source] Cause),
    /// The call may have taken effect. Repeating it is harmless and returns the outcome.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(#[source] Cause),
    /// The call cannot succeed, now or later.
    #[error("refused: {0}")]
    Refused(UserError),
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// Check the lock: if still held, raise the epoch again, otherwise step down.
    Deposed,
    /// Leave it to the next tick.
    Conflict,
    /// Retry later, at another agent.
    Unavailable,
    /// Repeat the same call.
    OutcomeUnknown,
    /// Give up and report the error.
    Refused,
}

impl ApiError {
    pub const fn kind(&self) -> ApiErrorKind {
        match self {
            Self::Deposed(_) => ApiErrorKind::Deposed,
            Self::Conflict(_) => ApiErrorKind::Conflict,
            Self::Unavailable(_) => ApiErrorKind::Unavailable,
            Self::OutcomeUnknown(_) => ApiErrorKind::OutcomeUnknown,
            Self::Refused(_) => ApiErrorKind::Refused,
        }
    }

    pub fn user_error(&self) -> UserError {
        let new = |kind| UserError::new(kind, self.to_string());
        match self {
            Self::Deposed(_) | Self::Conflict(_) => new(ErrorKind::Conflict),
            Self::Unavailable(_) => new(ErrorKind::Unavailable),
            Self::OutcomeUnknown(_) => new(ErrorKind::OutcomeUnknown),
            Self::Refused(error) => error.clone(),
        }
    }
}
