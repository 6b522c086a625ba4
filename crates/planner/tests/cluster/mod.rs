//! A simulated cluster with the events of admins, engines and failures, for the scripts and the properties.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

mod demand;
pub mod judge;
pub mod ledger_judge;
pub mod moves;
pub mod node_judge;
mod objects;
pub mod pools;
pub mod succession_judge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::alteration::{AlterationProgress, AlterationRecord, ObjectRef, Outcome, RequestId};
use model::change::{Applied, Change, ObjectPatch, Rules};
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::error::UserError;
use model::ledger::{Amounts, End, Holder, Ledger, Moment, Refusal, Request, Reservation, Scopes, State};
use model::millis;
use model::number::{Epoch, Generation, Incarnation};
use model::resource::Amount;
use model::slot::{Origin, Replacement, Slot, SlotKey, StartedFor};
use model::{PoolName, TenantName, UnitName};
use planner::{
    Action, Decision, DesiredState, EngineLoad, Instance, Limits, ObservedState, Plan, Simulation, explain,
    explain_change,
};

/// A simulation with the rules of its catalog.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub simulation: Simulation,
    pub rules: Rules,
    pub alterations: u32,
    /// Whether the agents of engines that register are polled: EXPLAIN assumes that.
    pub polls_agents: bool,
}

pub fn slot_key(text: &str) -> SlotKey {
    let parts: Vec<&str> = text.split('/').collect();
    SlotKey {
        tenant: TenantName::new(parts[0]).unwrap(),
        pool: PoolName::new(parts[1]).unwrap(),
        unit: UnitName::new(parts[2]).unwrap(),
        ordinal: parts[3].parse().unwrap(),
    }
}

impl Cluster {
    pub fn new() -> Self {
        let desired = DesiredState { cluster: "eh".to_owned(), limits: Limits::default(), ..DesiredState::default() };
        let observed = ObservedState { registry_complete: true, ..ObservedState::default() };
        let mut simulation = Simulation::new(desired, observed);
        simulation.desired.snapshot.now_ms = 1_000_000;
        Self { simulation, rules: Rules::default(), alterations: 0, polls_agents: false }
    }

    pub fn exists(&self, reference: &ObjectRef) -> bool {
        model::change::Object::find(&self.simulation.desired.snapshot.catalog, reference).unwrap().is_some()
    }

    /// CREATE, or ALTER if the object exists.
    pub fn change_to(&self, object: ObjectPatch) -> Change {
        if self.exists(&object.reference()) {
            Change::Alter { if_exists: false, object }
        } else {
            Change::Create { if_not_exists: false, object }
        }
    }

    /// Commits an alteration as a metadata agent does.
    pub fn commit(&mut self, change: &Change) -> Result<(), UserError> {
        self.commit_with(change, Replacement::StandIn)
    }

    /// Commits an alteration whose engines take over from the older ones in this way.
    pub fn commit_with(&mut self, change: &Change, replacement: Replacement) -> Result<(), UserError> {
        let snapshot = &self.simulation.desired.snapshot;
        let Applied::Object { base, after, .. } = change.apply(&snapshot.catalog, &self.rules)? else { return Ok(()) };
        let reference = change.object();
        let generation = Generation(self.simulation.next_number().get());
        let catalog = self.simulation.desired.snapshot.catalog.with(&reference, after.as_ref(), generation);
        self.simulation.commit_catalog(catalog, replacement);
        self.alterations += 1;
        let snapshot = &mut self.simulation.desired.snapshot;
        snapshot.alterations.retain(|record| record.object.as_ref() != Some(&reference));
        snapshot.alterations.push(AlterationRecord {
            id: RequestId::new(format!("a{}", self.alterations)).unwrap(),
            object: Some(reference),
            base_generation: base,
            generation: snapshot.catalog.generation,
            statement: String::new(),
            requested_by: "admin".to_owned(),
            requested_at_ms: snapshot.now_ms,
            outcome: Outcome::Committed,
            decided_by: "agent".to_owned(),
            decided_at_ms: snapshot.now_ms,
            progress: Some(AlterationProgress::Converging),
            reason: None,
            finished_at_ms: None,
        });
        Ok(())
    }

    /// START ENGINE.
    pub fn start(&mut self, link: &str) -> EngineName {
        let slot = self.slot(link, None);
        self.simulation.insert_slot(slot)
    }

    /// START ENGINE by a user with a client application.
    pub fn start_for(&mut self, link: &str, user: &str) -> EngineName {
        let started_for = StartedFor { user: user.to_owned(), creator: "IDE".to_owned() };
        let slot = self.slot(link, Some(started_for));
        self.simulation.insert_slot(slot)
    }

    /// The slot that START would insert.
    pub fn slot(&self, link: &str, started_for: Option<StartedFor>) -> Slot {
        let link = slot_key(&format!("{link}/0")).link();
        self.simulation.new_slot(&link, Origin::Start, (None, started_for))
    }

    /// An external program requests this many cores, and waits for a minute.
    pub fn request_external(&mut self, id: &str, tenant: &str, pool: &str, cores: i64) -> Result<(), Refusal> {
        let (tenant, pool) = (TenantName::new(tenant).unwrap(), PoolName::new(pool).unwrap());
        let request = Request {
            id: id.into(),
            holder: Holder::External { key: format!("alice {id}").into(), instance: "i-1".into() },
            lineage: id.into(),
            scopes: Scopes::new(&tenant, &pool, None, None),
            amounts: Amounts::same(Amount { cpu_m: 1_000 * cores, memory: 0, engines: 1 }).unwrap(),
            asked: None,
            ttl_ms: Some(60_000),
        };
        let snapshot = &mut self.simulation.desired.snapshot;
        let at = Moment { now_ms: snapshot.now_ms, epoch: Epoch(0) };
        snapshot.ledger.enqueue(&request.into(), 60_000, at).map(drop)
    }

    /// The database loses a reservation, and what it was charged.
    pub fn lose_reservation(&mut self, id: &str) {
        let ledger = &mut self.simulation.desired.snapshot.ledger;
        let scopes: Vec<_> = ledger.scopes().map(|(key, scope)| (key.clone(), *scope)).collect();
        let kept: Vec<Reservation> =
            ledger.reservations().filter(|kept| **kept.id() != *id).map(|kept| (**kept).clone()).collect();
        *ledger = Ledger::new(scopes, kept);
        ledger.audit().unwrap();
    }

    /// Ends a reservation although its engine exists.
    pub fn end_reservation(&mut self, id: &str) {
        let snapshot = &mut self.simulation.desired.snapshot;
        let at = Moment { now_ms: snapshot.now_ms, epoch: Epoch(0) };
        snapshot.ledger.end(&End { id: id.into(), state: State::Lost, reason: "its node failed".into() }, at).unwrap();
    }

    pub fn reservation(&self, engine: &EngineName) -> Option<&Reservation> {
        self.simulation.desired.snapshot.ledger.reservation(engine.as_str()).map(AsRef::as_ref)
    }

    /// STOP ENGINE.
    pub fn stop(&mut self, key: &SlotKey) {
        self.simulation.next_number();
        self.simulation.delete_slot(key, "stopped by admin", 60_000);
    }

    /// RESTART ENGINE.
    pub fn restart(&mut self, key: &SlotKey, replacement: Replacement) {
        self.simulation.restart(key, replacement, Duration::from_mins(1));
    }

    /// The name that `t/p/u/0` (its current engine) or `t/p/u/0#7` means.
    pub fn engine(&self, text: &str) -> EngineName {
        if let Some((key, incarnation)) = text.split_once('#') {
            return slot_key(key).engine(Incarnation(incarnation.parse().unwrap()));
        }
        let key = slot_key(text);
        let slot = self.simulation.desired.snapshot.slots.iter().find(|slot| slot.key == key);
        slot.unwrap_or_else(|| panic!("no slot {text}")).engine()
    }

    pub fn uid(&self, engine: &EngineName) -> String {
        let instance = self.simulation.observed.instances.iter().find(|instance| instance.name == *engine);
        instance.unwrap_or_else(|| panic!("no pod {engine}")).uid.clone()
    }

    /// A late create of a deposed master adds an instance with this name, unless its unit or pool is gone; returns whether it
    /// did.
    pub fn late_create(&mut self, engine: &EngineName) -> bool {
        let records = &self.simulation.desired.snapshot.engines;
        let record = records.iter().find(|record| record.name == *engine).unwrap();
        let (slot, incarnation) = (record.slot.clone(), record.incarnation);
        self.late_create_of(&slot, incarnation)
    }

    /// The same for an incarnation of a slot, also if the end of its engine is recorded.
    pub fn late_create_of(&mut self, slot: &SlotKey, incarnation: Incarnation) -> bool {
        let Some(configuration) = self.simulation.desired.configuration(slot) else { return false };
        let labels = EngineLabels::new("eh", slot, incarnation, &configuration).encode();
        let name = slot.engine(incarnation);
        self.simulation.created += 1;
        let instance = Instance {
            uid: format!("{name}/late-{}", self.simulation.created),
            name,
            labels: labels.into(),
            phase: Phase::Running,
            incomplete: false,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            fault: None,
            pods: None,
            details: Arc::default(),
        };
        self.simulation.observed.instances.push(instance.into());
        true
    }

    /// Applies the first `count` decisions of a plan, like a master that dies after them.
    pub fn apply_first(&mut self, plan: &Plan, count: usize) {
        self.apply_while(plan, count, |_| true);
    }

    /// Applies a plan until the first `count` decisions that EXPLAIN shows have been applied.
    pub fn apply_first_shown(&mut self, plan: &Plan, count: usize) {
        let shown: Vec<Decision> = self.shown(plan).into_iter().cloned().collect();
        self.apply_while(plan, count, |decision| shown.contains(decision));
    }

    fn apply_while(&mut self, plan: &Plan, mut left: usize, counts: impl Fn(&Decision) -> bool) {
        for chain in &plan.chains {
            let mut created = None;
            for decision in &chain.decisions {
                if left == 0 {
                    return;
                }
                left -= usize::from(counts(decision));
                if !self.simulation.apply_one(decision, &mut created) {
                    break;
                }
            }
        }
    }

    /// ZooKeeper loses everything; running engines register again when their permits are back.
    pub fn lose_zookeeper(&mut self) {
        self.simulation.observed.permits.clear();
        self.simulation.observed.registrations.clear();
        self.simulation.observed.drains.clear();
    }

    pub fn explain(&self, change: &Change) -> Result<Vec<planner::Row>, UserError> {
        self.explain_with(change, Replacement::StandIn)
    }

    pub fn explain_with(&self, change: &Change, replacement: Replacement) -> Result<Vec<planner::Row>, UserError> {
        let Simulation { desired, observed, .. } = &self.simulation;
        explain_change(desired, change, replacement, &self.rules, observed)
    }

    pub fn explain_now(&self) -> Vec<planner::Row> {
        explain(&self.simulation.desired, &self.simulation.observed)
    }

    /// The decisions that EXPLAIN shows: changes of reservations only where something is limited.
    pub fn shown<'p>(&self, plan: &'p Plan) -> Vec<&'p Decision> {
        let ledger = &self.simulation.desired.snapshot.ledger;
        let is_shown = |decision: &&Decision| match &decision.action {
            Action::Ledger(change) => ledger.is_limited(&change.scopes),
            _ => true,
        };
        plan.decisions().filter(is_shown).collect()
    }

    /// Runs until nothing is left to do; every engine becomes ready. Passes each step to `visit`.
    pub fn settle(&mut self, mut visit: impl FnMut(&Cluster, Step<'_>)) {
        for _ in 0..10_000 {
            let plan = self.simulation.plan();
            visit(self, Step::Plan(&plan));
            if !plan.chains.is_empty() {
                self.simulation.apply(&plan);
                continue;
            }
            let starting = self.simulation.about_to_register();
            if !starting.is_empty() {
                for engine in starting {
                    visit(self, Step::Event(&format!("{engine} registers")));
                    self.simulation.register(&engine);
                    if self.polls_agents {
                        let load = EngineLoad { sessions: 0, running: 0 };
                        self.simulation.observed.loads.entry(engine).or_insert(load);
                    }
                }
                continue;
            }
            let draining = self.simulation.exit_drained();
            if draining > 0 {
                visit(self, Step::Event(&format!("{draining} drained engines exit")));
                continue;
            }
            let now_ms = self.simulation.desired.snapshot.now_ms;
            let due = plan.waits.iter().filter_map(|wait| wait.until_ms).min();
            let time = match due {
                Some(until_ms) => millis::to_duration((until_ms - now_ms).max(1)),
                None if self.has_to_wait() => Duration::from_secs(10),
                None => return,
            };
            visit(self, Step::Event(&format!("{} ms pass", time.as_millis())));
            self.simulation.advance(time);
        }
        panic!("the cluster never settles: {:#?}", self.simulation.plan());
    }

    fn has_to_wait(&self) -> bool {
        let observed = &self.simulation.observed;
        let waiting =
            |uid: &Option<String>| !observed.instances.iter().any(|instance| Some(&instance.uid) == uid.as_ref());
        !observed.drains.is_empty() || observed.registrations.iter().any(|registration| waiting(&registration.uid))
    }
}

/// A step towards the steady state.
pub enum Step<'a> {
    Plan(&'a Plan),
    Event(&'a str),
}

/// `zone=a,disk=ssd`, in scripts `zone:a,disk:ssd`, because `=` separates options there.
pub fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = names(text).map(|pair| pair.split_once(':').unwrap());
    pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect()
}

pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|name| !name.is_empty())
}
