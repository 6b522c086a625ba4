//! The timeout of one statement: the shorter of its client's `queryTimeout` and its session's setting.
//!
//! It starts when the statement arrives, so waiting for an engine counts. The timeout of a resource unit starts when the
//! statement is sent to the engine. Engines apply the remaining time themselves (`queryTimeout` of their request); the
//! proxy applies it before that, and where an engine does not reply.

use std::time::Duration;

use hs2::scan::Request;
use model::error::{ErrorKind, UserError};

/// The deadline of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeout {
    /// The whole time that the statement may take.
    length: Duration,
    /// The deadline, by the clock that counts suspension.
    pub(crate) ends: Duration,
}

impl Timeout {
    /// The timeout of a request that arrives now; `None` if it has none.
    pub(crate) fn new(request: &Request, of_session: Option<Duration>, now: Duration) -> Option<Self> {
        let of_client =
            u64::try_from(request.query_timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let length = model::statement_timeout::shorter(of_client, of_session)?.min(model::span::MAX_SPAN);
        Some(Self { length, ends: now + length })
    }

    /// The remaining time.
    pub(crate) fn left(&self, now: Duration) -> Duration {
        self.ends.saturating_sub(now)
    }

    /// The error of a statement that did not end in time.
    pub(crate) fn error(&self) -> UserError {
        timed_out(self.length)
    }

    /// The same for a statement that waited for an engine until then.
    pub(crate) fn error_waiting_for(&self, reason: &str) -> UserError {
        timed_out(self.length).detail(format!("After {}: {reason}.", model::span::print(self.length)))
    }
}

/// The error of a statement that did not end within this time.
pub(crate) fn timed_out(length: Duration) -> UserError {
    UserError::new(ErrorKind::Timeout, "canceling statement due to statement timeout")
        .detail(format!("The statement did not end within {}.", model::span::print(length)))
}

/// Whole seconds for the wire, rounded up; at least one, because zero means no timeout.
pub(crate) fn seconds(left: Duration) -> i64 {
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
