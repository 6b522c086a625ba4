//! Clocks, passed in as values so that tests control the time.
//!
//! Two clocks: the wall clock for timestamps that people read, and one that counts suspension (`CLOCK_BOOTTIME`) for
//! every comparison: a process that was stopped must notice how much time has passed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970: for people and for the database, never for measuring durations.
    fn wall_ms(&self) -> i64;
    /// Time since boot, including suspension. Monotonic.
    fn boottime(&self) -> Duration;
}

pub type SharedClock = Arc<dyn Clock>;

/// A timestamp in UTC with milliseconds: `2026-11-21T12:51:53.004Z`.
pub fn utc(wall_ms: i64) -> String {
    let (days, ms) = (wall_ms.div_euclid(86_400_000), wall_ms.rem_euclid(86_400_000));
    // Days are counted in eras of 400 years that begin on the first of March, so that a leap day ends its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    fn wall_ms(&self) -> i64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
    }

    fn boottime(&self) -> Duration {
        let now = clock_gettime(ClockId::Boottime);
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }
}

/// A clock for tests that only [`ManualClock::advance`] moves.
#[derive(Debug)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    boottime_ms: AtomicU64,
}

impl ManualClock {
    /// A clock at the given wall time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_print_as_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (1_795_265_513_004, "2026-11-21T12:51:53.004Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }
}
