//! The timeout of one statement: its client's `queryTimeout` and its session's setting, whichever is shorter.
//!
//! It counts from the moment when the statement arrived, so that the time in which it waits for an engine counts too.
//! The timeout of a resource unit counts from the moment when the engine is sent the statement. Engines apply what is
//! left themselves (`queryTimeout` of the request that they are sent); the proxy applies it before that, and where an
//! engine does not answer.

use std::time::Duration;

use hs2::scan::Request;
use model::error::{ErrorKind, UserError};

/// When a statement has to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timeout {
    /// How long it may take in all.
    length: Duration,
    /// When it has to have ended, by the clock that counts suspension.
    pub(super) ends: Duration,
}

impl Timeout {
    /// The timeout of a request that arrives now; `None` if it may take any time.
    pub(super) fn of(request: &Request, of_session: Option<Duration>, now: Duration) -> Option<Self> {
        let asked = u64::try_from(request.query_timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let length = model::statement_timeout::shorter(asked, of_session)?.min(model::span::MAX_SPAN);
        Some(Self { length, ends: now + length })
    }

    /// What is left of it.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }

    /// The error of a statement that did not end in time.
    pub(super) fn error(&self) -> UserError {
        timed_out(self.length)
    }

    /// The error of a statement that did not end in time because of what it waited for.
    pub(super) fn error_waiting_for(&self, reason: &str) -> UserError {
        timed_out(self.length).detail(format!("After {}: {reason}", model::span::print(self.length)))
    }
}

/// The error of a statement that did not end within this time.
pub(super) fn timed_out(length: Duration) -> UserError {
    UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout")
        .detail(format!("The statement did not end within {}.", model::span::print(length)))
}

/// Whole seconds for the wire: never less than is left, and at least one, because zero means no timeout.
pub(super) fn seconds(left: Duration) -> i64 {
    let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    i64::try_from(whole).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_for_the_wire_are_rounded_up_and_never_zero() {
        for (left_ms, expected) in [(0, 1), (1, 1), (1_000, 1), (1_001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(left_ms)), expected, "{left_ms} ms");
        }
    }
}
