//! The virtual clock: it moves only when the next event is run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use model::clock::Clock;

/// The wall clock at the beginning of every run, in milliseconds since 1970.
pub const BEGINNING_MS: i64 = 1_800_000_000_000;

/// The clock of a run. All machines have it; only the database's wall clock is shifted.
#[derive(Debug, Default)]
pub struct VirtualClock {
    millis: AtomicU64,
}

impl VirtualClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn set(&self, now: Duration) {
        self.millis.store(now.as_millis() as u64, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn wall_ms(&self) -> i64 {
        BEGINNING_MS + self.millis.load(Ordering::Relaxed) as i64
    }

    fn boottime(&self) -> Duration {
        Duration::from_millis(self.millis.load(Ordering::Relaxed))
    }
}
