//! The life of an engine of the fake: where it is, given what the clock says.

use std::time::Duration;

use model::clock::SharedClock;
use model::engine_state::Phase;

use super::faults::{Behaviour, End};
use crate::observed::has_to_end;
use crate::{Exit, Observed};

/// The signal of an engine that is killed.
const KILLED: i32 = 9;

/// One entry.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) observed: Observed,
    behaviour: Behaviour,
    /// On the clock that counts from boot, as everything that is compared.
    made: Duration,
    asked: Option<Asked>,
    over: bool,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    at: Duration,
    deadline: Duration,
}

impl Engine {
    pub(super) fn new(observed: Observed, behaviour: Behaviour, clock: &SharedClock) -> Self {
        Self { observed, behaviour, made: clock.boottime(), asked: None, over: false }
    }

    /// Whether it was deleted and is gone.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Told to end; a later call can only shorten the grace.
    pub(super) fn ask_to_end(&mut self, grace: Duration, clock: &SharedClock) {
        let now = clock.boottime();
        let deadline = now.saturating_add(grace);
        let asked = self.asked.get_or_insert(Asked { at: now, deadline });
        asked.deadline = asked.deadline.min(deadline);
        self.observed.phase = Phase::Terminating;
        self.observed.reason = Some(has_to_end(grace));
    }

    pub(super) fn end(&mut self, end: &End, clock: &SharedClock) {
        self.observed.phase = Phase::Ended;
        let exit = Exit { code: end.code, signal: end.signal, ended_at_ms: clock.wall_ms() };
        self.observed.reason = Some(end.reason.clone().unwrap_or_else(|| exit.describe()));
        self.observed.log_tail = end.log_tail.clone().filter(|_| end.code != Some(0));
        self.observed.exit = Some(exit);
        // Deleted before: then it isn't listed as ended, it is gone.
        self.over = self.asked.is_some();
    }

    /// Moves it on; whether it moved.
    pub(super) fn pass_time(&mut self, clock: &SharedClock) -> bool {
        let now = clock.boottime();
        let before = self.observed.phase;
        if self.observed.phase == Phase::Pending && now >= self.made + self.behaviour.starts_after {
            self.observed.phase = Phase::Running;
            self.observed.reason = None;
            self.observed.started_at_ms = Some(clock.wall_ms());
        }
        if let Some(end) = self.due_end(now) {
            self.end(&end, clock);
        }
        before != self.observed.phase
    }
    /// The end that has come by now, if one has.
    fn due_end(&self, now: Duration) -> Option<End> {
        if self.observed.phase == Phase::Ended {
            return None;
        }
        if let Some(asked) = self.asked {
            let obeys = self.behaviour.obeys_after.is_some_and(|after| now >= asked.at + after);
            return if obeys { Some(End::code(0)) } else { (now >= asked.deadline).then(|| End::signal(KILLED)) };
        }
        let (after, end) = self.behaviour.ends.as_ref()?;
        (now >= self.made + self.behaviour.starts_after + *after).then(|| end.clone())
    }
}
