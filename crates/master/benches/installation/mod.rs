//! An installation that is at rest: a database behind a metadata agent, in which engines are wanted and known, and a ctx
//! in which all of them are registered.
//!
//! Real are the database (SQLite in a file), the agent with its wire, the orchestrator and the master's driver. ZooKeeper is
//! left out: what a tick would read there is given to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use agent_api::{AgentApi as _, AgentClient};
use async_trait::async_trait;
use coordination::{Observation as Coordination, Permit, PermitNode, Registration, RegistrationNode};
use master::{
    Applied, ControllerCtx, Effect, Failure, InstanceCache, InstanceList, Lease, LeaseState, Observation, Reconciler,
    Settings, Ticked,
};
use model::alteration::{Abort, AlterationRecord, RequestId};
use model::change::{Change, ObjectPatch, PoolPatch, QuotaPatch, Setting, TenantPatch, UnitPatch};
use model::charge::Charge;
use model::clock::{Clock as _, SystemClock};
use model::configuration::Configuration;
use model::demand::Demand;
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::instance::InstanceKind;
use model::labels::{LabelMap, selector};
use model::ledger::{LedgerRecord, LedgerRecorded};
use model::number::{Epoch, Generation};
use model::observation::{CreatedEngine, EngineFacts, Publication};
use model::quota::{Capacity, DeclaredAmount, TransferLimit};
use model::shared::Shared;
use model::slot::Slot;
use model::snapshot::{MasterRecord, Snapshot};
use model::{PoolName, QuotaName, TenantName, UnitName};
use orchestrator::{InstanceOptions, LogPolicy, Orchestrator, Spec, SpecFile};
use parking_lot::Mutex;
use planner::{Instance, Probe};
use tokio_util::sync::CancellationToken;

use crate::agent::{self, Agent};

/// Tenants of the installation.
const TENANTS: u32 = 10;
/// Engines of each, all in one pool from one unit.
const ENGINES_OF_TENANT: u32 = 1_000;
/// The product of the above.
pub const ENGINES: usize = 10_000;
/// Rows of one report.
const ROWS: usize = 1_000;

/// The database with its agent.
pub struct Installation {
    pub agent: Agent,
    pub settings: Settings,
    pub epoch: Epoch,
}

impl Installation {
    /// All engines are wanted; none was made.
    pub async fn founded(settings: Settings) -> Self {
        let agent = Agent::start().await;
        let epoch = agent.store.raise_epoch(Epoch(0), "the bench").await.unwrap().epoch;
        let installation = Self { agent, settings, epoch };
        let (unit, pool) = (UnitName::new("uc_1").unwrap(), PoolName::new("rp_1").unwrap());
        let patch = UnitPatch {
            min_engines: Some(ENGINES_OF_TENANT),
            max_engines: Some(ENGINES_OF_TENANT),
            ..UnitPatch::default()
        };
        installation.create("unit", ObjectPatch::ResourceUnit(unit.clone(), patch)).await;
        let patch = PoolPatch { units: Some(vec![unit]), ..PoolPatch::default() };
        installation.create("pool", ObjectPatch::ResourcePool(pool.clone(), patch)).await;
        for tenant in 0..TENANTS {
            let name = TenantName::new(format!("t_{tenant}")).unwrap();
            let patch = TenantPatch { pools: Some(vec![pool.clone()]), ..TenantPatch::default() };
            installation.create(&format!("tenant-{tenant}"), ObjectPatch::Tenant(name, patch)).await;
        }
        installation
    }

    /// Gives the pool a capacity and each tenant a quota, into which all engines fit.
    pub async fn limit(&self) {
        let pool = PoolName::new("rp_1").unwrap();
        let cpu =
            |cores: u32| DeclaredAmount { cpu: Some(cores.to_string().parse().unwrap()), ..DeclaredAmount::default() };
        // More than any engine of the default size needs.
        let capacity = Setting::Set(Capacity::Amount(cpu(100 * TENANTS * ENGINES_OF_TENANT)));
        let object = ObjectPatch::ResourcePool(pool.clone(), PoolPatch { capacity, ..PoolPatch::default() });
        self.change("capacity", Change::Alter { if_exists: false, object }).await;
        for tenant in 0..TENANTS {
            let patch = QuotaPatch {
                tenant: Some(TenantName::new(format!("t_{tenant}")).unwrap()),
                pool: Some(pool.clone()),
                guarantee: Setting::Set(cpu(ENGINES_OF_TENANT)),
                borrow_limit: Setting::Set(TransferLimit::Unlimited),
                ..QuotaPatch::default()
            };
            let name = QuotaName::new(format!("q_{tenant}")).unwrap();
            self.create(&format!("quota-{tenant}"), ObjectPatch::ResourceQuota(name, patch)).await;
        }
    }

    async fn create(&self, id: &str, object: ObjectPatch) {
        self.change(id, Change::Create { if_not_exists: false, object }).await;
    }

    async fn change(&self, id: &str, change: Change) {
        let record = agent::commit(&self.agent.store, id, change).await;
        self.agent.store.finish(self.epoch, &record.id, record.generation).await.unwrap();
    }

    pub async fn snapshot(&self) -> Snapshot {
        self.agent.store.snapshot().await.unwrap()
    }

    /// Writes down that these engines were made, as a master does when it has made them.
    pub async fn made(&self, made: Vec<CreatedEngine>) {
        for made in made.chunks(ROWS) {
            let facts = EngineFacts { created: made.to_vec(), ..EngineFacts::default() };
            let recorded = self.agent.store.record(self.epoch, &facts).await.unwrap();
            assert!(recorded.unknown.is_empty() && recorded.other_uid.is_empty());
        }
    }

    /// The labels of the slot's engine.
    pub fn labels(&self, snapshot: &Snapshot, slot: &Slot) -> EngineLabels {
        EngineLabels::new(&self.settings.cluster, &slot.key, slot.incarnation, &self.configuration(snapshot, slot))
    }

    fn configuration(&self, snapshot: &Snapshot, slot: &Slot) -> Configuration {
        Configuration::from_slot(&snapshot.catalog, &slot.key, &self.settings.defaults).unwrap()
    }

    /// What a master would make the slot's engine from.
    pub fn spec(&self, snapshot: &Snapshot, slot: &Slot) -> Spec {
        let (labels, of) = (self.labels(snapshot, slot), self.configuration(snapshot, slot));
        let mut spec = spec(&labels.name, &of, snapshot.catalog.generation);
        (spec.labels, spec.locality, spec.image) = (labels.encode(), of.namespace, of.image);
        spec
    }

    /// The master's driver, with a ctx in which the engines of that orchestrator are registered.
    pub async fn reconciler(&self, orchestrator: Arc<dyn Orchestrator>) -> (Reconciler, Still) {
        let still = Still::new(self, orchestrator).await;
        let new = || Reconciler::new(self.settings.clone(), self.epoch, still.clock(), CancellationToken::new());
        // A master before has adopted the engines and confirmed their reservations.
        let mut before = new();
        while let Ticked::Done { progress: true, .. } = before.tick(&still).await {}
        let reconciler = new();
        (reconciler, still)
    }
}

/// An engine agent with its file, as the program makes it for a pod.
pub fn spec(name: &EngineName, of: &Configuration, generation: Generation) -> Spec {
    let argv = ["/usr/local/bin/enginehouse", "engine-agent", "--config", "engine.toml"];
    // Of the size that such a file has.
    let file = SpecFile { path: "engine.toml".to_owned(), content: vec![b'#'; 1_200], mode: 0o600 };
    Spec {
        name: name.clone(),
        labels: LabelMap::new(),
        generation,
        annotations: LabelMap::new(),
        locality: String::new(),
        image: String::new(),
        argv: argv.map(str::to_owned).to_vec(),
        files: vec![file],
        environment: [("ENGINEHOUSE_LOG".to_owned(), "info".to_owned())].into(),
        charge: Charge::new(of, InstanceKind::Pod),
        nodes: None,
        grace: Duration::from_mins(30),
        log: LogPolicy::default(),
        run_as: None,
        options: InstanceOptions::default(),
    }
}

/// What the parts of a tick took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spent {
    pub list: Duration,
    pub snapshot: Duration,
    pub report: Duration,
}

/// A ctx at rest. A decision that is to take effect there is a mistake, and counted.
pub struct Still {
    orchestrator: Arc<dyn Orchestrator>,
    client: AgentClient,
    coordination: Coordination,
    selector: LabelMap,
    instances: Mutex<InstanceCache>,
    spent: Mutex<Spent>,
    reports: AtomicUsize,
    decisions: AtomicUsize,
    /// Changes and records of the ledger.
    ledger: AtomicUsize,
}

impl Still {
    async fn new(installation: &Installation, orchestrator: Arc<dyn Orchestrator>) -> Self {
        let permits = installation.snapshot().await.engines.into_iter().map(Shared::into_inner).map(|record| {
            let uid = record.uid.unwrap();
            let live = Registration {
                address: "127.0.0.1:9".to_owned(),
                capacity: 10,
                config: record.config,
                version: "0".to_owned(),
                uid: uid.clone(),
                catalog: None,
                owner: None,
                keys: Vec::new(),
                tls: None,
            };
            let (tenant, pool, unit) = (record.slot.tenant, record.slot.pool, record.slot.unit);
            PermitNode {
                engine: record.name,
                content: Ok(Permit { tenant, pool, unit, uid: Some(uid), sessions: None, owner: None }),
                version: 1,
                ctime_ms: 0,
                registration: Some(RegistrationNode { content: Ok(live), session: 1, ctime_ms: 0 }),
                answered: true,
                strays: 0,
                left_behind: false,
            }
        });
        let mut permits: Vec<Shared<PermitNode>> = permits.map(Shared::from).collect();
        permits.sort_by(|one, other| one.engine.cmp(&other.engine));
        Self {
            orchestrator,
            client: installation.agent.client(keys::Role::Master),
            coordination: Coordination { permits, ..Coordination::default() },
            selector: selector(&installation.settings.cluster),
            instances: Mutex::default(),
            spent: Mutex::default(),
            reports: AtomicUsize::new(0),
            decisions: AtomicUsize::new(0),
            ledger: AtomicUsize::new(0),
        }
    }

    /// The calls so far that changed the ledger or recorded something in it.
    pub fn ledger_calls(&self) -> usize {
        self.ledger.load(Ordering::SeqCst)
    }

    /// One tick that has nothing to do, and what it and its parts took.
    pub async fn tick(&self, reconciler: &mut Reconciler) -> (Duration, Spent) {
        let reports = self.reports.load(Ordering::SeqCst);
        *self.spent.lock() = Spent::default();
        let begin = Instant::now();
        let ticked = reconciler.tick(self).await;
        let time = begin.elapsed();
        assert!(matches!(ticked, Ticked::Done { progress: false, .. }), "{ticked:?}");
        assert_eq!(self.reports.load(Ordering::SeqCst), reports + 1, "the tick came to its end");
        assert_eq!(self.decisions.load(Ordering::SeqCst), 0, "all is as it should be");
        (time, *self.spent.lock())
    }

    /// What a tick has to read of the database whatever it does with it.
    pub async fn read(&self) -> Duration {
        let begin = Instant::now();
        let snapshot = self.client.snapshot().await.unwrap();
        let time = begin.elapsed();
        assert_eq!(snapshot.slots.len(), ENGINES);
        time
    }
}

#[async_trait]
impl Lease for Still {
    fn state(&self) -> LeaseState {
        LeaseState::Valid
    }

    async fn raise_epoch(&self) -> Result<MasterRecord, Failure> {
        self.client.master().await.map_err(away)
    }
}

#[async_trait]
impl ControllerCtx for Still {
    fn clock(&self) -> Duration {
        SystemClock.boottime()
    }

    fn lease(&self) -> &dyn Lease {
        self
    }

    async fn wait(&self) {
        std::future::pending::<()>().await;
    }

    async fn observe(&self) -> Result<Observation, Failure> {
        let begin = Instant::now();
        let listing = self.orchestrator.list(&self.selector).await.map_err(away)?;
        let nodes = self.orchestrator.nodes().await.ok();
        let instances = Ok(InstanceList::new(listing, nodes, &mut self.instances.lock()));
        self.spent.lock().list = begin.elapsed();
        Ok(Observation {
            coordination: self.coordination.clone(),
            instances,
            loads: Shared::default(),
            uses: Shared::default(),
        })
    }

    async fn probe(&self, _: &Probe) -> Result<Option<Instance>, Failure> {
        Err(away("no probe is answered"))
    }

    async fn snapshot(&self) -> Result<Snapshot, Failure> {
        let begin = Instant::now();
        let snapshot = self.client.snapshot().await.map_err(away);
        self.spent.lock().snapshot = begin.elapsed();
        snapshot
    }

    async fn demand(&self, _: &mut Observation, _: &BTreeSet<TenantName>) -> Result<Vec<Demand>, Failure> {
        self.client.demand().await.map_err(away)
    }

    async fn settle(&self, _: &RequestId, _: Option<&Abort>) -> Result<Option<AlterationRecord>, Failure> {
        Err(away("no alteration is in doubt"))
    }

    async fn apply(&self, effect: Effect<'_>) -> Result<Applied, Failure> {
        if let Effect::Ledger { epoch, changes } = effect {
            self.ledger.fetch_add(1, Ordering::SeqCst);
            return self.client.ledger(epoch, changes).await.map(Applied::Decided).map_err(away);
        }
        self.decisions.fetch_add(1, Ordering::SeqCst);
        Err(away(format!("{effect:?}")))
    }

    async fn record(&self, epoch: Epoch, record: &LedgerRecord) -> Result<LedgerRecorded, Failure> {
        self.ledger.fetch_add(1, Ordering::SeqCst);
        self.client.record_ledger(epoch, record).await.map_err(away)
    }

    async fn publish(&self, epoch: Epoch, publication: &Publication) -> Result<(), Failure> {
        let begin = Instant::now();
        self.client.publish(epoch, publication).await.map_err(away)?;
        self.spent.lock().report += begin.elapsed();
        // Parts precede it.
        self.reports.fetch_add(usize::from(!publication.part), Ordering::SeqCst);
        Ok(())
    }
}

fn away(error: impl std::fmt::Display) -> Failure {
    Failure::Unavailable(error.to_string())
}

/// Least, middle and most.
pub fn spread<T: PartialOrd + Copy>(all: impl IntoIterator<Item = T>) -> (T, T, T) {
    let mut all: Vec<T> = all.into_iter().collect();
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

/// What ticks took, in parts.
pub fn print_ticks(ticks: &[(Duration, Spent)]) {
    let print = |what: &str, part: &dyn Fn(&(Duration, Spent)) -> Duration| {
        let (least, middle, most) = spread(ticks.iter().map(part));
        println!("  {what}: {least:.1?} {middle:.1?} {most:.1?}");
    };
    print("a tick", &|(all, _)| *all);
    print("of it, the list of engines", &|(_, spent)| spent.list);
    print("of it, the snapshot from the agent", &|(_, spent)| spent.snapshot);
    print("of it, the report to the agent", &|(_, spent)| spent.report);
    let rest = |(all, spent): &(Duration, Spent)| all.saturating_sub(spent.list + spent.snapshot + spent.report);
    print("the rest: observing, asking, planning, comparing", &rest);
}
