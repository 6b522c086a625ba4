//! The script of a fake: which calls go wrong, and how; and whether the master's clock runs.
//!
//! Every call has a text: the server and what it is asked for, such as `database: abort a-1 ALTER …` or
//! `orchestrator: probe NAME`; a decision is `effect:` with its verb and its engine. A fault concerns the calls whose text
//! contains its own.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::{Fake, State};
use crate::ctx::{Failure, LeaseState};

/// What goes wrong with a call.
pub enum Fault {
    /// It fails and has no effect.
    Fails(Failure),
    /// It never answers and has no effect.
    Hangs,
    /// It takes effect, and its answer is lost.
    LosesAnswer,
    /// It takes so long.
    Takes(Duration),
    /// This happens right before it, once.
    Before(Event),
    /// This happens right after it, once.
    After(Event),
}

type Event = Box<dyn FnOnce(&mut State) + Send>;

impl Fault {
    pub fn before(event: impl FnOnce(&mut State) + Send + 'static) -> Self {
        Self::Before(Box::new(event))
    }

    pub fn after(event: impl FnOnce(&mut State) + Send + 'static) -> Self {
        Self::After(Box::new(event))
    }
}

struct Scripted {
    call: String,
    /// How many of the calls it leaves alone first.
    skips: usize,
    fault: Fault,
}

#[derive(Default)]
pub struct Script {
    faults: Vec<Scripted>,
    /// Since when the master's clock runs; otherwise only [`Fake::pass`] moves it.
    clock_runs_since: Option<Instant>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.faults.iter().map(|scripted| &scripted.call)).finish()
    }
}

impl Script {
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    /// For how long the master's clock has run.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock_runs_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn find<T>(&self, call: &str, pick: impl Fn(&Fault) -> Option<T>) -> Option<T> {
        let mut concerned = self.faults.iter().filter(|scripted| call.contains(&scripted.call));
        concerned.find_map(|scripted| pick(&scripted.fault))
    }

    /// Removes the events that are due at a call.
    fn events(&mut self, call: &str, is_due: impl Fn(&Fault) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for mut scripted in std::mem::take(&mut self.faults) {
            let concerned = call.contains(&scripted.call) && is_due(&scripted.fault);
            match scripted.fault {
                Fault::Before(event) | Fault::After(event) if concerned && scripted.skips == 0 => events.push(event),
                _ => {
                    scripted.skips -= usize::from(concerned);
                    self.faults.push(scripted);
                }
            }
        }
        events
    }
}

impl Fake {
    /// From now on the calls whose text contains this go wrong.
    pub fn script(&self, call: &str, fault: Fault) {
        self.state().script.faults.push(Scripted { call: call.to_owned(), skips: 0, fault });
    }

    /// The lease is in doubt after so many effects.
    pub fn suspend_after(&self, effects: usize) {
        let fault = Fault::after(|state| state.lease = LeaseState::InDoubt);
        self.state().script.faults.push(Scripted { call: "effect:".to_owned(), skips: effects - 1, fault });
    }

    /// From now on nothing goes wrong.
    pub fn recover(&self) {
        self.state().script.faults.clear();
    }

    /// Starts the master's clock.
    pub fn run_clock(&self) {
        self.state().script.clock_runs_since = Some(Instant::now());
    }

    /// Waits for as long as the call takes.
    pub(super) async fn delay(&self, call: &str) {
        let delay = self.state().script.find(call, |fault| match fault {
            Fault::Hangs => Some(None),
            Fault::Takes(time) => Some(Some(*time)),
            _ => None,
        });
        match delay {
            Some(None) => std::future::pending::<()>().await,
            Some(Some(time)) => tokio::time::sleep(time).await,
            None => {}
        }
    }
}

impl State {
    /// Begins a call: fails, or runs what happens before it.
    pub(super) fn begin(&mut self, call: &str) -> Result<(), Failure> {
        let failure = self.script.find(call, |fault| match fault {
            Fault::Fails(failure) => Some(failure.clone()),
            _ => None,
        });
        if let Some(failure) = failure {
            return Err(failure);
        }
        for event in self.script.events(call, |fault| matches!(fault, Fault::Before(_))) {
            event(self);
        }
        Ok(())
    }

    /// Ends a call: runs what happens after it, and loses its answer.
    pub(super) fn end(&mut self, call: &str) -> Result<(), Failure> {
        for event in self.script.events(call, |fault| matches!(fault, Fault::After(_))) {
            event(self);
        }
        let is_lost = self.script.find(call, |fault| matches!(fault, Fault::LosesAnswer).then_some(()));
        match is_lost {
            Some(()) => Err(Failure::Unknown("the answer was lost".to_owned())),
            None => Ok(()),
        }
    }
}

/// No metadata agent is registered.
pub fn no_agent() -> Failure {
    Failure::Unavailable("a metadata agent: none is registered".to_owned())
}

pub fn no_answer() -> Failure {
    Failure::Unknown("it does not answer".to_owned())
}
