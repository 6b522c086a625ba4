//! The time limits of sessions, and the errors by which clients learn of them.
//!
//! A session is closed when it has been idle for too long. One that is too old is refused new calls first, and closed when its
//! statements have ended. The errors are those of a server that is away (57P03): connection pools then discard the connection, and no
//! statement was executed.

use std::time::Duration;

use model::error::{ErrorKind, UserError};

/// A limit that a session has exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    Idle(Duration),
    /// Idle, of a session over HTTP.
    HttpIdle(Duration),
    Age(Duration),
}

impl TimeLimit {
    /// The key in the configuration.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Idle(_) => "proxy.session_idle",
            Self::HttpIdle(_) => "proxy.http_session_idle",
            Self::Age(_) => "proxy.session_age",
        }
    }

    pub(crate) const fn length(self) -> Duration {
        match self {
            Self::Idle(length) | Self::HttpIdle(length) | Self::Age(length) => length,
        }
    }

    /// The error of a call of a session that was closed.
    pub(crate) fn closed(self) -> UserError {
        self.error(match self {
            Self::Idle(_) | Self::HttpIdle(_) => "the session was closed because it was idle",
            Self::Age(_) => "the session was closed because it was too old",
        })
    }

    fn error(self, message: &str) -> UserError {
        let length = model::span::print(self.length());
        let detail = match self {
            Self::Idle(_) | Self::HttpIdle(_) => format!("No call named it for {length}."),
            Self::Age(_) => format!("It was opened more than {length} ago."),
        };
        UserError::new(ErrorKind::Unavailable, message)
            .detail(detail)
            .hint(format!("Open a new session. The limit is {}.", self.key()))
    }
}

/// The error of a call that may not begin because the session is older than that.
pub(crate) fn too_old(limit: Duration) -> UserError {
    TimeLimit::Age(limit).error("the session is too old")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_limit_and_its_key() {
        let hour = Duration::from_hours(1);
        for (limit, text) in [
            (
                TimeLimit::Age(hour),
                "the session was closed because it was too old\nDetail: It was opened more than 1h ago.\n\
                 Hint: Open a new session. The limit is proxy.session_age.",
            ),
            (
                TimeLimit::HttpIdle(hour),
                "the session was closed because it was idle\nDetail: No call named it for 1h.\n\
                 Hint: Open a new session. The limit is proxy.http_session_idle.",
            ),
        ] {
            let error = limit.closed();
            assert_eq!((error.sqlstate(), error.text().as_str()), ("57P03", text));
        }
        assert_eq!((too_old(hour).message.as_str(), too_old(hour).sqlstate()), ("the session is too old", "57P03"));
        assert_eq!(TimeLimit::Idle(hour).key(), "proxy.session_idle");
    }
}
