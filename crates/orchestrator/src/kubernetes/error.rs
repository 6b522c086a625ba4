//! Errors of API calls, classified by what the caller should do next.
//!
//! | reply | error |
//! | --- | --- |
//! | 404 | *not found* |
//! | 409 `AlreadyExists` | *already exists* |
//! | 409 otherwise: a precondition or a version that does not hold, a quota that is being counted | *conflict* |
//! | 429, and any other reply with `Retry-After` | *too many requests* |
//! | 403, unless the namespace is terminating | *forbidden* |
//! | 400, 405, 406, 413, 415, 422 | *invalid* |
//! | anything else: 401 (a token is being renewed), 410, 5xx, no reply | *transient*: the call may have had its effect |

use std::time::Duration;

use kube::core::Status;
use model::cause::Cause;

use crate::Error;

/// The longest `Retry-After` that is obeyed.
pub const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// The delay after a 429 without `Retry-After`.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The cause of a refusal in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Why a call had no effect, or (transient) may have had one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The object, or its namespace, does not exist.
    NotFound(String),
    AlreadyExists(String),
    /// The object is not in the state that the call expects.
    Conflict(String),
    /// The server is overloaded.
    TooManyRequests {
        message: String,
        /// How long to send no effects.
        retry_after: Duration,
    },
    /// We lack a permission, or a quota is exceeded.
    Forbidden(String),
    /// The same request is never accepted.
    Invalid(String),
    /// The call may succeed later, and it may have succeeded.
    Transient(String),
    /// As [`CallError::Transient`]: no reply, or not one of an API server.
    Client(Cause),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::from_status(&status),
            other => Self::Client(other.into()),
        }
    }
}

impl CallError {
    /// Classifies an error status of the server.
    pub fn from_status(status: &Status) -> Self {
        let message = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        if status.code == 429 || (seconds > 0 && status.code >= 500) {
            let delay = if seconds > 0 { Duration::from_secs(u64::from(seconds)) } else { DEFAULT_RETRY_AFTER };
            return Self::TooManyRequests { message, retry_after: delay.min(MAX_RETRY_AFTER) };
        }
        match status.code {
            404 => Self::NotFound(message),
            409 if status.reason == "AlreadyExists" => Self::AlreadyExists(message),
            409 => Self::Conflict(message),
            403 if causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING) => Self::Transient(message),
            403 => Self::Forbidden(message),
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid(message),
            code => Self::Transient(format!("{message} ({code})")),
        }
    }

    /// No reply within the deadline.
    pub fn timeout(deadline: Duration) -> Self {
        Self::Transient(format!("no reply within {} s", deadline.as_secs()))
    }

    /// Converts to the error of a verb. Not found, already exists and conflict become transient: a verb for which they mean
    /// something else handles them before.
    pub fn into_error(self, action: &str) -> Error {
        match self {
            Self::Forbidden(text) if is_quota(&text) => {
                Error::Limit { reason: format!("{action}: quota exceeded: {text}") }
            }
            Self::Forbidden(text) => Error::refused(format!("{action}: permission denied: {text}")),
            Self::Invalid(text) => Error::refused(format!("{action}: {text}")),
            Self::TooManyRequests { message, retry_after } => Error::transient(format!(
                "{action}: the API server asks to retry after {} s: {message}",
                retry_after.as_secs()
            )),
            Self::NotFound(text) | Self::AlreadyExists(text) | Self::Conflict(text) | Self::Transient(text) => {
                Error::transient(format!("{action}: {text}"))
            }
            Self::Client(cause) => Error::transient(action).caused_by(cause),
        }
    }
}

fn is_quota(text: &str) -> bool {
    text.contains("exceeded quota")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn classify(status: Value) -> CallError {
        CallError::from_status(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn each_code_is_classified_by_what_to_do_next() {
        let of_code = |code: u16, reason: &str| classify(json!({"code": code, "reason": reason, "message": "words"}));
        assert_eq!(of_code(404, "NotFound"), CallError::NotFound("words".to_owned()));
        assert_eq!(of_code(409, "AlreadyExists"), CallError::AlreadyExists("words".to_owned()));
        assert_eq!(of_code(409, "Conflict"), CallError::Conflict("words".to_owned()));
        assert_eq!(of_code(403, "Forbidden"), CallError::Forbidden("words".to_owned()));
        assert_eq!(of_code(422, "Invalid"), CallError::Invalid("words".to_owned()));
        for code in [401, 410, 500, 502, 503, 504] {
            assert!(matches!(of_code(code, ""), CallError::Transient(_)), "{code}");
        }
    }

    #[test]
    fn retry_after_is_obeyed_within_a_limit() {
        let busy = |code: u16, seconds: u32| {
            classify(json!({"code": code, "message": "m", "details": {"retryAfterSeconds": seconds}}))
        };
        let after = |retry_after| CallError::TooManyRequests { message: "m".to_owned(), retry_after };
        assert_eq!(busy(429, 7), after(Duration::from_secs(7)));
        assert_eq!(busy(429, 0), after(DEFAULT_RETRY_AFTER));
        assert_eq!(busy(503, 3_600), after(MAX_RETRY_AFTER));
        assert!(matches!(busy(503, 0), CallError::Transient(_)));
    }

    #[test]
    fn a_terminating_namespace_is_transient_and_a_quota_is_named() {
        let terminating = json!({"code": 403, "reason": "Forbidden", "message": "m", "details": {"causes":
            [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}});
        assert!(classify(terminating).into_error("create pod a").is_retryable());
        let full = CallError::Forbidden("pods \"a\" is forbidden: exceeded quota: q".to_owned());
        let full = full.into_error("create pod a");
        assert!(matches!(&full, Error::Limit { reason } if reason.contains("quota exceeded")), "{full}");
        let denied = CallError::Forbidden("cannot create resource \"pods\"".to_owned()).into_error("create pod a");
        assert!(matches!(&denied, Error::Refused { reason, .. } if reason.contains("permission denied")), "{denied}");
    }
}
