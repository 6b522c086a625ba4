//! What happens in a minute, as one line of the log.
//!
//! Lines about single sessions are at debug level: a busy proxy has thousands a minute, which would push every warning
//! out of a log of limited size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::Gateway;

/// How often a summary is logged, if anything happened.
const SUMMARY_INTERVAL: Duration = Duration::from_mins(1);

/// Counts since the last summary.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) opened: Count,
    pub(crate) bound: Count,
    pub(crate) closed: Count,
    pub(crate) statements: Count,
}

/// Counts up until it is read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Activity {
    /// Opened, bound, closed sessions and statements since the last call; `None` if nothing happened.
    fn take(&self) -> Option<[u64; 4]> {
        let counts = [self.opened.take(), self.bound.take(), self.closed.take(), self.statements.take()];
        (counts.iter().sum::<u64>() > 0).then_some(counts)
    }
}

/// Logs a summary every minute until it is stopped, and a last one then.
pub(crate) async fn summarize(gateway: Arc<Gateway>, stop: CancellationToken) {
    loop {
        let stopped = tokio::time::timeout(SUMMARY_INTERVAL, stop.cancelled()).await.is_ok();
        if let Some([opened, bound, closed, statements]) = gateway.activity.take() {
            info!(
                opened,
                bound,
                closed,
                statements,
                open = gateway.sessions.count(),
                "sessions since the last summary"
            );
        }
        if stopped {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_what_happened_since_the_last_one() {
        let activity = Activity::default();
        assert_eq!(activity.take(), None);
        activity.opened.add();
        activity.opened.add();
        activity.statements.add();
        assert_eq!(activity.take(), Some([2, 0, 0, 1]));
        assert_eq!(activity.take(), None);
    }
}
