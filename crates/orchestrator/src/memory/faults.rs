//! What a test may command of the fake, and what it may ask of it afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use model::{EngineName, Epoch};
use tokio::sync::watch;

use super::life::Engine;
use super::{MAX_CALLS, Memory};
use crate::{Error, Observed};

/// The verbs of an orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `list`.
    List,
    /// `get`.
    Get,
    /// `ensure`.
    Ensure,
    /// `delete`.
    Delete,
    /// `capacity`.
    Capacity,
    /// `nodes`.
    Nodes,
}

impl Verb {
    pub(super) fn has_effect(self) -> bool {
        matches!(self, Self::Ensure | Self::Delete)
    }
}

/// One call, written down when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Which verb.
    pub verb: Verb,
    /// Which engine; `None` for `list` and `capacity`.
    pub name: Option<EngineName>,
    /// The uid of a `delete`.
    pub uid: Option<String>,
    /// The grace of a `delete`.
    pub grace: Option<Duration>,
    /// The epoch of an effect.
    pub epoch: Option<Epoch>,
}

impl Call {
    pub(super) fn new(verb: Verb) -> Self {
        Self { verb, name: None, uid: None, grace: None, epoch: None }
    }
}

/// How an engine ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its reason, if it leaves one.
    pub reason: Option<String>,
    /// The last lines of its log.
    pub log_tail: Option<String>,
}

impl End {
    /// It returned a code.
    pub fn code(code: i32) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    /// A signal ended it.
    pub fn signal(signal: i32) -> Self {
        Self { signal: Some(signal), ..Self::default() }
    }

    /// Adds a reason, which is the last line of its log too.
    #[must_use]
    pub fn saying(mut self, reason: &str) -> Self {
        self.reason = Some(reason.to_owned());
        self.log_tail = Some(reason.to_owned());
        self
    }
}

/// What an engine does once it is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// How long it stays pending.
    pub starts_after: Duration,
    /// How long it takes to end when it is told to; `None`: it has to be killed.
    pub obeys_after: Option<Duration>,
    /// When, after its start, and how it ends by itself. For all engines: a crash loop.
    pub ends: Option<(Duration, End)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { starts_after: Duration::ZERO, obeys_after: Some(Duration::ZERO), ends: None }
    }
}

impl Behaviour {
    /// It has to be killed.
    pub fn stubborn() -> Self {
        Self { obeys_after: None, ..Self::default() }
    }

    /// It ends by itself after the given time.
    pub fn ending(after: Duration, end: End) -> Self {
        Self { ends: Some((after, end)), ..Self::default() }
    }
}

/// A verb that hangs until this is released or dropped.
#[derive(Debug)]
pub struct Held {
    sender: watch::Sender<bool>,
}

impl Held {
    /// Lets the calls that hang, and all later ones, go on.
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
    usual: Behaviour,
    behaviours: BTreeMap<EngineName, Behaviour>,
    pub(super) refusal: Option<String>,
    pub(super) frozen: Option<Vec<Observed>>,
}

impl Faults {
    /// Writes the call down; what it has to wait for.
    pub(super) fn begin(&mut self, call: Call) -> Option<watch::Receiver<bool>> {
        let held = self.holds.get(&call.verb).cloned();
        assert!(self.calls.len() < MAX_CALLS, "more than {MAX_CALLS} calls: forget them now and then");
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
        self.behaviours.get(name).unwrap_or(&self.usual).clone()
    }
}

impl Memory {
    /// The next call of the verb fails before it has any effect. Several wait in line.
    pub fn fail_next(&self, verb: Verb, error: Error) {
        self.lock().faults.failures.entry(verb).or_default().push_back(error);
    }

    /// The next call of the verb has its effect, and answers *transient*.
    pub fn lose_answer(&self, verb: Verb) {
        *self.lock().faults.losses.entry(verb).or_default() += 1;
    }

    /// Calls of the verb hang, before they have any effect, until what is returned is released or dropped.
    pub fn hold(&self, verb: Verb) -> Held {
        let (sender, receiver) = watch::channel(false);
        self.lock().faults.holds.insert(verb, receiver);
        Held { sender }
    }

    /// Every new engine is refused with the reason; `None`: no more.
    pub fn refuse_creates(&self, reason: Option<&str>) {
        self.lock().faults.refusal = reason.map(str::to_owned);
    }

    /// `list` answers what there is now until [`Memory::thaw_lists`]; `get` goes on telling the truth.
    pub fn freeze_lists(&self) {
        self.change(|state, _| {
            state.faults.frozen = Some(state.engines.values().map(|engine| engine.observed.clone()).collect());
        });
    }

    /// `list` tells the truth again.
    pub fn thaw_lists(&self) {
        self.change(|state, _| state.faults.frozen = None);
    }

    /// What engines do that are made from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.lock().faults.usual = behaviour;
    }

    /// What the engine of that name does when it is made.
    pub fn behave_as(&self, name: &EngineName, behaviour: Behaviour) {
        self.lock().faults.behaviours.insert(name.clone(), behaviour);
    }

    /// The engine ends by itself, now. `false` if there is none that lives.
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

    /// Somebody removes the engine by hand, leaving nothing. `false` if there is none.
    pub fn vanish(&self, name: &EngineName) -> bool {
        self.change(|state, _| state.engines.remove(name).is_some())
    }

    /// Somebody else makes an engine, or changes everything about one.
    pub fn put(&self, observed: Observed) {
        self.change(|state, clock| {
            let behaviour = state.faults.behaviour_of(&observed.name);
            state.engines.insert(observed.name.clone(), Engine::new(observed, behaviour, clock));
        });
    }

    /// Somebody changes a label by hand. `false` if there is no such engine.
    pub fn set_label(&self, name: &EngineName, label: &str, value: &str) -> bool {
        self.change(|state, _| {
            let engine = state.engines.get_mut(name);
            engine.map(|it| Arc::make_mut(&mut it.observed.labels).insert(label.to_owned(), value.to_owned())).is_some()
        })
    }

    /// The calls since the beginning, or since they were last forgotten.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().faults.calls.clone()
    }

    /// How many of the calls were of this verb.
    pub fn count(&self, verb: Verb) -> usize {
        self.lock().faults.calls.iter().filter(|call| call.verb == verb).count()
    }

    /// Forgets the calls.
    pub fn forget_calls(&self) {
        self.lock().faults.calls.clear();
    }
}
