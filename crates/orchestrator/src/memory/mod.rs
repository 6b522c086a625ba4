//! The fake: an in-memory orchestrator for tests of the callers of one.
//!
//! It keeps the whole contract (the contract suite runs on it) and adds two things: time advances only with the injected
//! clock, and a test can inject faults ([`faults`]): errors, lost replies, calls that hang, stale lists, engines that end,
//! crash loops, labels changed by hand. It records every call. Clones share one state: a second clone is another instance
//! over the same state.

pub mod behaviour;
pub mod faults;
mod life;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use model::clock::SharedClock;
use model::engine_state::Phase;
use model::labels::LabelMap;
use model::observation::ObservedNode;
use model::observed_pods::ObservedPods;
use model::{EngineName, Epoch};
use parking_lot::{Mutex, MutexGuard};

use crate::observed::{annotations, has_labels};
use crate::wake::{Notifier, WakeUps};
use crate::{Deleted, Ensured, Error, Listing, ObservedInstance, Orchestrator, Spec};

pub use behaviour::{Behaviour, End};
use faults::Faults;
pub use faults::{Call, HeldCalls, Verb};
use life::Engine;

/// The limit of recorded calls; a longer test clears them from time to time.
pub const MAX_CALLS: usize = 100_000;

/// The fake. Clones share their state.
#[derive(Debug, Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: SharedClock,
    notifier: Notifier,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    engines: BTreeMap<EngineName, Engine>,
    faults: Faults,
    highest: Option<Epoch>,
    created: u64,
    nodes: Vec<String>,
    observed_nodes: Vec<ObservedNode>,
    max_engines: Option<usize>,
    /// That of the last list.
    selector: LabelMap,
    /// The time that every engine was advanced to; `None`: one has changed since.
    passed: Option<Duration>,
    /// The nodes with the sums of what is requested of them; `None`: something has changed since.
    summed: Option<Vec<ObservedNode>>,
}

impl Memory {
    /// No engines, one node, `node-1`, and no limit of engines.
    pub fn new(clock: SharedClock) -> Self {
        let state = State { nodes: vec!["node-1".to_owned()], ..State::default() };
        Self { inner: Arc::new(Inner { clock, notifier: Notifier::new(), state: Mutex::new(state) }) }
    }

    /// Sets the nodes and the limit of engines.
    #[must_use]
    pub fn with_capacity(self, nodes: &[&str], max_engines: Option<usize>) -> Self {
        {
            let mut state = self.lock();
            state.nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
            state.max_engines = max_engines;
        }
        self
    }

    /// Sets the nodes that are reported from now on, with what others than its engines request of them.
    pub fn set_nodes(&self, nodes: Vec<ObservedNode>) {
        self.change(|state, _| state.observed_nodes = nodes);
    }

    /// Advances every engine to the current time of the clock, and wakes the watchers if one has changed. Called by a test
    /// that moved the clock, and by every verb.
    pub fn settle(&self) {
        let changed = self.lock().pass_time(&self.inner.clock);
        if changed {
            self.inner.notifier.notify();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// Changes the state from outside, as fault injection does.
    fn change<T>(&self, change: impl FnOnce(&mut State, &SharedClock) -> T) -> T {
        let result = {
            let mut state = self.lock();
            state.pass_time(&self.inner.clock);
            state.touch();
            change(&mut state, &self.inner.clock)
        };
        self.inner.notifier.notify();
        result
    }

    /// Records the call, waits while the verb is held, and fails if a fault was injected; otherwise does the work, whose
    /// reply may be lost.
    async fn call<T>(
        &self,
        call: Call,
        work: impl FnOnce(&mut State, &SharedClock) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let verb = call.verb;
        let held = self.lock().faults.begin(call);
        if let Some(mut held) = held {
            // An error means that the holder was dropped, which also releases the call.
            drop(held.wait_for(|released| *released).await);
        }
        let (result, changed) = {
            let mut state = self.lock();
            let before = state.pass_time(&self.inner.clock);
            if let Some(error) = state.faults.take_failure(verb) {
                (Err(error), before)
            } else {
                let result = work(&mut state, &self.inner.clock);
                if verb.has_effect() {
                    state.touch();
                }
                let after = state.pass_time(&self.inner.clock);
                let lost = state.faults.take_loss(verb).then(|| Error::transient("the reply was lost"));
                (lost.map_or(result, Err), before || after || verb.has_effect())
            }
        };
        if changed {
            self.inner.notifier.notify();
        }
        result
    }
}

impl State {
    fn pass_time(&mut self, clock: &SharedClock) -> bool {
        // Engines change with the clock only.
        if self.passed.replace(clock.boottime()) == Some(clock.boottime()) {
            return false;
        }
        let before = self.engines.len();
        let mut moved = false;
        for engine in self.engines.values_mut() {
            moved |= engine.pass_time(clock);
        }
        self.engines.retain(|_, engine| !engine.is_over());
        let is_changed = moved || self.engines.len() != before;
        if is_changed {
            self.summed = None;
        }
        is_changed
    }

    /// Something about engines or nodes is changed other than by time.
    fn touch(&mut self) {
        (self.passed, self.summed) = (None, None);
    }

    fn check_epoch(&mut self, epoch: Epoch) -> Result<(), Error> {
        match self.highest {
            Some(highest) if epoch < highest => Err(Error::Deposed { epoch, highest }),
            _ => {
                self.highest = Some(epoch);
                Ok(())
            }
        }
    }

    fn list(&mut self, selector: &LabelMap) -> Listing {
        if self.selector != *selector {
            self.selector.clone_from(selector);
            self.engines.values_mut().for_each(|engine| engine.is_selected = None);
        }
        let engines = if let Some(frozen) = &self.faults.frozen {
            frozen.iter().filter(|engine| engine.matches(selector)).cloned().collect()
        } else {
            let engines = self.engines.values_mut();
            engines.filter_map(|engine| engine.is_selected_by(selector).then(|| engine.observed.clone())).collect()
        };
        Listing { engines, ..Listing::default() }
    }

    /// The nodes with what the engines on them request; executors are counted where their driver is.
    fn nodes(&mut self) -> Vec<ObservedNode> {
        if let Some(summed) = &self.summed {
            return summed.clone();
        }
        let mut nodes = self.observed_nodes.clone();
        let at: BTreeMap<String, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        for (name, requests) in self.engines.values().flat_map(Engine::requests) {
            if let Some(node) = at.get(name).and_then(|at| nodes.get_mut(*at)) {
                node.cpu_used_millis += requests.cpu_millis;
                node.memory_used_bytes += requests.memory_bytes;
            }
        }
        self.summed = Some(nodes.clone());
        nodes
    }

    fn ensure(&mut self, spec: &Spec, epoch: Epoch, clock: &SharedClock) -> Result<Ensured, Error> {
        spec.validate()?;
        self.check_epoch(epoch)?;
        if let Some(engine) = self.engines.get(&spec.name) {
            return existing(&engine.observed, spec);
        }
        if let Some(reason) = &self.faults.refusal {
            return Err(Error::refused(reason.clone()));
        }
        if self.max_engines.is_some_and(|max| self.engines.len() >= max) {
            return Err(Error::too_many(self.engines.len(), "orchestrator.max_engines"));
        }
        let node = self.choose_node(spec)?;
        self.created += 1;
        let uid = format!("memory-{}", self.created);
        let observed = ObservedInstance {
            name: spec.name.clone(),
            uid: uid.clone(),
            labels: spec.labels.clone().into(),
            annotations: annotations(spec, epoch).into(),
            phase: Phase::Pending,
            incomplete: false,
            reason: Some("starting".to_owned()),
            fault: None,
            pods: Some(ObservedPods::on_one_node(&spec.charge, &node).into()),
            node: Some(node),
            started_at_ms: None,
            exit: None,
            log_tail: None,
            details: Arc::default(),
        };
        let behaviour = self.faults.behaviour_of(&spec.name);
        self.engines.insert(spec.name.clone(), Engine::new(observed, behaviour, clock));
        Ok(Ensured { uid, created: true })
    }

    fn choose_node(&self, spec: &Spec) -> Result<String, Error> {
        let mut load: BTreeMap<&str, usize> = BTreeMap::new();
        for node in self.engines.values().filter_map(|engine| engine.observed.node.as_deref()) {
            *load.entry(node).or_default() += 1;
        }
        let allowed = |node: &&String| spec.nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        let chosen = self.nodes.iter().filter(allowed).min_by_key(|node| load.get(node.as_str()).copied());
        chosen.cloned().ok_or_else(|| Error::refused("none of the nodes of the spec exists"))
    }

    fn delete(
        &mut self,
        name: &EngineName,
        uid: &str,
        grace: Duration,
        epoch: Epoch,
        clock: &SharedClock,
    ) -> Result<Deleted, Error> {
        self.check_epoch(epoch)?;
        let Some(engine) = self.engines.get_mut(name) else { return Ok(Deleted::Gone) };
        if engine.observed.uid != uid {
            let present = engine.observed.uid.clone();
            return Err(Error::Gone { name: name.clone(), uid: uid.to_owned(), present });
        }
        if engine.observed.phase == Phase::Ended {
            self.engines.remove(name);
            return Ok(Deleted::Gone);
        }
        engine.ask_to_end(grace, clock);
        Ok(Deleted::Terminating)
    }
}

fn existing(present: &ObservedInstance, spec: &Spec) -> Result<Ensured, Error> {
    let conflict = |reason: &str| Err(Error::Conflict { name: spec.name.clone(), reason: reason.to_owned() });
    match present.phase {
        Phase::Ended => conflict("it has ended"),
        Phase::Terminating => conflict("it is terminating"),
        _ if !has_labels(&present.labels, &spec.labels) => conflict("its labels have other values"),
        _ => Ok(Ensured { uid: present.uid.clone(), created: false }),
    }
}

#[async_trait]
impl Orchestrator for Memory {
    async fn list(&self, selector: &LabelMap) -> Result<Listing, Error> {
        self.call(Call::new(Verb::List), |state, _| Ok(state.list(selector))).await
    }

    async fn get(&self, name: &EngineName, _locality: Option<&str>) -> Result<Option<ObservedInstance>, Error> {
        let call = Call { name: Some(name.clone()), ..Call::new(Verb::Get) };
        self.call(call, |state, _| Ok(state.engines.get(name).map(|engine| ObservedInstance::clone(&engine.observed))))
            .await
    }

    async fn ensure(&self, spec: &Spec, epoch: Epoch) -> Result<Ensured, Error> {
        let call = Call { name: Some(spec.name.clone()), epoch: Some(epoch), ..Call::new(Verb::Ensure) };
        self.call(call, |state, clock| state.ensure(spec, epoch, clock)).await
    }

    async fn delete(&self, name: &EngineName, uid: &str, grace: Duration, epoch: Epoch) -> Result<Deleted, Error> {
        let call = Call {
            name: Some(name.clone()),
            uid: Some(uid.to_owned()),
            grace: Some(grace),
            epoch: Some(epoch),
            ..Call::new(Verb::Delete)
        };
        self.call(call, |state, clock| state.delete(name, uid, grace, epoch, clock)).await
    }

    fn watch(&self) -> WakeUps {
        self.inner.notifier.watch()
    }

    async fn nodes(&self) -> Result<Vec<ObservedNode>, Error> {
        self.call(Call::new(Verb::Nodes), |state, _| Ok(state.nodes())).await
    }
}
