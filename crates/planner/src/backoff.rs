//! Exponential back-off of engines that end or cannot be created.

use model::slot::Slot;
use model::snapshot::EngineRecord;

use crate::limits::{BACK_OFF_FIRST_MS, BACK_OFF_MOST_MS, STEADY_LIFE_MS};

/// The delay after a failure that follows `failures` others in a row: 3 s, doubled each time, at most 5 minutes.
pub fn back_off_ms(failures: u32) -> i64 {
    let factor = 1_i64.checked_shl(failures.min(62)).unwrap_or(i64::MAX);
    BACK_OFF_FIRST_MS.saturating_mul(factor).min(BACK_OFF_MOST_MS)
}

/// The back-off of a slot whose current engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackOff {
    /// When the slot may get a new incarnation, by the database's clock.
    pub until_ms: i64,
    /// The delay after the end.
    pub delay_ms: i64,
    /// The slot's count of failures after that.
    pub failures: u32,
}

/// The back-off of a slot whose current engine ended at `ended_at_ms`. An engine that ran for a minute is not counted as
/// a failure.
pub(crate) fn after_end(slot: &Slot, record: &EngineRecord, ended_at_ms: i64) -> BackOff {
    let life_ms = record.started_at_ms.map_or(0, |started| ended_at_ms - started);
    let (before, failures) =
        if life_ms >= STEADY_LIFE_MS { (0, 0) } else { (slot.failures, slot.failures.saturating_add(1)) };
    let delay_ms = back_off_ms(before);
    BackOff { until_ms: ended_at_ms.saturating_add(delay_ms), delay_ms, failures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_from_three_seconds_to_five_minutes() {
        let delays: Vec<i64> = (0..9).map(back_off_ms).collect();
        assert_eq!(delays, [3_000, 6_000, 12_000, 24_000, 48_000, 96_000, 192_000, 300_000, 300_000]);
        assert_eq!(back_off_ms(u32::MAX), BACK_OFF_MOST_MS);
    }
}
