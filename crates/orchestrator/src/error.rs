//! Errors of orchestrators, classified by what the caller should do next.

use model::cause::Cause;
use model::{EngineName, Epoch, ErrorKind};
use thiserror::Error;

use crate::Unreadable;

/// Why a verb had no effect. After a transient error it may have had one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The name is taken by something other than the requested engine. The next tick tries again.
    #[error("engine \"{name}\" already exists: {reason}")]
    Conflict {
        name: EngineName,
        /// How the existing one differs.
        reason: String,
    },
    /// The uid is gone, and the name belongs to another uid, which was not touched.
    #[error("engine \"{name}\" with uid {uid} is gone; its name belongs to uid {present}")]
    Gone {
        name: EngineName,
        uid: String,
        /// The uid that has the name.
        present: String,
    },
    /// The same request is refused until an administrator acts: a missing program, a missing permission, an invalid value.
    #[error("refused: {reason}")]
    Refused { reason: String, source: Option<Cause> },
    /// A limit is reached: the same request is refused until another engine is gone, or an administrator raises the limit.
    #[error("refused: {reason}")]
    Limit { reason: String },
    /// A later master has acted here: the caller is deposed.
    #[error("epoch {epoch} is deposed: epoch {highest} has acted here")]
    Deposed {
        /// Of the request.
        epoch: Epoch,
        /// The highest one seen.
        highest: Epoch,
    },
    /// The entry of that name cannot be read: the engine counts neither as present nor as vanished.
    #[error("could not read the state of engine \"{name}\": {reason}")]
    Unreadable { name: String, reason: String },
    /// The call may succeed later, and it may have had its effect: read again.
    #[error("transient failure: {reason}")]
    Transient { reason: String, source: Option<Cause> },
}

impl Error {
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into(), source: None }
    }

    /// The refusal at the limit of engines, which is set by that key of the configuration.
    pub(crate) fn too_many(count: usize, key: &str) -> Self {
        Self::Limit { reason: format!("limit of {count} engines reached ({key})") }
    }

    pub fn transient(reason: impl Into<String>) -> Self {
        Self::Transient { reason: reason.into(), source: None }
    }

    /// Adds the cause of a refusal or of a transient error.
    pub(crate) fn caused_by(mut self, cause: impl Into<Cause>) -> Self {
        if let Self::Refused { source, .. } | Self::Transient { source, .. } = &mut self {
            *source = Some(cause.into());
        }
        self
    }

    /// The kind, with its SQLSTATE, that a user receives.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } | Self::Deposed { .. } => ErrorKind::Conflict,
            Self::Gone { .. } => ErrorKind::WrongState,
            Self::Refused { .. } | Self::Limit { .. } => ErrorKind::LimitReached,
            Self::Unreadable { .. } => ErrorKind::Io,
            Self::Transient { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether the same call may succeed without any change of the configuration.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }
}

impl From<Unreadable> for Error {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable { name: unreadable.name, reason: unreadable.reason }
    }
}
