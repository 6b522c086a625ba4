//! Failures of the context, classified by what the reconciler does next.

use model::number::Epoch;
use model::snapshot::MasterRecord;
use thiserror::Error;

/// Why a call had no effect, or may have had none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The precondition no longer holds: the next tick plans again.
    #[error("precondition no longer holds: {0}")]
    Moved(String),
    /// Rejected until something is changed by hand.
    #[error("{0}")]
    Refused(String),
    /// Rejected by a limit, or by what exists: accepted once something else is gone.
    #[error("{0}")]
    Blocked(String),
    /// The server cannot be reached; nothing happened.
    #[error("{0}")]
    Unavailable(String),
    /// The effect may have taken place; the next tick observes it.
    #[error("the outcome is unknown: {0}")]
    Unknown(String),
    /// Another master has raised the epoch.
    #[error("deposed: {0}")]
    Deposed(String),
    /// The lock is lost, or may be.
    #[error("the lock is lost: {0}")]
    Lost(String),
}

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Plan again.
    Stale,
    /// Rejected: fails again until something is changed by hand.
    Refused,
    /// A transient failure of a server.
    Away,
    /// No longer master: stop acting.
    NotMaster,
}

impl Failure {
    /// The stored epoch is not `ours`.
    pub(crate) fn deposed_by(master: &MasterRecord, ours: Epoch) -> Self {
        Self::Deposed(format!("the epoch is {} of {}, ours is {ours}", master.epoch, master.holder))
    }

    pub const fn kind(&self) -> FailureKind {
        match self {
            Self::Moved(_) => FailureKind::Stale,
            Self::Refused(_) | Self::Blocked(_) => FailureKind::Refused,
            Self::Unavailable(_) | Self::Unknown(_) => FailureKind::Away,
            Self::Deposed(_) | Self::Lost(_) => FailureKind::NotMaster,
        }
    }
}
