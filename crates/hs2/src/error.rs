//! Errors of a connection and of the messages on it.

use std::io;
use std::time::Duration;

use model::error::{ErrorKind, UserError};

use crate::limit_hits::Limit;
use crate::rowset::RowSetError;
use crate::scan::ScanError;

/// A connection or a message failed.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The error of the operating system.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The HTTP connection of a client failed, or its request was malformed.
    #[error("the HTTP connection failed: {0}")]
    Http(#[from] hyper::Error),
    /// The peer closed it in the middle of a message.
    #[error("the connection was closed in the middle of a message")]
    ClosedInside,
    /// A message longer than its limit.
    #[error("a message of {bytes} bytes is longer than the limit of {limit}")]
    TooLong {
        /// The length that the peer announced, or the least that its message has.
        bytes: usize,
        limit: usize,
    },
    /// The bytes are not a message of the protocol.
    #[error("malformed message: {0}")]
    Scan(#[from] ScanError),
    /// The bytes are a message, but not of the struct that was expected.
    #[error("malformed message: {0}")]
    Decode(String),
    /// The same, found by the generated code.
    #[error("malformed message: {}", text_of(.0))]
    Thrift(#[from] thrift::Error),
    /// The same, found in a result set.
    #[error("malformed message: {0}")]
    RowSet(#[from] RowSetError),
    /// The peer answered with a `TApplicationException`.
    #[error("the server answered: {text}")]
    Application {
        /// See [`crate::message::ExceptionKind`].
        kind: i32,
        text: String,
    },
    /// A request had to wait for memory for too long. Nothing of it but its length, and what arrived with that, was read.
    #[error("no memory for a request of {bytes} bytes within {} s: {}", .waited.as_secs_f64().ceil(), reason_of(*.limit))]
    NoRequestMemory {
        /// The length that it has or may reach.
        bytes: usize,
        /// The one that was reached: [`Limit::RequestMemory`] or [`Limit::RequestMemoryPerUser`].
        limit: Limit,
        waited: Duration,
    },
    /// No progress within the named limit.
    #[error("no progress within {0}")]
    Stalled(&'static str),
}

/// The error of a request that had to wait for memory for too long.
pub(crate) fn no_request_memory(bytes: usize, limit: Limit, waited: Duration) -> UserError {
    let (seconds, reason) = (waited.as_secs_f64().ceil(), reason_of(limit));
    UserError::new(ErrorKind::ProgramLimit, "too many bytes of requests are being received")
        .detail(format!("The request may take {bytes} bytes and has waited {seconds} s, because {reason}."))
        .hint(format!("Retry later. The limit of a proxy is proxy.{}.", limit.name()))
}

/// Why there is no memory for a request.
const fn reason_of(limit: Limit) -> &'static str {
    match limit {
        Limit::RequestMemoryPerUser => "other requests of the user are arriving",
        _ => "other requests are arriving",
    }
}

/// The cause of a [`WireError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireErrorKind {
    /// The connection ended; neither side violated the protocol.
    Gone,
    /// The peer violated the protocol or a limit.
    Protocol,
    /// The peer does not know the method or could not decode the call; the connection is usable.
    Application,
}

impl WireError {
    /// Only after [`WireErrorKind::Application`] may the connection be used again.
    pub fn kind(&self) -> WireErrorKind {
        match self {
            Self::Io(_) | Self::Http(_) | Self::ClosedInside | Self::Stalled(_) => WireErrorKind::Gone,
            Self::TooLong { .. }
            | Self::NoRequestMemory { .. }
            | Self::Scan(_)
            | Self::Decode(_)
            | Self::Thrift(_)
            | Self::RowSet(_) => WireErrorKind::Protocol,
            Self::Application { .. } => WireErrorKind::Application,
        }
    }

    /// The error for a user's statement; `peer` names the other end: `engine "x"`.
    pub fn user_error(&self, peer: &str) -> UserError {
        let (kind, what) = match self.kind() {
            WireErrorKind::Gone => (ErrorKind::ConnectionLost, "the connection was lost"),
            WireErrorKind::Protocol => (ErrorKind::ConnectionLost, "its message could not be decoded"),
            WireErrorKind::Application => (ErrorKind::NotSupported, "it does not know the call"),
        };
        UserError::new(kind, format!("{peer} did not answer: {what}")).detail(self.to_string())
    }
}

/// The error with its description, which `thrift` leaves out.
fn text_of(error: &thrift::Error) -> String {
    match error {
        // Only these two have a description in a field of their own.
        thrift::Error::Protocol(error) => format!("{error} ({})", error.message),
        thrift::Error::Transport(error) => format!("{error} ({})", error.message),
        other => other.to_string(),
    }
}
