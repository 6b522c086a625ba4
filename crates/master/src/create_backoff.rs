//! Exponential back-off of failed creates.
//!
//! A rejected create is a failure of the engine: the more in a row, the later it is tried again, up to five minutes
//! ([`planner::back_off`]). API-server errors, overload and timeouts do not count as engine failures; such a create is
//! tried again within seconds, a little later each time. Counted failures stay counted until the engine exists.
//!
//! Concurrent calls are few, so a create that times out blocks others: the longer it took, the longer its longest pause.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use model::engine_name::EngineName;
use model::shared::Shared;
use model::slot::Slot;
use planner::{CreateFailure, back_off};

/// The longest pause after a create that failed because the orchestrator was unavailable.
const AWAY_PAUSE_MOST: Duration = Duration::from_secs(12);
/// The longest pause as a multiple of the create's duration, if that is more.
const PAUSE_FACTOR: u32 = 6;

/// The cause of a failed create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It was rejected: the same create is rejected again.
    Engine,
    /// It was rejected by a limit: the same create may be accepted later.
    Limit,
    /// The orchestrator failed transiently.
    Orchestrator,
}

/// A failed create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FailedCreate {
    pub engine: EngineName,
    /// The orchestrator's error.
    pub reason: String,
    pub fault: Fault,
    /// How long the call took.
    pub took: Duration,
}

/// The back-off of each engine whose create failed.
#[derive(Debug, Default)]
pub(crate) struct CreateBackoff(BTreeMap<EngineName, Attempts>);

#[derive(Debug)]
struct Attempts {
    reason: String,
    /// Failures of the engine, in a row.
    failures: u32,
    /// Transient failures of the orchestrator since then.
    away: u32,
    /// Whether the last failure may not recur.
    is_retryable: bool,
    /// The last failure.
    last: Duration,
    /// The earliest next attempt.
    until: Duration,
}

impl Attempts {
    /// The failures to report.
    fn counted(&self) -> u32 {
        self.failures.max(1)
    }
}

impl CreateBackoff {
    /// Takes the results of a tick's creates.
    pub fn update(&mut self, now: Duration, created: &[EngineName], failed: &[FailedCreate]) {
        for engine in created {
            self.created(engine);
        }
        for failed in failed {
            self.failed(failed, now);
        }
    }

    fn failed(&mut self, failed: &FailedCreate, now: Duration) {
        let FailedCreate { engine, reason, fault, took } = failed;
        let new = Attempts { reason: String::new(), failures: 0, away: 0, is_retryable: true, last: now, until: now };
        let tried = self.0.entry(engine.clone()).or_insert(new);
        tried.reason.clone_from(reason);
        tried.last = now;
        tried.is_retryable = *fault != Fault::Engine;
        let pause = match fault {
            Fault::Engine | Fault::Limit => {
                (tried.failures, tried.away) = (tried.failures.saturating_add(1), 0);
                back_off(tried.failures - 1)
            }
            Fault::Orchestrator => {
                tried.away = tried.away.saturating_add(1);
                back_off(tried.away - 1).min(took.saturating_mul(PAUSE_FACTOR).max(AWAY_PAUSE_MOST))
            }
        };
        tried.until = now.saturating_add(pause);
    }

    fn created(&mut self, engine: &EngineName) {
        self.0.remove(engine);
    }

    /// When the engine's create last failed.
    pub fn last_tried(&self, engine: &EngineName) -> Option<Duration> {
        self.0.get(engine).map(|tried| tried.last)
    }

    /// Forgets engines that are no longer desired.
    pub fn retain_desired(&mut self, slots: &[Shared<Slot>]) {
        if !self.0.is_empty() {
            let current: HashSet<EngineName> = slots.iter().map(|slot| slot.engine()).collect();
            self.0.retain(|engine, _| current.contains(engine));
        }
    }

    /// The input of a plan, which tries these creates again when they are due.
    pub fn failures(&self, now: Duration) -> BTreeMap<EngineName, CreateFailure> {
        let failure = |tried: &Attempts| CreateFailure {
            reason: tried.reason.clone(),
            failures: tried.counted(),
            retry_in: tried.until.saturating_sub(now),
            is_retryable: tried.is_retryable,
        };
        self.0.iter().map(|(engine, tried)| (engine.clone(), failure(tried))).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The pauses of a create that fails on each attempt, in seconds.
    fn pauses(
        create_backoff: &mut CreateBackoff,
        now: &mut Duration,
        fault: Fault,
        took_s: u64,
        times: usize,
    ) -> Vec<u64> {
        let engine = EngineName::new("e-1").unwrap();
        let fails = |_| {
            let took = Duration::from_secs(took_s);
            create_backoff
                .failed(&FailedCreate { engine: engine.clone(), reason: "words".to_owned(), fault, took }, *now);
            let failure = create_backoff.failures(*now).remove(&engine).unwrap();
            *now += failure.retry_in;
            assert!(create_backoff.failures(*now)[&engine].retry_in.is_zero(), "it is due exactly then");
            failure.retry_in.as_secs()
        };
        (0..times).map(fails).collect()
    }

    #[test]
    fn rejections_are_counted_and_transient_failures_are_not() {
        let (mut create_backoff, mut now) = (CreateBackoff::default(), Duration::from_mins(1));
        let mut pauses = |fault, took_s, times| pauses(&mut create_backoff, &mut now, fault, took_s, times);
        assert_eq!(pauses(Fault::Orchestrator, 0, 5), [3, 6, 12, 12, 12]);
        assert_eq!(pauses(Fault::Engine, 0, 4), [3, 6, 12, 24]);
        // Transient failures do not extend the pause, and earlier rejections stay counted.
        assert_eq!(pauses(Fault::Orchestrator, 0, 10)[9], AWAY_PAUSE_MOST.as_secs());
        assert_eq!(pauses(Fault::Engine, 10, 1), [48]);
        // Timeouts leave the calls to others for longer.
        assert_eq!(pauses(Fault::Orchestrator, 10, 7), [3, 6, 12, 24, 48, 60, 60]);
        create_backoff.created(&EngineName::new("e-1").unwrap());
        assert!(create_backoff.failures(now).is_empty());
    }

    #[test]
    fn a_create_is_due_after_its_pause_and_forgotten_with_its_slot() {
        let (mut create_backoff, now) = (CreateBackoff::default(), Duration::from_mins(1));
        let engine = EngineName::new("e-1").unwrap();
        let (reason, took) = (String::new(), Duration::ZERO);
        create_backoff.failed(&FailedCreate { engine: engine.clone(), reason, fault: Fault::Engine, took }, now);
        assert_eq!(create_backoff.failures(now)[&engine].retry_in, Duration::from_secs(3));
        assert_eq!(create_backoff.failures(now + Duration::from_secs(5))[&engine].retry_in, Duration::ZERO);
        create_backoff.retain_desired(&[]);
        assert!(create_backoff.failures(now).is_empty());
    }
}
