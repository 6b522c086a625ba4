//! The life cycle of an engine of the fake: its phase as a function of the clock.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use model::engine_state::Phase;
use model::fit::NodeAmount;
use model::labels::LabelMap;
use model::shared::Shared;

use super::behaviour::{Behaviour, End};
use crate::observed::terminating_reason;
use crate::{Exit, ObservedInstance};

const SIGKILL: i32 = 9;

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) observed: Shared<ObservedInstance>,
    /// Whether its labels are those of the last selector; `None` if that is not known.
    pub(super) is_selected: Option<bool>,
    behaviour: Behaviour,
    /// On the boot-time clock, like every time that is compared.
    created_at: Duration,
    deletion: Option<Deletion>,
    /// Whether it was deleted and is gone.
    over: bool,
}

#[derive(Debug, Clone, Copy)]
struct Deletion {
    requested_at: Duration,
    deadline: Duration,
}

impl Engine {
    pub(super) fn new(observed: ObservedInstance, behaviour: Behaviour, clock: &SharedClock) -> Self {
        Self {
            observed: observed.into(),
            is_selected: None,
            behaviour,
            created_at: clock.boottime(),
            deletion: None,
            over: false,
        }
    }

    /// What it requests of each node while it is there. Nothing if it was put there by hand.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&String, &NodeAmount)> {
        self.observed.pods.iter().flat_map(|pods| &pods.on_nodes)
    }

    /// Whether it has the labels of the selector, which is that of the last list.
    pub(super) fn is_selected_by(&mut self, selector: &LabelMap) -> bool {
        *self.is_selected.get_or_insert_with(|| self.observed.matches(selector))
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Requests its end; a later call can only shorten the grace.
    pub(super) fn ask_to_end(&mut self, grace: Duration, clock: &SharedClock) {
        let now = clock.boottime();
        let deadline = now.saturating_add(grace);
        let deletion = self.deletion.get_or_insert(Deletion { requested_at: now, deadline });
        deletion.deadline = deletion.deadline.min(deadline);
        self.observed.phase = Phase::Terminating;
        self.observed.reason = Some(terminating_reason(grace));
    }

    pub(super) fn end(&mut self, end: &End, clock: &SharedClock) {
        self.observed.phase = Phase::Ended;
        if let Some(pods) = &mut self.observed.pods {
            Arc::make_mut(pods).on_nodes.clear();
        }
        let exit = Exit { code: end.code, signal: end.signal, ended_at_ms: clock.wall_ms() };
        self.observed.reason = Some(end.reason.clone().unwrap_or_else(|| exit.describe()));
        self.observed.fault = exit.fault();
        self.observed.log_tail = end.log_tail.clone().filter(|_| end.code != Some(0));
        self.observed.exit = Some(exit);
        // A deleted engine is not listed as ended: it is gone.
        self.over = self.deletion.is_some();
    }

    /// Advances it to the current time; returns whether its phase changed.
    pub(super) fn pass_time(&mut self, clock: &SharedClock) -> bool {
        let now = clock.boottime();
        let before = self.observed.phase;
        if self.observed.phase == Phase::Pending && now >= self.created_at + self.behaviour.starts_after {
            self.observed.phase = Phase::Running;
            self.observed.reason = None;
            self.observed.started_at_ms = Some(clock.wall_ms());
        }
        if let Some(end) = self.due_end(now) {
            self.end(&end, clock);
        }
        before != self.observed.phase
    }

    /// The end that is due by now, if any.
    fn due_end(&self, now: Duration) -> Option<End> {
        if self.observed.phase == Phase::Ended {
            return None;
        }
        if let Some(deletion) = self.deletion {
            let obeys = self.behaviour.obeys_after.is_some_and(|after| now >= deletion.requested_at + after);
            return if obeys { Some(End::code(0)) } else { (now >= deletion.deadline).then(|| End::signal(SIGKILL)) };
        }
        let (after, end) = self.behaviour.ends.as_ref()?;
        (now >= self.created_at + self.behaviour.starts_after + *after).then(|| end.clone())
    }
}
