//! A simulated cluster with the events of admins, engines and failures, for the scripts and the properties.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)]

pub mod judge;
pub mod ledger_judge;
pub mod moves;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::alteration::{AlterationProgress, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId};
use model::change::{Applied, Change, ObjectPatch, PoolPatch, QuotaPatch, Rules, Setting, TenantPatch, UnitPatch};
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::error::UserError;
use model::ledger::{Amounts, End, Holder, Ledger, Moment, Refusal, Request, Reservation, Scopes, State};
use model::millis;
use model::number::{Epoch, Generation, Incarnation};
use model::quota::{Capacity, DeclaredAmount, Principal, TransferLimit};
use model::resource::Amount;
use model::slot::{Origin, Slot, SlotKey, StartedFor};
use model::{PoolName, QuotaName, TenantName, UnitName};
use planner::{
    Action, Decision, DesiredState, Instance, Limits, ObservedState, Plan, Simulation, explain, explain_change,
};

/// A simulation with the rules of its catalog.
#[derive(Debug, Clone)]
pub struct Cluster {
    pub simulation: Simulation,
    pub rules: Rules,
    pub alterations: u32,
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
        Self { simulation, rules: Rules::default(), alterations: 0 }
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
        let snapshot = &self.simulation.desired.snapshot;
        let Applied::Object { base, after, .. } = change.apply(&snapshot.catalog, &self.rules)? else { return Ok(()) };
        let reference = change.object();
        let generation = Generation(self.simulation.next_number().get());
        let catalog = self.simulation.desired.snapshot.catalog.with(&reference, after.as_ref(), generation);
        self.simulation.commit_catalog(catalog);
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

    pub fn unit(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let number = |key: &str| options.get(key).map(|text| text.parse().unwrap());
        let patch = UnitPatch {
            driver_cpu: options.get("cpu").map(|text| text.parse().unwrap()),
            driver_memory: options.get("memory").map(|text| text.parse().unwrap()),
            min_engines: number("min"),
            max_engines: number("max"),
            priority: options.get("priority").map(|text| text.parse().unwrap()),
            ..UnitPatch::default()
        };
        ObjectPatch::ResourceUnit(UnitName::new(name).unwrap(), patch)
    }

    pub fn pool(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = PoolPatch {
            units: options.get("units").map(|text| names(text).map(|name| UnitName::new(name).unwrap()).collect()),
            nodes: options.get("nodes").map_or(Setting::Keep, |text| match *text {
                "any" => Setting::Reset,
                "none" => Setting::Set(Vec::new()),
                text => Setting::Set(names(text).map(str::to_owned).collect()),
            }),
            node_selector: options.get("labels").map_or(Setting::Keep, |text| match *text {
                "none" => Setting::Reset,
                text => Setting::Set(labels(text)),
            }),
            cpu_overcommit: options.get("overcommit").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            capacity: options.get("capacity").map_or(Setting::Keep, |text| match *text {
                "default" => Setting::Reset,
                "nodes" => Setting::Set(Capacity::Nodes),
                cpu => Setting::Set(Capacity::Amount(cpus(cpu))),
            }),
            protected: options.get("protected").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            reclaim: options.get("reclaim").map_or(Setting::Keep, |text| Setting::Set(text.parse().unwrap())),
            image: options.get("image").map_or(Setting::Keep, |text| Setting::Set((*text).to_owned())),
            ..PoolPatch::default()
        };
        ObjectPatch::ResourcePool(PoolName::new(name).unwrap(), patch)
    }

    pub fn tenant(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = TenantPatch {
            pools: options.get("pools").map(|text| names(text).map(|name| PoolName::new(name).unwrap()).collect()),
            ..TenantPatch::default()
        };
        ObjectPatch::Tenant(TenantName::new(name).unwrap(), patch)
    }

    pub fn quota(name: &str, options: &BTreeMap<&str, &str>) -> ObjectPatch {
        let patch = QuotaPatch {
            tenant: options.get("tenant").map(|name| TenantName::new(*name).unwrap()),
            pool: options.get("pool").map(|name| PoolName::new(*name).unwrap()),
            guarantee: options.get("cpu").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            borrow_limit: options.get("borrow").map_or(Setting::Keep, |text| match *text {
                "unlimited" => Setting::Set(TransferLimit::Unlimited),
                cpu => Setting::Set(TransferLimit::Amount(cpus(cpu))),
            }),
            user: options.get("user").map(|name| Principal::Named((*name).to_owned())),
            limit: options.get("limit").map_or(Setting::Keep, |text| Setting::Set(cpus(text))),
            ..QuotaPatch::default()
        };
        ObjectPatch::ResourceQuota(QuotaName::new(name).unwrap(), patch)
    }

    pub fn drop_change(kind: &str, name: &str) -> Change {
        let kind = match kind {
            "tenant" => ObjectKind::Tenant,
            "pool" => ObjectKind::ResourcePool,
            "unit" => ObjectKind::ResourceUnit,
            "quota" => ObjectKind::ResourceQuota,
            other => panic!("no kind {other}"),
        };
        Change::Drop { if_exists: false, object: ObjectRef { kind, name: name.to_owned() } }
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
        let mut key = slot_key(&format!("{link}/0"));
        key.ordinal = model::desired::lowest_free_ordinal(&key.link(), &self.simulation.desired.snapshot.slots);
        Slot {
            key,
            incarnation: Incarnation(0),
            origin: Origin::Start,
            failures: 0,
            forced: false,
            born: Incarnation(0),
            started_for,
            asked_at_ms: self.simulation.desired.snapshot.now_ms,
        }
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
    pub fn restart(&mut self, key: &SlotKey, force: bool) {
        for record in self.simulation.desired.snapshot.engines.iter_mut().filter(|record| record.slot == *key) {
            if record.ended_at_ms.is_none() {
                record.end_grace_ms.get_or_insert(if force { 0 } else { 60_000 });
                if force {
                    record.end_reason.get_or_insert("restarted with FORCE".to_owned());
                }
            }
        }
        self.simulation.renew(key, 0, force);
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
        let Some(configuration) = self.simulation.desired.configuration(&record.slot) else { return false };
        let labels = EngineLabels::new("eh", &record.slot, record.incarnation, &configuration).encode();
        self.simulation.created += 1;
        self.simulation.observed.instances.push(Instance {
            name: engine.clone(),
            uid: format!("{engine}/late-{}", self.simulation.created),
            labels: labels.into(),
            phase: Phase::Running,
            incomplete: false,
            generation: None,
            node: None,
            reason: None,
            started_at_ms: None,
            log_tail: None,
            details: Arc::default(),
        });
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
        explain_change(&self.simulation.desired, change, &self.rules, &self.simulation.observed)
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

fn cpus(text: &str) -> DeclaredAmount {
    DeclaredAmount { cpu: Some(text.parse().unwrap()), ..DeclaredAmount::default() }
}

/// `zone=a,disk=ssd`, in scripts `zone:a,disk:ssd`, because `=` separates options there.
pub fn labels(text: &str) -> BTreeMap<String, String> {
    let pairs = names(text).map(|pair| pair.split_once(':').unwrap());
    pairs.map(|(label, value)| (label.to_owned(), value.to_owned())).collect()
}

pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|name| !name.is_empty())
}
