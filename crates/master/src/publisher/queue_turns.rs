//! The turns of rows in which only the reason of a queued engine has changed: a bounded number per second, in the order of names.
//!
//! Losing them costs nothing but the order of the next turns.

use std::sync::Arc;
use std::time::Duration;

use model::engine_name::EngineName;
use model::observation::ObservedEngine;

/// The most rows of a publication in which only the reason of a queued engine has changed.
pub(super) const MAX_QUEUE_REASONS: usize = 500;

/// The most such rows per second. Those of 10,000 queued engines are at most 10 s old.
const QUEUE_REASONS_PER_SECOND: u32 = 1_000;

/// Rows by their positions, each with its last version.
type Moved<T> = Vec<(usize, T)>;

/// Whose turn it is, and how many rows may be published.
#[derive(Debug, Default)]
pub(super) struct QueueTurns {
    /// The last row that had its turn while others were left.
    last: Option<EngineName>,
    /// How many rows may be published now.
    credit: usize,
    /// When the credit was last counted.
    counted_at: Duration,
}

impl QueueTurns {
    /// Counts the time since the last publication.
    pub fn earn(&mut self, now: Duration) {
        let earned = (now.saturating_sub(self.counted_at) * QUEUE_REASONS_PER_SECOND).as_secs();
        if earned > 0 {
            let earned = usize::try_from(earned).unwrap_or(MAX_QUEUE_REASONS);
            (self.credit, self.counted_at) = (self.credit.saturating_add(earned).min(MAX_QUEUE_REASONS), now);
        }
    }

    /// Divides the rows, which are at these positions of `rows` and in the order of names, into those that have their turn and the
    /// others.
    pub fn take<T>(&mut self, mut moved: Moved<T>, rows: &[Arc<ObservedEngine>]) -> (Moved<T>, Moved<T>) {
        let name = |at: usize| &rows[at].name;
        let first = moved.partition_point(|(at, _)| self.last.as_ref().is_some_and(|last| name(*at) <= last));
        moved.rotate_left(first);
        let left = moved.split_off(moved.len().min(self.credit));
        self.credit -= moved.len();
        if left.is_empty() {
            self.last = None;
        } else if let Some((at, _)) = moved.last() {
            self.last = Some(name(*at).clone());
        }
        (moved, left)
    }
}
