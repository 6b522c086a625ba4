//! Engines that could not be made, and when each is tried again.
//!
//! A create that is refused is a failure of the engine, and the more there were in a row the later it is tried again: up to five
//! minutes ([`planner::back_off_ms`]). A create that fails because the orchestrator is away, has too much to do or does not
//! answer in time says nothing about the engine: it is no failure of it, and is tried again within seconds, a little later
//! each time. What was counted before stays counted until the engine is there.
//!
//! Calls are few at once, so a create that is waited for in vain keeps others from theirs: the longer it took, the longer is its
//! longest pause.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use model::engine_name::EngineName;
use model::slot::Slot;
use planner::{CreateFailure, back_off_ms};

/// The longest pause after a create that failed because the orchestrator was away.
const AWAY_PAUSE_MOST_MS: i64 = 12_000;
/// How many times as long as the create took that pause may be, if that is more.
const REST: i64 = 6;

/// Whose failure a create was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It was refused: the same create is refused again.
    Engine,
    /// The orchestrator could not, for now.
    Orchestrator,
}

/// A create that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Of which engine.
    pub engine: EngineName,
    /// What the orchestrator said.
    pub reason: String,
    /// Whose failure it was.
    pub fault: Fault,
    /// How long it was waited for.
    pub took: Duration,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct CreateBackoff(BTreeMap<EngineName, Tried>);

#[derive(Debug)]
struct Tried {
    reason: String,
    /// Failures of the engine, in a row.
    failures: u32,
    /// How often the orchestrator was away since.
    away: u32,
    /// When it last failed.
    last: Duration,
    /// When it may be tried again.
    until: Duration,
}

impl Tried {
    /// What a plan counts the back-off from.
    fn counted(&self) -> u32 {
        self.failures.max(1)
    }
}

impl CreateBackoff {
    /// A create failed.
    pub fn failed(&mut self, failed: Failed, now: Duration) {
        let Failed { engine, reason, fault, took } = failed;
        let new = Tried { reason: String::new(), failures: 0, away: 0, last: now, until: now };
        let tried = self.0.entry(engine).or_insert(new);
        tried.reason = reason;
        tried.last = now;
        let pause_ms = match fault {
            Fault::Engine => {
                (tried.failures, tried.away) = (tried.failures.saturating_add(1), 0);
                back_off_ms(tried.failures - 1)
            }
            Fault::Orchestrator => {
                tried.away = tried.away.saturating_add(1);
                let most_ms = ms(took).saturating_mul(REST).max(AWAY_PAUSE_MOST_MS);
                back_off_ms(tried.away - 1).min(most_ms)
            }
        };
        tried.until = now.saturating_add(Duration::from_millis(pause_ms.unsigned_abs()));
    }

    /// A create succeeded.
    pub fn made(&mut self, engine: &EngineName) {
        self.0.remove(engine);
    }

    /// When the engine's create last failed.
    pub fn last_tried(&self, engine: &EngineName) -> Option<Duration> {
        self.0.get(engine).map(|tried| tried.last)
    }

    /// Forgets the engines that nobody wants any more.
    pub fn only(&mut self, wanted: &[Slot]) {
        if !self.0.is_empty() {
            let present: HashSet<EngineName> = wanted.iter().map(Slot::engine).collect();
            self.0.retain(|engine, _| present.contains(engine));
        }
    }

    /// As a plan reads them: it waits for the back-off of that many failures, counted from the age.
    pub fn troubles(&self, now: Duration) -> BTreeMap<EngineName, CreateFailure> {
        let trouble = |tried: &Tried| {
            let left_ms = ms(tried.until.saturating_sub(now)) - ms(now.saturating_sub(tried.until));
            let age_ms = back_off_ms(tried.counted() - 1) - left_ms;
            CreateFailure { reason: tried.reason.clone(), failures: tried.counted(), age_ms }
        };
        self.0.iter().map(|(engine, tried)| (engine.clone(), trouble(tried))).collect()
    }
}

fn ms(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Fails again and again as soon as it may be tried: the pauses, in milliseconds.
    fn pauses(
        create_backoff: &mut CreateBackoff,
        now: &mut Duration,
        fault: Fault,
        took_s: u64,
        times: usize,
    ) -> Vec<i64> {
        let engine = EngineName::new("e-1").unwrap();
        let fails = |_| {
            let took = Duration::from_secs(took_s);
            create_backoff.failed(Failed { engine: engine.clone(), reason: "words".to_owned(), fault, took }, *now);
            let trouble = create_backoff.troubles(*now).remove(&engine).unwrap();
            let left_ms = back_off_ms(trouble.failures - 1) - trouble.age_ms;
            *now += Duration::from_millis(left_ms.unsigned_abs());
            let due = create_backoff.troubles(*now).remove(&engine).unwrap();
            assert_eq!(due.age_ms, back_off_ms(due.failures - 1), "it is due exactly then");
            left_ms
        };
        (0..times).map(fails).collect()
    }

    #[test]
    fn refusals_are_counted_and_an_orchestrator_that_is_away_is_not() {
        let (mut create_backoff, mut now) = (CreateBackoff::default(), Duration::from_mins(1));
        let mut pauses = |fault, took_s, times| pauses(&mut create_backoff, &mut now, fault, took_s, times);
        assert_eq!(pauses(Fault::Orchestrator, 0, 5), [3_000, 6_000, 12_000, 12_000, 12_000]);
        assert_eq!(pauses(Fault::Engine, 0, 4), [3_000, 6_000, 12_000, 24_000]);
        // Ten times away makes the next try no later, and what was refused before stays counted.
        assert_eq!(pauses(Fault::Orchestrator, 0, 10)[9], AWAY_PAUSE_MOST_MS);
        assert_eq!(pauses(Fault::Engine, 10, 1), [48_000]);
        // Who is waited for in vain leaves the calls to others for longer.
        assert_eq!(pauses(Fault::Orchestrator, 10, 7), [3_000, 6_000, 12_000, 24_000, 48_000, 60_000, 60_000]);
        create_backoff.made(&EngineName::new("e-1").unwrap());
        assert!(create_backoff.troubles(now).is_empty());
    }

    #[test]
    fn the_age_goes_on_after_the_pause() {
        let (mut create_backoff, now) = (CreateBackoff::default(), Duration::from_mins(1));
        let engine = EngineName::new("e-1").unwrap();
        let (reason, took) = (String::new(), Duration::ZERO);
        create_backoff.failed(Failed { engine: engine.clone(), reason, fault: Fault::Engine, took }, now);
        assert_eq!(create_backoff.troubles(now)[&engine].age_ms, 0);
        assert_eq!(create_backoff.troubles(now + Duration::from_secs(5))[&engine].age_ms, 5_000);
        create_backoff.only(&[]);
        assert!(create_backoff.troubles(now).is_empty());
    }
}
