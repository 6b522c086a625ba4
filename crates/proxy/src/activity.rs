//! Session counters, and those of the limits that clients have reached, logged once a minute.
//!
//! Log lines about single sessions are at debug level: a busy proxy would write thousands a minute, which would push every
//! warning out of a log of limited size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hs2::LimitHits;
use hs2::limit_hits::Hits;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// How often a summary is logged, if anything happened.
const SUMMARY_INTERVAL: Duration = Duration::from_mins(1);

/// Counts since the last summary.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    pub(crate) opened: Count,
    pub(crate) bound: Count,
    /// Idle sessions that left their engine.
    pub(crate) unbound: Count,
    pub(crate) closed: Count,
    pub(crate) statements: Count,
}

/// A counter that is reset when it is read.
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
    /// Sessions opened, bound, unbound and closed, and statements, since the last call; `None` if all are zero.
    fn take(&self) -> Option<[u64; 5]> {
        let Self { opened, bound, unbound, closed, statements } = self;
        let counts = [opened, bound, unbound, closed, statements].map(Count::take);
        (counts.iter().sum::<u64>() > 0).then_some(counts)
    }
}

/// Logs a summary every minute until stopped, and a last one then.
pub(crate) async fn summarize(
    activity: Arc<Activity>,
    limit_hits: Arc<LimitHits>,
    open_sessions: impl Fn() -> usize + Send,
    stop: CancellationToken,
) {
    loop {
        let stopped = tokio::time::timeout(SUMMARY_INTERVAL, stop.cancelled()).await.is_ok();
        if let Some([opened, bound, unbound, closed, statements]) = activity.take() {
            info!(
                opened,
                bound,
                unbound,
                closed,
                statements,
                open = open_sessions(),
                "sessions since the last summary"
            );
        }
        for Hits { limit, new, all } in limit_hits.take() {
            info!(limit = limit.name(), rejected = new, since_start = all, "limit reached");
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
    fn a_summary_counts_since_the_last_one() {
        let activity = Activity::default();
        assert_eq!(activity.take(), None);
        activity.opened.add();
        activity.opened.add();
        activity.statements.add();
        assert_eq!(activity.take(), Some([2, 0, 0, 0, 1]));
        assert_eq!(activity.take(), None);
    }
}
