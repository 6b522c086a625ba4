//! What an error of the API server means, by what the caller should do next.
//!
//! | answer | failure |
//! | --- | --- |
//! | 404 | *absent* |
//! | 409 `AlreadyExists` | *exists* |
//! | 409 otherwise: a precondition or a version that is not met, a quota that is being counted | *moved* |
//! | 429, and whatever else names a time to wait | *busy* |
//! | 403, unless the namespace is on its way out | *denied* |
//! | 400, 405, 406, 413, 415, 422 | *invalid* |
//! | anything else: 401 (a token is being renewed), 410, 5xx, no answer | *passing*: it may have been done |

use std::time::Duration;

use kube::core::Status;

use crate::Error;

/// The longest pause that a server's `Retry-After` is obeyed for.
pub const MAX_PAUSE: Duration = Duration::from_mins(1);
/// The pause after a 429 that names none.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// The word of a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Why a call had no effect, or (passing) may have had one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It is not there: the object, or the namespace that it should be in.
    Absent(String),
    /// Something of that name is there.
    Exists(String),
    /// It is not as the call supposed.
    Moved(String),
    /// The server has too much to do; for how long it is to be left alone.
    Busy(String, Duration),
    /// We may not, or a quota is used up.
    Denied(String),
    /// The same request is never accepted.
    Invalid(String),
    /// It may work later, and it may have worked.
    Passing(String),
}

impl Failure {
    /// What the error of a call means.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(status),
            other => Self::Passing(words(other)),
        }
    }

    /// What a refusal of the server means.
    pub fn of_status(status: &Status) -> Self {
        let text = if status.message.is_empty() { status.reason.clone() } else { status.message.clone() };
        let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        if status.code == 429 || (seconds > 0 && status.code >= 500) {
            let pause = if seconds > 0 { Duration::from_secs(u64::from(seconds)) } else { DEFAULT_PAUSE };
            return Self::Busy(text, pause.min(MAX_PAUSE));
        }
        match status.code {
            404 => Self::Absent(text),
            409 if status.reason == "AlreadyExists" => Self::Exists(text),
            409 => Self::Moved(text),
            403 if causes.iter().any(|cause| cause.reason == NAMESPACE_TERMINATING) => Self::Passing(text),
            403 => Self::Denied(text),
            400 | 405 | 406 | 413 | 415 | 422 => Self::Invalid(text),
            code => Self::Passing(format!("{text} ({code})")),
        }
    }

    /// No answer within that time.
    pub fn late(deadline: Duration) -> Self {
        Self::Passing(format!("no answer within {} s", deadline.as_secs()))
    }

    /// As an error of a verb. What must be told apart by the verb (absent, exists, moved) is passing here.
    pub fn into_error(self, doing: &str) -> Error {
        match self {
            Self::Denied(text) if is_quota(&text) => Error::refused(format!("{doing}: the quota is used up: {text}")),
            Self::Denied(text) => Error::refused(format!("{doing}: a right is missing: {text}")),
            Self::Invalid(text) => Error::refused(format!("{doing}: {text}")),
            Self::Busy(text, pause) => {
                Error::transient(format!("{doing}: the API server asks to wait {} s: {text}", pause.as_secs()))
            }
            Self::Absent(text) | Self::Exists(text) | Self::Moved(text) | Self::Passing(text) => {
                Error::transient(format!("{doing}: {text}"))
            }
        }
    }
}

fn is_quota(text: &str) -> bool {
    text.contains("exceeded quota")
}

/// The chain of causes: the first link of a client's error says only that something failed.
fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(status: Value) -> Failure {
        Failure::of_status(&serde_json::from_value(status).unwrap())
    }

    #[test]
    fn each_code_is_told_by_what_to_do_next() {
        let of = |code: u16, reason: &str| of(json!({"code": code, "reason": reason, "message": "words"}));
        assert_eq!(of(404, "NotFound"), Failure::Absent("words".to_owned()));
        assert_eq!(of(409, "AlreadyExists"), Failure::Exists("words".to_owned()));
        assert_eq!(of(409, "Conflict"), Failure::Moved("words".to_owned()));
        assert_eq!(of(403, "Forbidden"), Failure::Denied("words".to_owned()));
        assert_eq!(of(422, "Invalid"), Failure::Invalid("words".to_owned()));
        for code in [401, 410, 500, 502, 503, 504] {
            assert!(matches!(of(code, ""), Failure::Passing(_)), "{code}");
        }
    }

    #[test]
    fn a_pause_is_obeyed_within_a_limit() {
        let busy = |code: u16, seconds: u32| {
            of(json!({"code": code, "message": "m", "details": {"retryAfterSeconds": seconds}}))
        };
        assert_eq!(busy(429, 7), Failure::Busy("m".to_owned(), Duration::from_secs(7)));
        assert_eq!(busy(429, 0), Failure::Busy("m".to_owned(), DEFAULT_PAUSE));
        assert_eq!(busy(503, 3_600), Failure::Busy("m".to_owned(), MAX_PAUSE));
        assert!(matches!(busy(503, 0), Failure::Passing(_)));
    }

    #[test]
    fn a_namespace_on_its_way_out_passes_and_a_quota_is_called_one() {
        let going = json!({"code": 403, "reason": "Forbidden", "message": "m", "details": {"causes":
            [{"reason": "NamespaceTerminating", "message": "x", "field": "metadata.namespace"}]}});
        assert!(of(going).into_error("make pod a").is_retryable());
        let full = Failure::Denied("pods \"a\" is forbidden: exceeded quota: q".to_owned()).into_error("make pod a");
        assert!(matches!(&full, Error::Refused { reason } if reason.contains("the quota is used up")), "{full}");
        let may_not = Failure::Denied("cannot create resource \"pods\"".to_owned()).into_error("make pod a");
        assert!(matches!(&may_not, Error::Refused { reason } if reason.contains("a right is missing")), "{may_not}");
    }
}
