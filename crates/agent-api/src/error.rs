//! Why a call had no effect, or why that is not known.

use model::error::{ErrorKind, UserError};
use model::snapshot::MasterRecord;
use thiserror::Error;

/// Why a call had no effect, or why that is not known.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ApiError {
    /// Another master has raised the epoch: the row as it is now.
    #[error("deposed: epoch {} is held by {}", .0.epoch, .0.holder)]
    Deposed(Box<MasterRecord>),
    /// What the call was derived from has moved. Nothing was changed; the next tick reads afresh.
    #[error("conflict: {0}")]
    Conflict(String),
    /// Nobody did anything: no agent, no database, or not in time.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The call may have taken effect. The same call again is harmless and tells.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The call can't be done, now or later.
    #[error("refused: {0}")]
    Refused(UserError),
}

/// What a caller does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiErrorKind {
    /// Look at the lock; still held: raise the epoch again; not held: step down.
    Deposed,
    /// Leave it to the next tick.
    Conflict,
    /// Try again later, at another agent.
    Unavailable,
    /// Make the same call again.
    OutcomeUnknown,
    /// Give up and say why.
    Refused,
}

impl ApiError {
    /// What a caller does about it.
    pub const fn kind(&self) -> ApiErrorKind {
        match self {
            Self::Deposed(_) => ApiErrorKind::Deposed,
            Self::Conflict(_) => ApiErrorKind::Conflict,
            Self::Unavailable(_) => ApiErrorKind::Unavailable,
            Self::OutcomeUnknown(_) => ApiErrorKind::OutcomeUnknown,
            Self::Refused(_) => ApiErrorKind::Refused,
        }
    }

    /// As the error of a user's statement.
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
