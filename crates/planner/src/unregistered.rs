//! Running engines without a registration: their state in SHOW, and when their slot is given another engine.
//!
//! Two pieces of evidence are needed: the engine is not registered, and its agent does not answer. An agent that only lost
//! its session registers again within seconds, and one that answers is left alone. The replacement is created first: until
//! it has registered, the silent engine stands in, so that one that was only cut off from the master keeps serving the
//! clients that reach it. Each replacement counts as a failure of the slot, so the next one waits longer.

use std::time::Duration;

use model::millis;
use model::slot::Slot;

use crate::backoff::back_off;
use crate::builder::PlanBuilder;
use crate::coarse_age::coarse_age;
use crate::inventory::Engine;
use crate::limits::STEADY_LIFE;
use crate::observed::Instance;
use crate::role;

/// The state of a running engine without a registration.
pub(crate) struct Assessment {
    /// Its state in SHOW; `None` if it only has not registered yet.
    pub shown: Option<String>,
    /// When its slot is given another engine if nothing changes, by the database's clock.
    pub until_ms: Option<i64>,
    /// Why its slot is given another engine now.
    pub replace_because: Option<String>,
    /// The slot's count of failures after that.
    pub failures: u32,
}

/// Assesses an engine; `None` if it is registered or was never seen running without a registration.
pub(crate) fn assess(
    builder: &PlanBuilder<'_>,
    engine: &Engine<'_>,
    slot: &Slot,
    instance: &Instance,
) -> Option<Assessment> {
    let seen = builder.observed.unregistered.get(&engine.name).filter(|seen| seen.uid == instance.uid)?;
    if engine.is_registered() {
        return None;
    }
    let (limits, now_ms) = (&builder.desired.limits, builder.desired.snapshot.now_ms);
    let was_registered = !role::never_registered(engine);
    let started_at_ms = engine.record.and_then(|record| record.started_at_ms);
    let age = started_at_ms.map_or(Duration::ZERO, |started_at_ms| millis::to_duration(now_ms - started_at_ms));
    let life = age.saturating_sub(seen.lasted);
    let failures_before = if was_registered && life >= STEADY_LIFE { 0 } else { slot.failures };
    let start_time = if was_registered { Duration::ZERO } else { limits.start_deadline };
    let pause = failures_before.checked_sub(1).map_or(Duration::ZERO, back_off);
    let patience = start_time.saturating_add(limits.replace_after).saturating_add(pause);
    let is_silent = seen.silent.is_some_and(|silent| silent >= limits.replace_after);
    let answers = if seen.silent.is_none() { "answers" } else { "does not answer" };
    let ago = coarse_age(seen.lasted);
    let replace_because = (is_silent && seen.lasted >= patience).then(|| {
        if was_registered {
            format!("the current engine lost its registration {ago} ago and does not answer")
        } else {
            format!("the current engine has run for {ago} and never registered")
        }
    });
    let until_ms = seen.silent.map(|silent| {
        let left = patience.saturating_sub(seen.lasted).max(limits.replace_after.saturating_sub(silent));
        now_ms.saturating_add(millis::ceil(left))
    });
    Some(Assessment {
        shown: was_registered.then(|| {
            let ago = if seen.lasted.as_secs() == 0 { "just now".to_owned() } else { format!("{ago} ago") };
            format!("lost its registration {ago}; {answers}")
        }),
        until_ms,
        replace_because,
        failures: failures_before.saturating_add(1),
    })
}
