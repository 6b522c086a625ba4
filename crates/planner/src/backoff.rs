//! Exponential back-off of engines that end or cannot be created.

use std::time::Duration;

use model::millis;
use model::slot::Slot;
use model::snapshot::EngineRecord;

use crate::limits::{BACK_OFF_FIRST, BACK_OFF_MOST, STEADY_LIFE};

/// The delay after a failure that follows `failures` others in a row: 3 s, doubled each time, at most 5 minutes.
pub fn back_off(failures: u32) -> Duration {
    BACK_OFF_FIRST.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(BACK_OFF_MOST)
}

/// The back-off of a slot whose current engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackOff {
    /// When the slot may get a new incarnation, by the database's clock.
    pub until_ms: i64,
    /// The delay after the end.
    pub delay: Duration,
    /// The slot's count of failures after that.
    pub failures: u32,
}

/// The back-off of a slot whose current engine ended at `ended_at_ms`. An engine that ran for a minute is not counted as
/// a failure.
pub(crate) fn after_end(slot: &Slot, record: &EngineRecord, ended_at_ms: i64) -> BackOff {
    let life = millis::to_duration(record.started_at_ms.map_or(0, |started_at_ms| ended_at_ms - started_at_ms));
    let (before, failures) =
        if life >= STEADY_LIFE { (0, 0) } else { (slot.failures, slot.failures.saturating_add(1)) };
    let delay = back_off(before);
    BackOff { until_ms: ended_at_ms.saturating_add(millis::from_duration(delay)), delay, failures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_from_three_seconds_to_five_minutes() {
        let delays: Vec<u64> = (0..9).map(|failures| back_off(failures).as_secs()).collect();
        assert_eq!(delays, [3, 6, 12, 24, 48, 96, 192, 300, 300]);
        assert_eq!(back_off(u32::MAX), BACK_OFF_MOST);
    }
}
