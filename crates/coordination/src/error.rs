//! What can go wrong with a request to ZooKeeper, sorted by what the caller may conclude from it.
//!
//! The line that matters runs between errors that prove that nothing was written and [`Error::OutcomeUnknown`], after
//! which the write may have happened, or may still happen when the connection comes back.

use model::{ErrorKind, UserError};
use thiserror::Error as ThisError;
use zookeeper_client as zk;

/// An error of ZooKeeper, or of ours before something was sent.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The node is not there. Nothing was written.
    #[error("node {path} does not exist")]
    NoNode {
        /// Which node.
        path: String,
    },
    /// The node is there already. Nothing was written.
    #[error("node {path} exists")]
    NodeExists {
        /// Which node.
        path: String,
    },
    /// The node has changed since it was read. Nothing was written.
    #[error("node {path} has changed")]
    BadVersion {
        /// Which node.
        path: String,
    },
    /// The node has children that the caller has not seen. Nothing was written.
    #[error("node {path} has children")]
    NotEmpty {
        /// Which node.
        path: String,
    },
    /// The node's ACL, or its parent's, refuses us. Nothing was written.
    #[error("not allowed at node {path}")]
    NoAuth {
        /// Which node.
        path: String,
    },
    /// The ephemeral node is another session's, usually a dead one's that has not expired yet: ask again until it is
    /// gone. Nothing was written.
    #[error("node {path} still belongs to session {session:#x}")]
    StillHeld {
        /// Which node.
        path: String,
        /// Its session.
        session: i64,
    },
    /// What should be written is too big. Nothing was sent.
    #[error("{bytes} bytes are more than the {limit} that a node may have")]
    TooLarge {
        /// How big it is.
        bytes: usize,
        /// How big it may be.
        limit: usize,
    },
    /// A node has more children than we are ready to read.
    #[error("node {path} has {count} children, more than {limit}")]
    TooMany {
        /// Which node.
        path: String,
        /// How many it has.
        count: usize,
        /// How many it may have.
        limit: usize,
    },
    /// A node holds what can't be what it should.
    #[error("node {path} is unreadable: {reason}")]
    Unreadable {
        /// Which node.
        path: String,
        /// Why.
        reason: String,
    },
    /// We are not the master, or can't be sure of it: nothing was written.
    #[error("the master's lock is lost: {reason}")]
    LockLost {
        /// How we know.
        reason: String,
    },
    /// No connection, or no answer to a question: nothing was written.
    #[error("zookeeper can't be reached: {reason}")]
    Unavailable {
        /// What is missing.
        reason: String,
    },
    /// The server refuses our credential.
    #[error("zookeeper refuses the credential")]
    AuthFailed,
    /// The server or its client library refuses the request as such: a defect of ours, or of the configuration.
    #[error("request for node {path} refused: {reason}")]
    Refused {
        /// Which node.
        path: String,
        /// Why.
        reason: String,
    },
    /// The write may have happened, or may still happen.
    #[error("it is unknown whether {path} was written: {reason}")]
    OutcomeUnknown {
        /// Which node.
        path: String,
        /// What came instead of an answer.
        reason: String,
    },
}

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZkErrorKind {
    /// What the request was derived from has moved: read again.
    Conflict,
    /// Not allowed: a credential or an ACL is wrong, and only a human can help.
    Denied,
    /// The lock is lost: step down.
    Lost,
    /// Nothing was written; a later try may succeed.
    Unavailable,
    /// The write may have happened.
    Unknown,
    /// The same request fails again.
    Invalid,
}

/// Whether a request writes: an unanswered question has no outcome that could be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

impl Error {
    /// What the caller does about it.
    pub const fn kind(&self) -> ZkErrorKind {
        match self {
            Self::NoNode { .. }
            | Self::NodeExists { .. }
            | Self::BadVersion { .. }
            | Self::NotEmpty { .. }
            | Self::StillHeld { .. } => ZkErrorKind::Conflict,
            Self::NoAuth { .. } | Self::AuthFailed => ZkErrorKind::Denied,
            Self::LockLost { .. } => ZkErrorKind::Lost,
            Self::Unavailable { .. } => ZkErrorKind::Unavailable,
            Self::OutcomeUnknown { .. } => ZkErrorKind::Unknown,
            Self::TooLarge { .. } | Self::TooMany { .. } | Self::Unreadable { .. } | Self::Refused { .. } => {
                ZkErrorKind::Invalid
            }
        }
    }

    /// The error as a user reads it; `object` names what the statement was about, such as `tenant "t_1"`.
    pub fn user(&self, object: &str) -> UserError {
        let error = |kind, text: &str| UserError::new(kind, format!("{object}: {text}"));
        match (self, self.kind()) {
            (Self::TooLarge { bytes, limit }, _) => error(ErrorKind::ProgramLimit, "the statement is too big")
                .detail(format!("statement and old object have {bytes} bytes and may have {limit}")),
            (_, ZkErrorKind::Unavailable) => error(ErrorKind::Unavailable, "zookeeper can't be reached now")
                .detail(self.to_string())
                .hint("nothing was changed, try again"),
            (_, ZkErrorKind::Conflict | ZkErrorKind::Lost) => {
                error(ErrorKind::Conflict, "zookeeper's state has changed meanwhile")
                    .detail(self.to_string())
                    .hint("nothing was changed, try again")
            }
            (_, ZkErrorKind::Unknown) => {
                error(ErrorKind::OutcomeUnknown, "zookeeper did not answer in time").detail(self.to_string())
            }
            (_, ZkErrorKind::Denied) => error(ErrorKind::Internal, "zookeeper refuses this process")
                .detail(self.to_string())
                .hint("every process of an installation needs the same cluster secret and a root of its own"),
            (_, ZkErrorKind::Invalid) => {
                error(ErrorKind::Internal, "zookeeper holds what it should not").detail(self.to_string())
            }
        }
    }

    /// Sorts an answer of the client library. What is not a plain answer of the server leaves the outcome open.
    pub(crate) fn of(error: &zk::Error, effect: Effect, path: &str) -> Self {
        let path = path.to_owned();
        match error {
            zk::Error::NoNode => Self::NoNode { path },
            zk::Error::NodeExists => Self::NodeExists { path },
            zk::Error::BadVersion => Self::BadVersion { path },
            zk::Error::NotEmpty => Self::NotEmpty { path },
            zk::Error::NoAuth => Self::NoAuth { path },
            zk::Error::AuthFailed => Self::AuthFailed,
            zk::Error::InvalidAcl
            | zk::Error::BadArguments(_)
            | zk::Error::NoChildrenForEphemerals
            | zk::Error::QuotaExceeded
            | zk::Error::Unimplemented
            | zk::Error::MarshallingError
            | zk::Error::ReconfigDisabled => Self::Refused { path, reason: error.to_string() },
            zk::Error::NotReadOnly | zk::Error::Throttled => Self::Unavailable { reason: error.to_string() },
            other => Self::unanswered(effect, &path, other.to_string()),
        }
    }

    /// No answer came, or none that means anything.
    pub(crate) fn unanswered(effect: Effect, path: &str, reason: String) -> Self {
        match effect {
            Effect::Read => Self::Unavailable { reason },
            Effect::Write => Self::OutcomeUnknown { path: path.to_owned(), reason },
        }
    }

    pub(crate) fn lock_lost(reason: impl Into<String>) -> Self {
        Self::LockLost { reason: reason.into() }
    }
}

/// Whether the server has spoken: such an error proves that the session lived when the request arrived.
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ZkErrorKind::Conflict | ZkErrorKind::Denied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plain_answer_leaves_the_outcome_of_a_write_open() {
        let open = [
            zk::Error::ConnectionLoss,
            zk::Error::SessionExpired,
            zk::Error::SessionMoved,
            zk::Error::ClientClosed,
            zk::Error::Timeout,
            zk::Error::RuntimeInconsistent,
            zk::Error::UnexpectedErrorCode(-777),
            zk::Error::UnexpectedError("no answer".to_owned()),
        ];
        for error in open {
            assert_eq!(Error::of(&error, Effect::Write, "/x").kind(), ZkErrorKind::Unknown, "{error}");
            assert_eq!(Error::of(&error, Effect::Read, "/x").kind(), ZkErrorKind::Unavailable, "{error}");
        }
    }

    #[test]
    fn users_read_whose_object_it_was_and_what_to_do() {
        let error = Error::TooLarge { bytes: 600_000, limit: 524_288 }.user("tenant \"t_1\"");
        assert_eq!(error.sqlstate(), "54000");
        assert!(error.message.starts_with("tenant \"t_1\""));
        let error =
            Error::OutcomeUnknown { path: "/x".to_owned(), reason: "timeout".to_owned() }.user("tenant \"t_1\"");
        assert_eq!(error.sqlstate(), "08007");
    }
}
