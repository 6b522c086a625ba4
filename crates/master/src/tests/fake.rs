//! The fake: the planner's simulation with an alter node, the rows of alterations, a script of faults, and a journal of
//! requests.

mod boundary;
mod journal;
mod ledger;
mod script;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coordination::{
    Agent, AlterChild, AlterNode, Alteration, DrainOrder, DrainOrderNode, Observation as Coordination, Permit,
    PermitNode, Registration, RegistrationNode,
};
use model::alteration::{AlterationProgress, AlterationRecord, ObjectKind, ObjectRef, Outcome, RequestId, Source};
use model::change::{Applied, Change, ObjectPatch, PoolPatch, Rules, TenantPatch, UnitPatch};
use model::configuration::Defaults;
use model::engine_name::EngineName;
use model::instance::InstanceKind;
use model::number::{Epoch, Generation};
use model::shared::Shared;
use model::slot::Replacement;
use model::snapshot::MasterRecord;
use model::{PoolName, TenantName, UnitName};
use parking_lot::{Mutex, MutexGuard};
use planner::{Action, Decision, DesiredState, ObservedState};
use tokio_util::sync::CancellationToken;

use crate::ctx::{self, Failure, InstanceList, LeaseState};
use crate::settings::Settings;
use crate::tick::{Reconciler, Ticked};
use journal::Journal;
use script::Script;
pub use script::{Fault, no_agent, no_answer};

/// A simulation that several masters can act on, one after the other or at once.
#[derive(Debug)]
pub struct Fake {
    state: Mutex<State>,
}

#[derive(Debug)]
pub struct State {
    /// The catalog and the engines, and what is derived from them: permits, registrations, drain orders and the clock.
    pub simulation: planner::Simulation,
    /// Only the alter node and the agents.
    pub zookeeper: Coordination,
    pub records: BTreeMap<RequestId, AlterationRecord>,
    pub lease: LeaseState,
    /// What the orchestrator lists with the engines: warnings, and instances that are gone, until they are probed.
    pub list: InstanceList,
    pub script: Script,
    pub journal: Journal,
    /// Whether the agents of engines do not agree to retire.
    pub declines: bool,
}

/// The settings of all tests: an effect may take 50 ms.
pub fn settings() -> Settings {
    Settings { effect_deadline: Duration::from_millis(50), ..Settings::default() }
}

pub fn id(text: &str) -> RequestId {
    RequestId::new(text).unwrap()
}

pub fn agent(session: i64) -> Agent {
    Agent { id: "agent-1".to_owned(), address: "127.0.0.1:1".to_owned(), keys: Vec::new(), tls: None, session }
}

impl Fake {
    pub fn new() -> Arc<Self> {
        let desired = DesiredState { cluster: "enginehouse".to_owned(), ..DesiredState::default() };
        let mut simulation = planner::Simulation::new(desired, ObservedState::default());
        simulation.desired.snapshot.now_ms = 1_000_000;
        simulation.desired.snapshot.master =
            MasterRecord { epoch: Epoch(1), holder: "me".to_owned(), ..MasterRecord::default() };
        let state = State {
            simulation,
            zookeeper: Coordination { agents: vec![agent(7)], ..Coordination::default() },
            records: BTreeMap::new(),
            lease: LeaseState::Valid,
            list: InstanceList { nodes: Some(Vec::new()), ..InstanceList::default() },
            script: Script::default(),
            journal: Journal::default(),
            declines: false,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// A simulation with tenant `t_1`, whose unit `uc_1` in pool `rp_1` wants `min` engines; nothing runs yet.
    pub fn with_engines_wanted(min: u32) -> Arc<Self> {
        let fake = Self::new();
        let unit = UnitPatch { min_engines: Some(min), ..UnitPatch::default() };
        fake.commit("setup-1", &create(ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), unit)));
        let pool = PoolPatch { units: Some(vec![UnitName::new("uc_1").unwrap()]), ..PoolPatch::default() };
        fake.commit("setup-2", &create(ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), pool)));
        let tenant = TenantPatch { pools: Some(vec![PoolName::new("rp_1").unwrap()]), ..TenantPatch::default() };
        fake.commit("setup-3", &create(ObjectPatch::Tenant(TenantName::new("t_1").unwrap(), tenant)));
        fake
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The commit arrives right after the next reading of an outcome.
    pub fn commit_late(&self, alteration: &str) {
        let record = self.state().records.remove(&id(alteration)).unwrap();
        let commits = move |state: &mut State| drop(state.records.insert(record.id.clone(), record));
        self.script("database: outcome", Fault::after(commits));
    }

    /// What a metadata agent's transaction does.
    pub fn commit(&self, alteration: &str, change: &Change) {
        self.commit_with(alteration, change, Replacement::StandIn);
    }

    pub fn commit_with(&self, alteration: &str, change: &Change, replacement: Replacement) {
        let mut state = self.state();
        let catalog = state.simulation.desired.snapshot.catalog.clone();
        // Pods run on nodes, so a pool may have the capacity of its nodes.
        let defaults = Defaults { instances: InstanceKind::Pod, ..Defaults::default() };
        let rules = Rules { defaults, ..Rules::default() };
        let Applied::Object { base, after, .. } = change.apply(&catalog, &rules).unwrap() else {
            panic!("nothing changes")
        };
        let generation = Generation(state.simulation.next_number().get());
        let after = state.simulation.desired.snapshot.catalog.with(&change.object(), after.as_ref(), generation);
        state.simulation.commit_catalog(after, replacement);
        let record = AlterationRecord {
            generation: state.simulation.desired.snapshot.catalog.generation,
            base_generation: base,
            outcome: Outcome::Committed,
            progress: Some(AlterationProgress::Converging),
            decided_at_ms: state.simulation.desired.snapshot.now_ms,
            ..record(alteration, change.object())
        };
        state.records.insert(id(alteration), record.clone());
        state.simulation.desired.snapshot.alterations.push(record);
    }

    /// What a metadata agent does before its transaction.
    pub fn create_node(&self, alteration: &str, session: i64) {
        let object = ObjectRef { kind: ObjectKind::ResourceUnit, name: "uc_1".to_owned() };
        let content = Alteration {
            id: id(alteration),
            object,
            base_generation: Generation(1),
            old: None,
            statement: "ALTER RESOURCE UNIT uc_1 SET DRIVER_MEMORY '2G'".to_owned(),
            by: "admin".to_owned(),
            source: Source { client: Some("192.0.2.7".to_owned()), ..Source::default() },
            agent: "agent-1".to_owned(),
            requested_at_ms: 5,
        };
        let child = AlterChild { id: id(alteration), agent: Some("agent-1".to_owned()), session: Some(session) };
        self.state().zookeeper.alter =
            Some(AlterNode { content: Ok(content), ctime_ms: 5, children: vec![child], strays: Vec::new() });
    }

    pub fn reconciler(&self, epoch: i64) -> Reconciler {
        Reconciler::new(settings(), Epoch(epoch), self.state().now(), CancellationToken::new())
    }

    /// Time passes on every clock.
    pub fn pass(&self, time: Duration) {
        self.state().simulation.advance(time);
    }

    /// Ticks until a tick does nothing, engines get ready meanwhile.
    pub async fn settle(self: &Arc<Self>, reconciler: &mut Reconciler) {
        for _ in 0..200 {
            let ticked = reconciler.tick(&**self).await;
            let Ticked::Done { progress, .. } = ticked else { panic!("{ticked:?}") };
            let moved = {
                let mut state = self.state();
                let starting = state.simulation.about_to_register();
                let registered = starting.iter().filter(|engine| state.simulation.register(engine)).count();
                registered + state.simulation.exit_drained()
            };
            if !progress && moved == 0 {
                let waiting = !self.state().simulation.observed.drains.is_empty()
                    || !self.state().simulation.plan().waits.is_empty();
                if !waiting {
                    return;
                }
                self.pass(Duration::from_secs(10));
            }
        }
        panic!("never settles: {:#?}", self.state().simulation.plan());
    }

    pub fn present(&self, ordinal: usize) -> EngineName {
        self.state().simulation.desired.snapshot.slots[ordinal].engine()
    }
}

pub fn create(object: ObjectPatch) -> Change {
    Change::Create { if_not_exists: false, object }
}

/// `ALTER RESOURCE UNIT uc_1 SET DRIVER_MEMORY`.
pub fn memory(gib: u32) -> Change {
    let patch = UnitPatch { driver_memory: Some(format!("{gib}G").parse().unwrap()), ..UnitPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch) }
}

fn record(alteration: &str, object: ObjectRef) -> AlterationRecord {
    AlterationRecord {
        id: id(alteration),
        object: Some(object),
        base_generation: Generation(0),
        generation: Generation(0),
        statement: String::new(),
        requested_by: "admin".to_owned(),
        requested_at_ms: 5,
        outcome: Outcome::Aborted,
        decided_by: "agent-1".to_owned(),
        decided_at_ms: 0,
        progress: None,
        reason: None,
        finished_at_ms: None,
    }
}

impl State {
    /// The time that only [`Fake::pass`] moves, on every clock.
    pub fn now(&self) -> Duration {
        model::millis::to_duration(self.simulation.desired.snapshot.now_ms)
    }

    /// The row of the master.
    pub fn master(&mut self) -> &mut MasterRecord {
        &mut self.simulation.desired.snapshot.master
    }

    fn guard(&mut self, epoch: Epoch) -> Result<(), Failure> {
        let master = self.master();
        if epoch == master.epoch { Ok(()) } else { Err(Failure::Deposed(master.holder.clone())) }
    }

    /// Why ZooKeeper rejects a decision: a second drain order of one name, a drain without the registration of its successor,
    /// or the deletion of a permit with other children than were observed.
    fn moved(&self, decision: &Decision, seen: &coordination::Observation) -> Option<String> {
        let engine = decision.engine.as_ref()?;
        let withdraws = match &decision.action {
            Action::Drain { successor, withdraw, .. } => {
                if self.simulation.observed.drains.iter().any(|order| order.engine == *engine) {
                    return Some(format!("{engine} has a drain order"));
                }
                let registered =
                    |name: &EngineName| self.simulation.observed.registrations.iter().any(|live| live.engine == *name);
                if let Some(successor) = successor.as_ref().filter(|successor| !registered(successor)) {
                    return Some(format!("{successor} is not registered"));
                }
                *withdraw
            }
            Action::DeletePermit => true,
            _ => false,
        };
        let below = |permits: &[Shared<PermitNode>]| {
            permits
                .iter()
                .find(|permit| permit.engine == *engine)
                .map(|permit| (permit.registration.is_some(), permit.answered))
        };
        let saw = below(&seen.permits).filter(|_| withdraws)?;
        (below(&self.permits()) != Some(saw)).then(|| format!("below the permit of {engine} is not what was seen"))
    }

    fn permits(&self) -> Vec<Shared<PermitNode>> {
        let observed = &self.simulation.observed;
        let node = |permit: &Shared<planner::Permit>| {
            let live = observed.registrations.iter().find(|live| live.engine == permit.engine);
            PermitNode {
                engine: permit.engine.clone(),
                content: Ok(Permit {
                    tenant: TenantName::new("t_1").unwrap(),
                    pool: PoolName::new("rp_1").unwrap(),
                    unit: UnitName::new("uc_1").unwrap(),
                    uid: permit.uid.clone(),
                    sessions: permit.sessions.flatten(),
                    owner: permit.owner.clone().flatten(),
                }),
                version: 0,
                ctime_ms: 0,
                registration: live.map(|live| RegistrationNode {
                    content: Ok(Registration {
                        address: live.address.clone(),
                        capacity: 1,
                        config: live.config.clone(),
                        version: "1".to_owned(),
                        uid: live.uid.clone().unwrap(),
                        catalog: live.catalog,
                        owner: None,
                        keys: Vec::new(),
                        tls: None,
                    }),
                    session: 1,
                    ctime_ms: 0,
                }),
                answered: permit.answered,
                strays: 0,
                left_behind: false,
            }
        };
        observed.permits.iter().map(node).map(Shared::from).collect()
    }

    fn drains(&self) -> Vec<DrainOrderNode> {
        let node = |order: &planner::DrainOrder| DrainOrderNode {
            engine: order.engine.clone(),
            content: Ok(DrainOrder {
                uid: order.uid.clone(),
                grace_ms: model::millis::from_duration(order.grace),
                reason: order.reason.clone(),
                namespace: order.namespace.clone(),
            }),
            ctime_ms: 0,
        };
        self.simulation.observed.drains.iter().map(node).collect()
    }

    fn finish(&mut self, decision: &Decision, alteration: &RequestId, progress: planner::Transition) -> ctx::Applied {
        let progress = match progress {
            planner::Transition::Converged => AlterationProgress::Converged,
            planner::Transition::Stalled => AlterationProgress::Stalled,
            planner::Transition::Superseded => AlterationProgress::Superseded,
        };
        self.records.get_mut(alteration).unwrap().progress = Some(progress);
        let _ = self.simulation.apply_one(decision, &mut None);
        ctx::Applied::Progress(progress)
    }
}
