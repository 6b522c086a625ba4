//! The progress of a start: its elapsed time and its limit. Without them a start of Spark, which takes a minute, looks like
//! one that hangs.

use std::time::Duration;

use model::engine_state::EngineState;
use model::observation::ObservedEngine;
use model::span;

/// The precision in a log, which keeps every line.
pub(super) const LOG_STEP: Duration = Duration::from_secs(10);

/// The elapsed time of a start, cut to whole `step`s, and its limit; `None` for an engine that is not starting.
pub(super) fn progress(engine: &ObservedEngine, now_ms: i64, limit: Duration, step: Duration) -> Option<String> {
    if engine.state() != EngineState::Starting {
        return None;
    }
    let elapsed_ms = u64::try_from(now_ms.saturating_sub(engine.started_at_ms?)).ok()?;
    let step_ms = (step.as_millis() as u64).max(1);
    let elapsed = Duration::from_millis(elapsed_ms / step_ms * step_ms);
    Some(format!("starting for {} of at most {}", span::age(elapsed), span::age(limit)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use std::sync::Arc;

    use model::engine_name::EngineName;
    use model::engine_state::Phase;

    use super::*;

    #[test]
    fn a_start_reports_its_elapsed_time_and_its_limit() {
        let second = Duration::from_secs(1);
        let mut engine = ObservedEngine {
            phase: Phase::Running,
            answered: false,
            started_at_ms: Some(1_000),
            name: EngineName::new("e").unwrap(),
            uid: None,
            reason: None,
            node: None,
            address: None,
            registered: false,
            draining: false,
            sessions: None,
            running: None,
            idle_since_ms: None,
            stateful: None,
            log_tail: None,
            labels: Arc::default(),
            details: Arc::default(),
        };
        let report = |engine: &ObservedEngine, step| progress(engine, 35_900, Duration::from_mins(5), step);
        assert_eq!(report(&engine, second).as_deref(), Some("starting for 34 s of at most 5 min"));
        assert_eq!(report(&engine, LOG_STEP).as_deref(), Some("starting for 30 s of at most 5 min"));
        engine.answered = true;
        assert_eq!(report(&engine, second), None, "it lost its registration");
    }
}
