//! Engines that run and are not registered: what SHOW reports of them, and when their slot is given another engine.
//!
//! Two pieces of evidence are needed: the engine is not registered, and its agent gives no answer. An agent that only lost
//! its session registers again within seconds, and one that answers is left alone. The replacement is made first: until it
//! is registered the silent engine stands in, so that an engine which was only cut off from the master goes on serving those
//! that reach it. Each replacement counts as a failure of the slot, so the next one of the same slot waits longer.

use std::time::Duration;

use model::slot::Slot;
use model::span;

use crate::backoff::back_off_ms;
use crate::census::Engine;
use crate::draft::Draft;
use crate::limits::STEADY_LIFE_MS;
use crate::observed::Pod;
use crate::standing;

/// What is known of an engine that runs and is not registered.
pub(crate) struct State {
    /// What SHOW reports of it; `None` where nothing is known but that it is not registered yet.
    pub shown: Option<String>,
    /// When its slot is given another engine if nothing changes, by the database's clock.
    pub until_ms: Option<i64>,
    /// Why its slot is given another engine now.
    pub replace_because: Option<String>,
    /// The slot's failures from then on.
    pub failures: u32,
}

/// `None` of an engine that is registered or has not been seen to run without its registration.
pub(crate) fn of(draft: &Draft<'_>, engine: &Engine<'_>, slot: &Slot, pod: &Pod) -> Option<State> {
    let seen = draft.observed.unregistered.get(&engine.name).filter(|it| it.uid == pod.uid)?;
    if engine.is_registered() {
        return None;
    }
    let (limits, now_ms) = (&draft.desired.limits, draft.desired.snapshot.now_ms);
    let was_registered = !standing::never_answered(engine);
    let for_ms = i64::try_from(seen.for_ms).unwrap_or(i64::MAX);
    let started_at_ms = engine.record.and_then(|record| record.started_at_ms);
    let life_ms = started_at_ms.map_or(0, |started| now_ms.saturating_sub(started).saturating_sub(for_ms));
    let failures_before = if was_registered && life_ms >= STEADY_LIFE_MS { 0 } else { slot.failures };
    let start_ms = if was_registered { 0 } else { limits.start_deadline_ms };
    let back_off_ms = failures_before.checked_sub(1).map_or(0, back_off_ms).unsigned_abs();
    let patience_ms = start_ms.saturating_add(limits.replace_after_ms).saturating_add(back_off_ms);
    let is_silent = seen.silent_ms.is_some_and(|silent_ms| silent_ms >= limits.replace_after_ms);
    let answers = if seen.silent_ms.is_none() { "answers" } else { "does not answer" };
    let ago = span::age(Duration::from_secs(rounded(seen.for_ms / 1_000)));
    let replace_because = (is_silent && seen.for_ms >= patience_ms).then(|| {
        if was_registered {
            format!("the present engine lost its registration {ago} ago and does not answer")
        } else {
            format!("the present engine runs for {ago} and never registered")
        }
    });
    let until_ms = seen.silent_ms.map(|silent_ms| {
        let left_ms = patience_ms.saturating_sub(seen.for_ms).max(limits.replace_after_ms.saturating_sub(silent_ms));
        now_ms.saturating_add(i64::try_from(left_ms).unwrap_or(i64::MAX))
    });
    Some(State {
        shown: was_registered.then(|| format!("lost its registration {ago} ago; {answers}")),
        until_ms,
        replace_because,
        failures: failures_before.saturating_add(1),
    })
}

/// Rounded down to one of eight values between a power of two and the next: a text that is reported changes less and less
/// often, and not with each tick.
fn rounded(seconds: u64) -> u64 {
    let step = (seconds.max(1).ilog2()).saturating_sub(3);
    (seconds >> step) << step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_shown_is_exact_at_first_and_coarse_later() {
        let shown: Vec<u64> = [0, 1, 12, 15, 17, 31, 33, 63, 64, 71, 100, 3_600].map(rounded).to_vec();
        assert_eq!(shown, [0, 1, 12, 15, 16, 30, 32, 60, 64, 64, 96, 3_584]);
    }
}
