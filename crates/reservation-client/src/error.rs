//! Errors of calls.

use std::fmt;
use std::time::Duration;

use model::ledger::{LedgerError, ReservationStatus};
use serde::Deserialize;

/// The code of a reservation that does not exist in the state that its holder assumes.
const UNKNOWN_RESERVATION: i32 = model::error::UNKNOWN_RESERVATION;
/// The code of a pool whose capacity is not registered.
const POOL_NOT_REGISTERED: i32 = model::error::POOL_NOT_REGISTERED;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The call was refused, and changed nothing.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The reservation has ended: it waited too long, was not confirmed in time, or was cancelled.
    #[error("reservation \"{}\" is {}", .0.id, .0.state)]
    Ended(Box<ReservationStatus>),
    /// The lease ended before it could be renewed.
    #[error("the lease ended after {} ms without a renewal: {reason}", .lease.as_millis())]
    LeaseEnded { lease: Duration, reason: String },
    /// No proxy decided the call in time. It may have taken effect: repeat it, a request under its key.
    #[error("no proxy responded within {} ms: {reason}", .deadline.as_millis())]
    NoResponse { deadline: Duration, reason: String },
    /// The response is none of the API.
    #[error("unexpected response: {0}")]
    Protocol(String),
}

impl Error {
    /// Whether the reservation is lost, so that the holder must stop its work.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Refused(problem) => {
                problem.ledger.as_ref().is_some_and(|ledger| ledger.error_code == UNKNOWN_RESERVATION)
            }
            Self::Ended(_) | Self::LeaseEnded { .. } => true,
            Self::NoResponse { .. } | Self::Protocol(_) => false,
        }
    }

    /// Whether the capacity of the pool is not registered: by the instance that renews it, or by any for a request.
    pub fn is_unregistered(&self) -> bool {
        let Self::Refused(problem) = self else { return false };
        problem.ledger.as_ref().is_some_and(|ledger| ledger.error_code == POOL_NOT_REGISTERED)
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.ledger.as_ref().is_some_and(|ledger| ledger.retryable),
            Self::NoResponse { .. } => true,
            Self::Ended(_) | Self::LeaseEnded { .. } | Self::Protocol(_) => false,
        }
    }
}

/// Problem details of a refused call (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// The primary message.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Five characters.
    pub sqlstate: String,
    #[serde(default)]
    pub detail: Option<String>,
    #[serde(default)]
    pub hint: Option<String>,
    /// What the ledger says about it, with the amounts of a shortage.
    #[serde(flatten)]
    pub ledger: Option<LedgerError>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.title, self.sqlstate)?;
        match &self.detail {
            Some(detail) => write!(f, ": {detail}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn refused(text: &str) -> Error {
        Error::Refused(Box::new(serde_json::from_str(text).unwrap()))
    }

    #[test]
    fn a_problem_has_the_members_of_the_ledger_if_there_are_any() {
        let short = refused(
            r#"{"title": "not enough CPU", "status": 409, "sqlstate": "53000", "detail": "D.", "errorCode": 46021,
            "code": "TENANT_CPU", "retryable": true, "scope": {"kind": "tenant", "name": "t_a/rp_1"}, "of": "limit",
            "component": "cpu", "asked": 1000, "left": 0, "limit": 18000}"#,
        );
        assert!(short.is_retryable() && !short.is_lost());
        assert_eq!(short.to_string(), "not enough CPU (53000): D.");
        let Error::Refused(problem) = &short else { unreachable!() };
        let shortage = problem.ledger.as_ref().unwrap().shortage.as_ref().unwrap();
        assert_eq!((shortage.asked, shortage.left, shortage.limit), (1_000, 0, 18_000));
        let unknown = refused(
            r#"{"title": "t", "status": 404, "sqlstate": "42704", "errorCode": 46061, "code": "UNKNOWN_RESERVATION",
            "retryable": false}"#,
        );
        assert!(unknown.is_lost() && !unknown.is_retryable());
        let other = refused(r#"{"title": "t", "status": 403, "sqlstate": "42501"}"#);
        assert!(!other.is_lost() && !other.is_retryable());
    }
}
