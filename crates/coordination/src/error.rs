//! Errors of requests to ZooKeeper, classified by what the caller may conclude.
//!
//! All of them prove that nothing was written, except [`Error::OutcomeUnknown`]: the write may have happened, or may still
//! happen when the connection is restored.

use model::cause::Cause;
use model::{ErrorKind, UserError};
use thiserror::Error as ThisError;
use zookeeper_client as zk;

/// An error that ZooKeeper returned, or one that occurred before the request was sent.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum Error {
    /// The node does not exist. Nothing was written.
    #[error("node {path} does not exist")]
    NoNode { path: String },
    /// The node exists already. Nothing was written.
    #[error("node {path} exists")]
    NodeExists { path: String },
    /// The node has changed since it was read. Nothing was written.
    #[error("node {path} has changed")]
    BadVersion { path: String },
    /// The node has children that the caller did not read. Nothing was written.
    #[error("node {path} has children")]
    NotEmpty { path: String },
    /// The ACL of the node or of its parent denies the request. Nothing was written.
    #[error("permission denied for node {path}")]
    NoAuth { path: String },
    /// The ephemeral node belongs to another session, usually one that has not expired yet: retry until it is gone. Nothing
    /// was written.
    #[error("node {path} still belongs to session {session:#x}")]
    StillHeld { path: String, session: i64 },
    /// The content is too large. Nothing was sent.
    #[error("content of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge { bytes: usize, limit: usize },
    /// A node has more children, or a multi more operations, than the limit.
    #[error("node {path} has {count} children, more than {limit}")]
    TooMany { path: String, count: usize, limit: usize },
    /// The content of a node is malformed.
    #[error("node {path} is unreadable: {cause}")]
    Unreadable {
        path: String,
        #[source]
        cause: Cause,
    },
    /// The lease is lost, or may be: nothing was written.
    #[error("lost the master's lock: {0}")]
    LockLost(#[source] LockLoss),
    /// No connection, or no answer to a read: nothing was written.
    #[error("zookeeper is not available: {0}")]
    Unavailable(#[source] Cause),
    /// The server rejects our credential.
    #[error("zookeeper rejected the credential")]
    AuthFailed,
    /// The server or its client library rejects the request itself: a defect, or a wrong configuration.
    #[error("request for node {path} rejected: {cause}")]
    Refused {
        path: String,
        #[source]
        cause: Cause,
    },
    /// The write may have happened, or may still happen.
    #[error("outcome of the write to {path} is unknown: {cause}")]
    OutcomeUnknown {
        path: String,
        #[source]
        cause: Cause,
    },
}

/// Why the lease of a candidate or of the master is lost, or may be.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum LockLoss {
    /// The server may have ended the session already.
    #[error("no answer from zookeeper for two thirds of the session timeout")]
    NoAnswer,
    #[error("the session has ended: {0}")]
    SessionEnded(#[source] Cause),
    #[error("the node of the lock is gone")]
    NodeGone,
    #[error("the node of the lock has no sequence number")]
    NoSequenceNumber,
    #[error("the queue of candidates is gone")]
    QueueGone,
}

/// What the caller should do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZkErrorKind {
    /// The request was derived from a stale reading: read again.
    Conflict,
    /// A credential or an ACL is wrong: an operator must act.
    Denied,
    /// The lease is lost: step down.
    Lost,
    /// Nothing was written; a later try may succeed.
    Unavailable,
    /// The write may have happened.
    Unknown,
    /// The same request would fail again.
    Invalid,
}

/// Whether a request writes: an unanswered read has no unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Read,
    Write,
}

impl Error {
    pub const fn kind(&self) -> ZkErrorKind {
        match self {
            Self::NoNode { .. }
            | Self::NodeExists { .. }
            | Self::BadVersion { .. }
            | Self::NotEmpty { .. }
            | Self::StillHeld { .. } => ZkErrorKind::Conflict,
            Self::NoAuth { .. } | Self::AuthFailed => ZkErrorKind::Denied,
            Self::LockLost(_) => ZkErrorKind::Lost,
            Self::Unavailable(_) => ZkErrorKind::Unavailable,
            Self::OutcomeUnknown { .. } => ZkErrorKind::Unknown,
            Self::TooLarge { .. } | Self::TooMany { .. } | Self::Unreadable { .. } | Self::Refused { .. } => {
                ZkErrorKind::Invalid
            }
        }
    }

    /// The error as reported to the user; `object` names the object of the statement, such as `tenant "t_1"`.
    pub fn user(&self, object: &str) -> UserError {
        let error = |kind, text: &str| UserError::new(kind, format!("{object}: {text}"));
        match (self, self.kind()) {
            (Self::TooLarge { bytes, limit }, _) => error(ErrorKind::ProgramLimit, "statement too large")
                .detail(format!("Statement and previous object have {bytes} bytes; the limit is {limit} bytes.")),
            (_, ZkErrorKind::Unavailable) => error(ErrorKind::Unavailable, "zookeeper is not available")
                .detail(self.to_string())
                .hint("Nothing was changed. Retry the statement."),
            (_, ZkErrorKind::Conflict | ZkErrorKind::Lost) => {
                error(ErrorKind::Conflict, "state in zookeeper has changed concurrently")
                    .detail(self.to_string())
                    .hint("Nothing was changed. Retry the statement.")
            }
            (_, ZkErrorKind::Unknown) => {
                error(ErrorKind::OutcomeUnknown, "zookeeper did not answer in time").detail(self.to_string())
            }
            (_, ZkErrorKind::Denied) => error(ErrorKind::Internal, "zookeeper denies access to this process")
                .detail(self.to_string())
                .hint("All roles of an installation need keys of the same root key (cluster.keys), and each installation needs a root of its own in ZooKeeper (zookeeper.root)."),
            (_, ZkErrorKind::Invalid) => {
                error(ErrorKind::Internal, "invalid state in zookeeper").detail(self.to_string())
            }
        }
    }

    /// Classifies an error of the client library. The outcome is unknown unless the error is a definite answer of the server.
    pub(crate) fn from_client(error: zk::Error, effect: Effect, path: &str) -> Self {
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
            | zk::Error::ReconfigDisabled => Self::Refused { path, cause: error.into() },
            zk::Error::NotReadOnly | zk::Error::Throttled => Self::Unavailable(error.into()),
            other => Self::unanswered(effect, &path, other),
        }
    }

    /// No answer, or no definite one.
    pub(crate) fn unanswered(effect: Effect, path: &str, cause: impl Into<Cause>) -> Self {
        match effect {
            Effect::Read => Self::unavailable(cause),
            Effect::Write => Self::OutcomeUnknown { path: path.to_owned(), cause: cause.into() },
        }
    }

    pub(crate) fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::Unavailable(cause.into())
    }
}

/// Whether the error is an answer of the server, which proves that the session was alive when the request arrived.
pub(crate) fn is_answer(error: &Error) -> bool {
    matches!(error.kind(), ZkErrorKind::Conflict | ZkErrorKind::Denied)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic)]
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_write_without_a_definite_answer_has_an_unknown_outcome() {
        let indefinite = [
            zk::Error::ConnectionLoss,
            zk::Error::SessionExpired,
            zk::Error::SessionMoved,
            zk::Error::ClientClosed,
            zk::Error::Timeout,
            zk::Error::RuntimeInconsistent,
            zk::Error::UnexpectedErrorCode(-777),
            zk::Error::UnexpectedError("no answer".to_owned()),
        ];
        for error in indefinite {
            assert_eq!(Error::from_client(error.clone(), Effect::Write, "/x").kind(), ZkErrorKind::Unknown, "{error}");
            assert_eq!(
                Error::from_client(error.clone(), Effect::Read, "/x").kind(),
                ZkErrorKind::Unavailable,
                "{error}"
            );
        }
    }

    #[test]
    fn the_error_of_the_client_library_is_the_cause() {
        let error = Error::from_client(zk::Error::ConnectionLoss, Effect::Write, "/x");
        let Error::OutcomeUnknown { cause, .. } = &error else { panic!("{error}") };
        assert!(cause.is::<zk::Error>(), "the cause keeps its type: {cause:?}");
        assert_eq!(model::cause::chain(&error).to_string(), error.to_string(), "the cause is printed once");
    }

    #[test]
    fn the_error_that_ended_the_session_is_the_cause_of_the_lost_lock() {
        let expired = Error::from_client(zk::Error::SessionExpired, Effect::Read, "/x");
        let error = Error::LockLost(LockLoss::SessionEnded(expired.clone().into()));
        let (mut cause, mut keeps_type) = (error.source(), false);
        while let Some(error) = cause {
            keeps_type |= error.is::<zk::Error>();
            cause = error.source();
        }
        assert!(keeps_type, "the cause keeps its type: {error:?}");
        let text = format!("lost the master's lock: the session has ended: {expired}");
        assert_eq!(model::cause::chain(&error).to_string(), text, "each cause is printed once");
    }

    #[test]
    fn user_errors_name_the_object() {
        let error = Error::TooLarge { bytes: 600_000, limit: 524_288 }.user("tenant \"t_1\"");
        assert_eq!(error.sqlstate(), "54000");
        assert!(error.message.starts_with("tenant \"t_1\""));
        let error = Error::OutcomeUnknown { path: "/x".to_owned(), cause: "timeout".into() }.user("tenant \"t_1\"");
        assert_eq!(error.sqlstate(), "08007");
    }
}
