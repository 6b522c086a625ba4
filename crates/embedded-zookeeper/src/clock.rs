//! The clock input of the state machine: one reading of both clocks per call.
//!
//! The state machine never reads a clock itself, so a test can expire a session without waiting.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// One reading of the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Milliseconds since 1970, for `ctime` and `mtime`. May go backwards.
    pub(crate) wall_ms: i64,
    /// Time since some moment before the server started, for deadlines. Never goes backwards.
    pub(crate) mono: Duration,
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the server's clock")]
    pub(crate) fn now(self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { wall_ms: wall.as_millis() as i64, mono: self.origin.elapsed() }
    }
}
