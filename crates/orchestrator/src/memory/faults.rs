//! Fault injection, and the record of calls.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use model::shared::Shared;
use model::{EngineName, Epoch};
use tokio::sync::watch;

use super::behaviour::{Behaviour, End};
use super::life::Engine;
use super::{MAX_CALLS, Memory};
use crate::{Error, ObservedInstance};

/// The verbs of an orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    List,
    Get,
    Ensure,
    Delete,
    Nodes,
}

impl Verb {
    pub(super) fn has_effect(self) -> bool {
        matches!(self, Self::Ensure | Self::Delete)
    }
}

/// One call, recorded when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// `None` for `list` and `nodes`.
    pub name: Option<EngineName>,
    /// Of a `delete`.
    pub uid: Option<String>,
    /// Of a `delete`.
    pub grace: Option<Duration>,
    /// Of an effect.
    pub epoch: Option<Epoch>,
}

impl Call {
    pub(super) fn new(verb: Verb) -> Self {
        Self { verb, name: None, uid: None, grace: None, epoch: None }
    }
}

/// A verb that hangs until this is released or dropped.
#[derive(Debug)]
pub struct HeldCalls {
    sender: watch::Sender<bool>,
}

impl HeldCalls {
    /// Lets the calls that hang, and all later ones, continue.
    pub fn release(self) {
        self.sender.send_replace(true);
    }
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    calls: Vec<Call>,
    failures: HashMap<Verb, VecDeque<Error>>,
    losses: HashMap<Verb, u32>,
    holds: HashMap<Verb, watch::Receiver<bool>>,
    default: Behaviour,
    behaviours: BTreeMap<EngineName, Behaviour>,
    pub(super) refusal: Option<String>,
    pub(super) frozen: Option<Vec<Shared<ObservedInstance>>>,
}

impl Faults {
    /// Records the call; returns what it has to wait for.
    pub(super) fn begin(&mut self, call: Call) -> Option<watch::Receiver<bool>> {
        let held = self.holds.get(&call.verb).cloned();
        assert!(self.calls.len() < MAX_CALLS, "more than {MAX_CALLS} calls: clear them from time to time");
        self.calls.push(call);
        held
    }

    pub(super) fn take_failure(&mut self, verb: Verb) -> Option<Error> {
        self.failures.get_mut(&verb)?.pop_front()
    }

    pub(super) fn take_loss(&mut self, verb: Verb) -> bool {
        let left = self.losses.entry(verb).or_default();
        let lost = *left > 0;
        *left = left.saturating_sub(1);
        lost
    }

    pub(super) fn behaviour_of(&self, name: &EngineName) -> Behaviour {
        self.behaviours.get(name).unwrap_or(&self.default).clone()
    }
}

impl Memory {
    /// The next call of the verb fails before it has any effect. Several failures are queued.
    pub fn fail_next(&self, verb: Verb, error: Error) {
        self.lock().faults.failures.entry(verb).or_default().push_back(error);
    }

    /// The next call of the verb has its effect and fails as *transient*.
    pub fn lose_reply(&self, verb: Verb) {
        *self.lock().faults.losses.entry(verb).or_default() += 1;
    }

    /// Calls of the verb hang, before they have any effect, until the returned guard is released or dropped.
    pub fn hold(&self, verb: Verb) -> HeldCalls {
        let (sender, receiver) = watch::channel(false);
        self.lock().faults.holds.insert(verb, receiver);
        HeldCalls { sender }
    }

    /// Every new engine is refused with the reason; `None` ends that.
    pub fn refuse_creates(&self, reason: Option<&str>) {
        self.lock().faults.refusal = reason.map(str::to_owned);
    }

    /// `list` returns the current state until [`Memory::thaw_lists`]; `get` stays up to date.
    pub fn freeze_lists(&self) {
        self.change(|state, _| {
            state.faults.frozen = Some(state.engines.values().map(|engine| engine.observed.clone()).collect());
        });
    }

    pub fn thaw_lists(&self) {
        self.change(|state, _| state.faults.frozen = None);
    }

    /// Sets the behaviour of engines that are created from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.lock().faults.default = behaviour;
    }

    /// Sets the behaviour of the engine of that name.
    pub fn behave_as(&self, name: &EngineName, behaviour: Behaviour) {
        self.lock().faults.behaviours.insert(name.clone(), behaviour);
    }

    /// The engine ends by itself, now. `false` if no such engine is alive.
    pub fn end(&self, name: &EngineName, end: &End) -> bool {
        self.change(|state, clock| match state.engines.get_mut(name) {
            Some(engine) if engine.observed.phase != Phase::Ended => {
                engine.end(end, clock);
                state.pass_time(clock);
                true
            }
            _ => false,
        })
    }

    /// Removes the engine without a trace, as by hand. `false` if there is none.
    pub fn vanish(&self, name: &EngineName) -> bool {
        self.change(|state, _| state.engines.remove(name).is_some())
    }

    /// Creates an engine, or replaces everything about one, from outside.
    pub fn put(&self, observed: ObservedInstance) {
        self.change(|state, clock| {
            let behaviour = state.faults.behaviour_of(&observed.name);
            state.engines.insert(observed.name.clone(), Engine::new(observed, behaviour, clock));
        });
    }

    /// Changes a label, as by hand. `false` if there is no such engine.
    pub fn set_label(&self, name: &EngineName, label: &str, value: &str) -> bool {
        self.change(|state, _| {
            let Some(engine) = state.engines.get_mut(name) else { return false };
            engine.is_selected = None;
            Arc::make_mut(&mut engine.observed.labels).insert(label.to_owned(), value.to_owned());
            true
        })
    }

    /// Calls `each` with every engine as it is now, in the order of their names and whatever `list` returns.
    pub fn for_each(&self, each: impl FnMut(&ObservedInstance)) {
        self.settle();
        self.lock().engines.values().map(|engine| &*engine.observed).for_each(each);
    }

    /// The calls since the start, or since they were last cleared.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().faults.calls.clone()
    }

    pub fn count(&self, verb: Verb) -> usize {
        self.lock().faults.calls.iter().filter(|call| call.verb == verb).count()
    }

    pub fn clear_calls(&self) {
        self.lock().faults.calls.clear();
    }
}
