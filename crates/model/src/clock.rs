//! Time as a value that is handed in, so that tests decide what time it is.
//!
//! Two clocks: the wall clock for what people read, and one that counts suspension (`CLOCK_BOOTTIME`) for every
//! comparison: a process that was stopped must notice that time went on without it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// What time it is.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970: for people and for the database, never for comparing lengths of time.
    fn wall_ms(&self) -> i64;
    /// Time since the machine booted, suspension included. Never goes back.
    fn boottime(&self) -> Duration;
}

/// A clock that can be shared.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clocks, to be shared.
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    fn wall_ms(&self) -> i64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    fn boottime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    boottime_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at the given wall time.
    pub fn at(wall_ms: i64) -> Arc<Self> {
        Arc::new(Self { wall_ms: AtomicI64::new(wall_ms), boottime_ms: AtomicU64::new(1_000_000) })
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        self.wall_ms.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
        self.boottime_ms.fetch_add(by.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn boottime(&self) -> Duration {
        Duration::from_millis(self.boottime_ms.load(Ordering::SeqCst))
    }
}
