//! A simulation of the cluster in which decisions take effect immediately: used by EXPLAIN and by tests.
//!
//! The simulation does nothing by itself. Its events (engines that register, drained ones that exit, time that passes) are
//! methods, so the caller determines when they happen. What transactions of the database do to slots is in `slots`.

mod slots;

use std::time::Duration;

use model::end::GivenUp;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::ledger::{Change, Moment};
use model::millis;
use model::shared::Shared;

use crate::decision::{Action, Decision, DesiredEngine, Transition};
use crate::desired::DesiredState;
use crate::observed::{DrainOrder, Instance, ObservedState, Permit, Registration};
use crate::plan::{Plan, plan, probes};

/// The desired and the observed state of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Simulation {
    pub desired: DesiredState,
    pub observed: ObservedState,
    /// The number of created instances: each gets its own uid.
    pub created: u64,
}

impl Simulation {
    pub fn new(desired: DesiredState, observed: ObservedState) -> Self {
        Self { desired, observed, created: 0 }
    }

    /// Answers the plan's probes, and plans.
    pub fn plan(&mut self) -> Plan {
        self.observed.vanished =
            probes(&self.desired, &self.observed).into_iter().map(|probe| (probe.engine, probe.uid)).collect();
        plan(&self.desired, &self.observed)
    }

    /// Applies all decisions of a plan. A chain ends at a change that the ledger refuses.
    pub fn apply(&mut self, plan: &Plan) {
        for chain in &plan.chains {
            let mut uid = None;
            let _ = chain.decisions.iter().all(|decision| self.apply_one(decision, &mut uid));
        }
    }

    /// Applies one decision; `created` is the uid that the chain's create returned. Returns whether its chain goes on.
    pub fn apply_one(&mut self, decision: &Decision, created: &mut Option<String>) -> bool {
        if let Action::Ledger(change) = &decision.action {
            let snapshot = &mut self.desired.snapshot;
            let at = Moment { now_ms: snapshot.now_ms, epoch: snapshot.master.epoch };
            let decided = snapshot.ledger.apply(&change.change, at);
            if matches!(change.change, Change::End(_) | Change::Transfer { .. }) {
                self.forget_ended_reservations();
            }
            return decided.is_ok_and(|reservation| {
                let is_grant = matches!(change.change, Change::Reserve(_) | Change::Transfer { .. });
                !is_grant || reservation.state.is_charged()
            });
        }
        self.apply_to_cluster(decision, created);
        true
    }

    fn apply_to_cluster(&mut self, decision: &Decision, created: &mut Option<String>) {
        if let Action::Finish { id, transition } = &decision.action {
            let stalled = *transition == Transition::Stalled;
            self.desired.snapshot.alterations.retain(|record| record.id != *id || stalled);
            for alteration in self.desired.snapshot.alterations.iter_mut().filter(|record| record.id == *id) {
                alteration.progress = Some(model::alteration::AlterationProgress::Stalled);
                alteration.reason = Some(decision.reason.clone());
            }
            return;
        }
        if let Action::Scale(scaling) = &decision.action {
            return self.scale(scaling);
        }
        let Some(engine) = &decision.engine else { return };
        let observed = &mut self.observed;
        match &decision.action {
            Action::CreatePermit { uid, sessions, owner } => {
                // The permit of an engine that already runs is created with the mark.
                let (uid, answered) = (uid.clone(), uid.is_some());
                let (sessions, owner) = (Some(*sessions), Some(owner.clone()));
                let permit = Permit { engine: engine.clone(), uid, readable: true, answered, sessions, owner };
                observed.permits.push(permit.into());
            }
            Action::CreateEngine(desired) => *created = Some(self.create(engine, desired)),
            Action::RecordUid { uid, config } => {
                let uid = uid.clone().or_else(|| created.clone());
                self.record_uid(engine, uid, config);
            }
            Action::WritePermitSessions { sessions } => {
                for permit in observed.permits.iter_mut().filter(|permit| permit.engine == *engine) {
                    permit.sessions = Some(*sessions);
                }
            }
            Action::WritePermitUid { uid, .. } => {
                let uid = uid.clone().or_else(|| created.clone());
                for permit in observed.permits.iter_mut().filter(|permit| permit.engine == *engine) {
                    permit.uid.clone_from(&uid);
                }
            }
            Action::DrawIncarnation { observed, failures, replacement, ends } => {
                if let Some(slot) = &decision.slot {
                    let ends = ends.map(|class| GivenUp { class, reason: decision.reason.clone() });
                    self.draw(slot, *observed, (*failures, *replacement), ends);
                }
            }
            Action::RecordEnd { reason, class, log_tail } => {
                let now_ms = self.desired.snapshot.now_ms;
                for record in self.desired.snapshot.engines.iter_mut().filter(|record| record.name == *engine) {
                    record.ended_at_ms.get_or_insert(now_ms);
                    record.ended_reason.get_or_insert_with(|| reason.clone());
                    if record.ended_word.is_none() {
                        (record.ended_word, record.retryable) = (Some(class.word), class.retryable);
                    }
                    record.log_tail.clone_from(log_tail);
                }
                self.forget_ended();
            }
            Action::Drain { uid, grace, withdraw, namespace, .. } => {
                observed.drains.push(DrainOrder {
                    engine: engine.clone(),
                    uid: Some(uid.clone()),
                    grace: *grace,
                    reason: decision.reason.clone(),
                    age: Duration::ZERO,
                    quiet: Duration::ZERO,
                    namespace: namespace.clone(),
                });
                if *withdraw {
                    self.withdraw(engine);
                }
            }
            Action::DeleteEngine { uid, .. } => observed.instances.retain(|instance| instance.uid != *uid),
            Action::DeletePermit => self.withdraw(engine),
            Action::RemoveDrainOrder => observed.drains.retain(|drain| drain.engine != *engine),
            Action::Retire { observed, reclaimed_for, .. } => {
                if let Some(slot) = &decision.slot {
                    self.retire(slot, *observed, reclaimed_for);
                }
            }
            Action::Ledger(_) | Action::Scale(_) | Action::Finish { .. } => {}
        }
    }

    fn withdraw(&mut self, engine: &EngineName) {
        self.observed.permits.retain(|permit| permit.engine != *engine);
        self.observed.registrations.retain(|registration| registration.engine != *engine);
    }

    /// Like the orchestrators' verb: returns an existing instance with the name.
    fn create(&mut self, engine: &EngineName, desired: &DesiredEngine) -> String {
        if let Some(instance) = self.observed.instances.iter_mut().find(|instance| instance.name == *engine) {
            instance.incomplete = false;
            return instance.uid.clone();
        }
        self.created += 1;
        let uid = format!("{engine}/{}", self.created);
        let instance = Instance {
            name: engine.clone(),
            uid: uid.clone(),
            labels: desired.labels.encode().into(),
            phase: Phase::Starting,
            incomplete: false,
            generation: Some(self.desired.snapshot.catalog.generation),
            node: None,
            reason: None,
            started_at_ms: Some(self.desired.snapshot.now_ms),
            log_tail: None,
            fault: None,
            pods: None,
            details: std::sync::Arc::default(),
        };
        self.observed.instances.push(instance.into());
        uid
    }

    fn record_uid(&mut self, engine: &EngineName, uid: Option<String>, config: &str) {
        let now_ms = self.desired.snapshot.now_ms;
        let record =
            self.desired.snapshot.engines.iter_mut().find(|record| record.name == *engine && record.uid.is_none());
        if let (Some(record), Some(uid)) = (record, uid) {
            record.uid = Some(uid);
            config.clone_into(&mut record.config);
            record.started_at_ms = Some(now_ms);
        }
    }

    /// The engines that could register now: they run, are not draining, and their permit has their uid.
    pub fn about_to_register(&self) -> Vec<EngineName> {
        let may = |instance: &&Shared<Instance>| {
            let permitted = self
                .observed
                .permits
                .iter()
                .any(|permit| permit.engine == instance.name && permit.uid.as_ref() == Some(&instance.uid));
            instance.is_alive()
                && !instance.incomplete
                && permitted
                && !self.is_draining(instance)
                && !self.is_registered(instance)
        };
        self.observed.instances.iter().filter(may).map(|instance| instance.name.clone()).collect()
    }

    fn is_draining(&self, instance: &Instance) -> bool {
        self.observed.drains.iter().any(|drain| drain.uid.as_ref() == Some(&instance.uid))
    }

    fn is_registered(&self, instance: &Instance) -> bool {
        self.observed.registrations.iter().any(|registration| registration.uid.as_ref() == Some(&instance.uid))
    }

    /// Registers the engine, if its permit allows it.
    pub fn register(&mut self, engine: &EngineName) -> bool {
        if !self.about_to_register().contains(engine) {
            return false;
        }
        let permitted = self.observed.permits.iter().find(|permit| permit.engine == *engine);
        let uid = permitted.and_then(|permit| permit.uid.clone());
        let found = self
            .observed
            .instances
            .iter_mut()
            .find(|instance| instance.name == *engine && Some(&instance.uid) == uid.as_ref());
        let Some(instance) = found else { return false };
        instance.phase = Phase::Running;
        self.observed
            .permits
            .iter_mut()
            .filter(|permit| permit.engine == *engine)
            .for_each(|permit| permit.answered = true);
        let registration = Registration {
            engine: engine.clone(),
            uid,
            address: "127.0.0.1:1".to_owned(),
            config: instance.labels.get(model::labels::CONFIG).cloned().unwrap_or_default(),
            catalog: None,
            unclaimed: Duration::ZERO,
        };
        self.observed.registrations.push(registration.into());
        true
    }

    /// Ends every draining engine; returns their number.
    pub fn exit_drained(&mut self) -> usize {
        let draining: Vec<String> = self
            .observed
            .instances
            .iter()
            .filter(|instance| instance.is_alive() && self.is_draining(instance))
            .map(|instance| instance.uid.clone())
            .collect();
        for uid in &draining {
            self.end(uid, "drained");
        }
        draining.len()
    }

    /// Ends the instance with this uid and its registration.
    pub fn end(&mut self, uid: &str, reason: &str) {
        for instance in self.observed.instances.iter_mut().filter(|instance| instance.uid == uid) {
            instance.phase = Phase::Ended;
            instance.reason = Some(reason.to_owned());
        }
        self.observed.registrations.retain(|registration| registration.uid.as_deref() != Some(uid));
    }

    /// Advances all clocks.
    pub fn advance(&mut self, time: Duration) {
        let Simulation { desired, observed, .. } = self;
        desired.snapshot.now_ms += millis::from_duration(time);
        let there =
            |uid: &Option<String>| observed.instances.iter().any(|instance| Some(&instance.uid) == uid.as_ref());
        for registration in &mut observed.registrations {
            registration.unclaimed =
                if there(&registration.uid) { Duration::ZERO } else { registration.unclaimed + time };
        }
        for drain in &mut observed.drains {
            drain.age += time;
            let seen =
                there(&drain.uid) || observed.registrations.iter().any(|registration| registration.uid == drain.uid);
            drain.quiet = if seen { Duration::ZERO } else { drain.quiet + time };
        }
        observed.since_suspended = observed.since_suspended.map(|since| since + time);
        for node in observed.unready.values_mut() {
            node.lasted += time;
        }
        for failure in observed.create_failures.values_mut() {
            failure.retry_in = failure.retry_in.saturating_sub(time);
        }
    }
}
