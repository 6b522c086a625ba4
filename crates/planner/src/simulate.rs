//! A world in which decisions take effect at once: what EXPLAIN and the tests play plans in.
//!
//! The world does nothing by itself. Its own moves (engines that get ready, drained ones that exit, time that passes)
//! are methods, so that whoever plays says when they happen.

use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::number::{Generation, Incarnation};
use model::slot::SlotKey;
use model::snapshot::EngineRecord;

use crate::decision::{Action, Decision, Launch, Progress};
use crate::desired::Desired;
use crate::observed::{Fact, Live, Observed, Permit, Pod};
use crate::plan::{Plan, plan, questions};

/// Desired and observed state together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct World {
    /// What should run.
    pub desired: Desired,
    /// What runs.
    pub observed: Observed,
    /// How many pods have been made here: each gets a uid of its own.
    pub made: u64,
}

impl World {
    /// A world in the given state.
    pub fn new(desired: Desired, observed: Observed) -> Self {
        Self { desired, observed, made: 0 }
    }

    /// Asks the orchestrator what a plan wants to know, and plans.
    pub fn plan(&mut self) -> Plan {
        self.observed.vanished = questions(&self.desired, &self.observed)
            .into_iter()
            .map(|question| (question.engine, question.uid))
            .collect();
        plan(&self.desired, &self.observed)
    }

    /// Lets all decisions of a plan take effect.
    pub fn apply(&mut self, plan: &Plan) {
        for chain in &plan.chains {
            let mut uid = None;
            for decision in &chain.decisions {
                self.apply_one(decision, &mut uid);
            }
        }
    }

    /// Lets one decision take effect; `made` is the uid that the chain's create has answered.
    pub fn apply_one(&mut self, decision: &Decision, made: &mut Option<String>) {
        if let Action::Finish { id, progress } = &decision.action {
            let converges = *progress == Progress::Stalled;
            self.desired.snapshot.alterations.retain(|it| it.id != *id || converges);
            for alteration in self.desired.snapshot.alterations.iter_mut().filter(|it| it.id == *id) {
                alteration.progress = Some(model::alteration::AlterationProgress::Stalled);
                alteration.reason = Some(decision.because.clone());
            }
            return;
        }
        let Some(engine) = &decision.engine else { return };
        let observed = &mut self.observed;
        match &decision.action {
            Action::CreatePermit { uid } => {
                // For an engine that runs already the mark comes with the permit.
                let (uid, answered) = (uid.clone(), uid.is_some());
                observed.permits.push(Permit { engine: engine.clone(), uid, readable: true, answered });
            }
            Action::CreateEngine(launch) => *made = Some(self.create(engine, launch)),
            Action::RecordUid { uid, config } => {
                let uid = uid.clone().or_else(|| made.clone());
                self.record_uid(engine, uid, config);
            }
            Action::WritePermitUid { uid } => {
                let uid = uid.clone().or_else(|| made.clone());
                for permit in observed.permits.iter_mut().filter(|it| it.engine == *engine) {
                    permit.uid.clone_from(&uid);
                }
            }
            Action::DrawIncarnation { observed, failures } => {
                if let Some(slot) = &decision.slot {
                    self.draw(slot, *observed, *failures);
                }
            }
            Action::RecordEnd { reason, log_tail } => {
                let now_ms = self.desired.snapshot.now_ms;
                for record in self.desired.snapshot.engines.iter_mut().filter(|it| it.name == *engine) {
                    record.ended_at_ms.get_or_insert(now_ms);
                    record.ended_reason = Some(reason.clone());
                    record.log_tail.clone_from(log_tail);
                }
                self.forget_ended();
            }
            Action::Drain { uid, grace_ms, withdraw, namespace, .. } => {
                observed.facts.push(Fact {
                    engine: engine.clone(),
                    uid: Some(uid.clone()),
                    grace_ms: *grace_ms,
                    reason: decision.because.clone(),
                    age_ms: 0,
                    quiet_ms: 0,
                    namespace: namespace.clone(),
                });
                if *withdraw {
                    self.withdraw(engine);
                }
            }
            Action::DeleteEngine { uid, .. } => observed.pods.retain(|pod| pod.uid != *uid),
            Action::DeletePermit => self.withdraw(engine),
            Action::RemoveFact => observed.facts.retain(|fact| fact.engine != *engine),
            Action::Finish { .. } => {}
        }
    }

    fn withdraw(&mut self, engine: &EngineName) {
        self.observed.permits.retain(|permit| permit.engine != *engine);
        self.observed.lives.retain(|live| live.engine != *engine);
    }

    /// Like the orchestrators' verb: a pod of the name that lives is the answer.
    fn create(&mut self, engine: &EngineName, launch: &Launch) -> String {
        if let Some(pod) = self.observed.pods.iter_mut().find(|pod| pod.name == *engine) {
            pod.incomplete = false;
            return pod.uid.clone();
        }
        self.made += 1;
        let uid = format!("{engine}/{}", self.made);
        self.observed.pods.push(Pod {
            name: engine.clone(),
            uid: uid.clone(),
            labels: launch.labels.encode().into(),
            phase: Phase::Starting,
            incomplete: false,
            generation: Some(self.desired.snapshot.catalog.generation),
            node: None,
            reason: None,
            started_at_ms: Some(self.desired.snapshot.now_ms),
            log_tail: None,
            details: std::sync::Arc::default(),
        });
        uid
    }

    fn record_uid(&mut self, engine: &EngineName, uid: Option<String>, config: &str) {
        let now_ms = self.desired.snapshot.now_ms;
        let record = self.desired.snapshot.engines.iter_mut().find(|it| it.name == *engine && it.uid.is_none());
        if let (Some(record), Some(uid)) = (record, uid) {
            record.uid = Some(uid);
            config.clone_into(&mut record.config);
            record.started_at_ms = Some(now_ms);
        }
    }

    fn draw(&mut self, key: &SlotKey, observed: Incarnation, failures: u32) {
        let moved = |slot: &&mut model::slot::Slot| slot.key == *key && slot.incarnation == observed;
        if self.desired.snapshot.slots.iter_mut().find(moved).is_none() {
            return;
        }
        self.renew(key, failures, false);
    }

    /// Gives the slot a new incarnation, as the transactions of the database do; returns the new name.
    pub fn renew(&mut self, key: &SlotKey, failures: u32, forced: bool) -> Option<EngineName> {
        let incarnation = self.next_number();
        let snapshot = &mut self.desired.snapshot;
        let slot = snapshot.slots.iter_mut().find(|slot| slot.key == *key)?;
        let before = std::mem::replace(&mut slot.incarnation, incarnation);
        slot.failures = failures;
        slot.forced = forced;
        let before = snapshot.engines.iter().find(|record| record.slot == *key && record.incarnation == before);
        let failure_before = before.filter(|_| failures > 0).and_then(|record| record.ended_reason.clone());
        let name = self.issue(key, incarnation);
        if let Some(record) = self.desired.snapshot.engines.last_mut() {
            record.failure_before = failure_before;
        }
        self.forget_ended();
        Some(name)
    }

    /// Draws the next number of the catalog's counter.
    pub fn next_number(&mut self) -> Incarnation {
        let generation = &mut self.desired.snapshot.catalog.generation;
        *generation = Generation(generation.get() + 1);
        Incarnation(generation.get())
    }

    /// Adds the row of table `engine` that goes with a new incarnation.
    pub fn issue(&mut self, key: &SlotKey, incarnation: Incarnation) -> EngineName {
        let name = key.engine(incarnation);
        self.desired.snapshot.engines.push(EngineRecord {
            name: name.clone(),
            slot: key.clone(),
            incarnation,
            uid: None,
            config: String::new(),
            issued_at_ms: self.desired.snapshot.now_ms,
            started_at_ms: None,
            end_grace_ms: None,
            end_reason: None,
            ended_at_ms: None,
            ended_reason: None,
            log_tail: None,
            failure_before: None,
        });
        name
    }

    /// Deletes a slot row; its engines are condemned.
    pub fn delete_slot(&mut self, key: &SlotKey, reason: &str, grace_ms: i64) {
        self.desired.snapshot.slots.retain(|slot| slot.key != *key);
        for record in self.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key) {
            if record.ended_at_ms.is_none() && record.end_reason.is_none() {
                record.end_reason = Some(reason.to_owned());
                record.end_grace_ms = Some(grace_ms);
            }
        }
        self.forget_ended();
    }

    /// A snapshot holds those ended engines only that are the present one of their slot.
    fn forget_ended(&mut self) {
        let present: Vec<EngineName> = self.desired.snapshot.slots.iter().map(model::slot::Slot::engine).collect();
        let engines = &mut self.desired.snapshot.engines;
        engines.retain(|record| record.ended_at_ms.is_none() || present.contains(&record.name));
    }

    /// The engines that could register now: they live, are not told to drain, and their permit has their uid.
    pub fn about_to_register(&self) -> Vec<EngineName> {
        let may = |pod: &&Pod| {
            let permitted =
                self.observed.permits.iter().any(|it| it.engine == pod.name && it.uid.as_ref() == Some(&pod.uid));
            pod.is_alive() && !pod.incomplete && permitted && !self.is_draining(pod) && !self.is_registered(pod)
        };
        self.observed.pods.iter().filter(may).map(|pod| pod.name.clone()).collect()
    }

    fn is_draining(&self, pod: &Pod) -> bool {
        self.observed.facts.iter().any(|fact| fact.uid.as_ref() == Some(&pod.uid))
    }

    fn is_registered(&self, pod: &Pod) -> bool {
        self.observed.lives.iter().any(|live| live.uid.as_ref() == Some(&pod.uid))
    }

    /// Registers the engine, if it may.
    pub fn register(&mut self, engine: &EngineName) -> bool {
        if !self.about_to_register().contains(engine) {
            return false;
        }
        let permitted = self.observed.permits.iter().find(|permit| permit.engine == *engine);
        let uid = permitted.and_then(|permit| permit.uid.clone());
        let found = self.observed.pods.iter_mut().find(|pod| pod.name == *engine && Some(&pod.uid) == uid.as_ref());
        let Some(pod) = found else { return false };
        pod.phase = Phase::Running;
        self.observed.permits.iter_mut().filter(|it| it.engine == *engine).for_each(|permit| permit.answered = true);
        self.observed.lives.push(Live {
            engine: engine.clone(),
            uid,
            address: "127.0.0.1:1".to_owned(),
            config: pod.labels.get(model::labels::CONFIG).cloned().unwrap_or_default(),
            catalog: None,
            unclaimed_ms: 0,
        });
        true
    }

    /// Lets every engine that was told to drain exit; returns how many did.
    pub fn exit_drained(&mut self) -> usize {
        let draining: Vec<String> = self
            .observed
            .pods
            .iter()
            .filter(|pod| pod.is_alive() && self.is_draining(pod))
            .map(|pod| pod.uid.clone())
            .collect();
        for uid in &draining {
            self.end(uid, "drained");
        }
        draining.len()
    }

    /// Lets the pod or process of the uid end; its registration goes with it.
    pub fn end(&mut self, uid: &str, reason: &str) {
        for pod in self.observed.pods.iter_mut().filter(|pod| pod.uid == uid) {
            pod.phase = Phase::Ended;
            pod.reason = Some(reason.to_owned());
        }
        self.observed.lives.retain(|live| live.uid.as_deref() != Some(uid));
    }

    /// Lets time pass on all clocks.
    pub fn pass(&mut self, ms: u64) {
        let World { desired, observed, .. } = self;
        desired.snapshot.now_ms += ms as i64;
        let there = |uid: &Option<String>| observed.pods.iter().any(|pod| Some(&pod.uid) == uid.as_ref());
        for live in &mut observed.lives {
            live.unclaimed_ms = if there(&live.uid) { 0 } else { live.unclaimed_ms + ms };
        }
        for fact in &mut observed.facts {
            fact.age_ms += ms as i64;
            let seen = there(&fact.uid) || observed.lives.iter().any(|live| live.uid == fact.uid);
            fact.quiet_ms = if seen { 0 } else { fact.quiet_ms + ms };
        }
        for trouble in observed.troubles.values_mut() {
            trouble.age_ms += ms as i64;
        }
    }
}
