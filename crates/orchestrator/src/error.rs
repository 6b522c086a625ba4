//! What can go wrong at an orchestrator, told apart by what the caller should do next.

use model::{EngineName, Epoch, ErrorKind};
use thiserror::Error;

/// Why a verb had no effect, or (transient) may have had none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The name is taken by something that is not the engine that was asked for. The next tick looks again.
    #[error("engine \"{name}\" is there already: {reason}")]
    Conflict {
        /// Which engine.
        name: EngineName,
        /// How what is there differs.
        reason: String,
    },
    /// The uid is gone, and another has the name. Nothing was done to it.
    #[error("engine \"{name}\" with uid {uid} is gone; uid {present} has its name")]
    Gone {
        /// Which name.
        name: EngineName,
        /// The uid that was meant.
        uid: String,
        /// The uid that is there.
        present: String,
    },
    /// The same request is refused until somebody changes something: a limit, a missing program, a missing right.
    #[error("refused: {reason}")]
    Refused {
        /// Why; for people.
        reason: String,
    },
    /// A later master has acted here: whoever asked is deposed.
    #[error("epoch {epoch} is deposed: epoch {highest} has acted here")]
    Deposed {
        /// The epoch of the request.
        epoch: Epoch,
        /// The highest one seen.
        highest: Epoch,
    },
    /// Something of that name is there, and what it is can't be read: neither present nor vanished.
    #[error("the state of engine \"{name}\" can't be read: {reason}")]
    Unreadable {
        /// Which name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It may work later, and it may have worked: look again.
    #[error("failed for now: {reason}")]
    Transient {
        /// What failed.
        reason: String,
    },
}

impl Error {
    /// A refusal.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    /// The refusal at the limit of engines, which that key of the configuration says.
    pub(crate) fn too_many(count: usize, key: &str) -> Self {
        Self::refused(format!("there are {count} engines already, which is the limit ({key})"))
    }

    /// A failure that may pass.
    pub fn transient(reason: impl Into<String>) -> Self {
        Self::Transient { reason: reason.into() }
    }

    /// The kind, with its SQLSTATE, under which it reaches a user.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict { .. } | Self::Deposed { .. } => ErrorKind::Conflict,
            Self::Gone { .. } => ErrorKind::WrongState,
            Self::Refused { .. } => ErrorKind::LimitReached,
            Self::Unreadable { .. } => ErrorKind::Io,
            Self::Transient { .. } => ErrorKind::Unavailable,
        }
    }

    /// Whether the same call may succeed without anybody changing anything.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Transient { .. })
    }
}
