//! A plan over 10,000 engines: in an unchanged tick, which is nearly every one, in ticks with a few changes, and without a
//! cache; and with sessions that wait in each of 1,000 scaling groups of 10 engines. With it the comparison before it, and the peer:
//! decoding the database's answer, which a tick needs anyway. Prints the ratios.
//!
//! A tick computes both, so the target holds for their sum. Run with `cargo bench -p planner`, which is a release build.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use model::catalog::{Catalog, PoolSpec, TenantSpec, Versioned};
use model::change::UnitPatch;
use model::charge::Charge;
use model::configuration::{Configuration, Defaults};
use model::demand::{Demand, DemandKey};
use model::engine_labels::EngineLabels;
use model::engine_name::EngineName;
use model::engine_state::Phase;
use model::instance::InstanceKind;
use model::ledger::{Ledger, Measured, Moment, Request, derive};
use model::number::Epoch;
use model::slot::{Origin, Replacement, Slot};
use model::snapshot::{EngineRecord, Snapshot};
use model::{Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
use planner::{
    Action, DesiredState, DrainOrder, EngineLoad, IncrementalPlanner, Instance, ObservedState, Permit, Plan,
    Registration, plan, probes,
};
use rustix::time::{ClockId, clock_gettime};

const TENANTS: u32 = 50;
const POOLS: u32 = 10;
const POOLS_OF_TENANT: u32 = 2;
const UNITS: u32 = 10;
const SLOTS_OF_LINK: u32 = 10;
/// The product of the above.
const ENGINES: usize = 10_000;
const NODES_OF_POOL: u32 = 100;
const ROUNDS: usize = 31;
/// The time budget of comparison and plan together.
const TARGET: Duration = Duration::from_millis(2);

fn versioned<T>(spec: T) -> Versioned<T> {
    Versioned { spec, generation: Generation(1) }
}

fn node(pool: u32, number: u32) -> String {
    format!("node-{pool}-{number}.example.com")
}

fn catalog() -> Catalog {
    let mut catalog = Catalog { generation: Generation(1_000_000), ..Catalog::default() };
    let units: Vec<UnitName> = (0..UNITS).map(|number| UnitName::new(format!("uc_{number}")).unwrap()).collect();
    let patch = UnitPatch { min_engines: Some(SLOTS_OF_LINK), ..UnitPatch::default() };
    for unit in &units {
        let mut spec = patch.create(&Defaults::default()).unwrap();
        spec.properties = [("datafusion.execution.batch_size".to_owned(), "8192".to_owned())].into();
        catalog.units.insert(unit.clone(), versioned(spec));
    }
    for pool in 0..POOLS {
        let nodes = (0..NODES_OF_POOL).map(|number| node(pool, number)).collect();
        let spec = PoolSpec { units: units.clone(), nodes: Some(nodes), ..PoolSpec::default() };
        catalog.pools.insert(PoolName::new(format!("rp_{pool}")).unwrap(), versioned(spec));
    }
    for tenant in 0..TENANTS {
        let pools =
            (0..POOLS_OF_TENANT).map(|offset| PoolName::new(format!("rp_{}", (tenant + offset) % POOLS)).unwrap());
        let spec = TenantSpec { pools: pools.collect(), ..TenantSpec::default() };
        catalog.tenants.insert(TenantName::new(format!("t_{tenant}")).unwrap(), versioned(spec));
    }
    catalog
}

/// Everything is desired and runs, in the order of database, ZooKeeper and orchestrator.
fn steady() -> (DesiredState, ObservedState) {
    let catalog = catalog();
    let mut desired = DesiredState { cluster: "enginehouse".to_owned(), ..DesiredState::default() };
    let mut observed = ObservedState { registry_complete: true, ..ObservedState::default() };
    let mut incarnation = 0;
    for link in catalog.links() {
        let pool: u32 = link.pool.as_str().trim_start_matches("rp_").parse().unwrap();
        for ordinal in 0..SLOTS_OF_LINK {
            incarnation += 1;
            let (tenant, pool_name, unit) = (link.tenant.clone(), link.pool.clone(), link.unit.clone());
            let key = SlotKey { tenant, pool: pool_name, unit, ordinal };
            let node = node(pool, incarnation % NODES_OF_POOL);
            engine(&mut desired.snapshot, &mut observed, &catalog, &key, (i64::from(incarnation), node));
        }
    }
    desired.snapshot.ledger = ledger(&catalog, &desired.snapshot);
    desired.snapshot.catalog = catalog;
    desired.snapshot.now_ms = 2_000_000_000_000;
    observed.permits.sort_by(|one, other| one.engine.cmp(&other.engine));
    observed.registrations.sort_by(|one, other| one.engine.cmp(&other.engine));
    observed.instances.sort_by(|one, other| one.name.cmp(&other.name));
    (desired, observed)
}

/// The unlimited scopes of the catalog, with a confirmed reservation for each engine.
fn ledger(catalog: &Catalog, snapshot: &Snapshot) -> Ledger {
    let mut ledger = Ledger::new(derive(catalog, &Measured::default(), &BTreeSet::new()).unwrap(), []);
    let at = Moment { now_ms: 1_999_999_001_000, epoch: Epoch(1) };
    for (slot, record) in snapshot.slots.iter().zip(&snapshot.engines) {
        let charge = Charge::of_unit(catalog.unit(&slot.key.unit).unwrap(), InstanceKind::Process);
        let request = Request::of_engine(&slot.key, slot.incarnation, Some(slot), &charge, None).unwrap();
        ledger.adopt(&Arc::new(request), record.uid.as_deref().unwrap(), at).unwrap();
    }
    ledger
}

fn engine(
    snapshot: &mut Snapshot,
    observed: &mut ObservedState,
    catalog: &Catalog,
    key: &SlotKey,
    (number, node): (i64, String),
) {
    let configuration = Configuration::from_slot(catalog, key, &Defaults::default()).unwrap();
    let labels = EngineLabels::new("enginehouse", key, Incarnation(number), &configuration);
    let (name, uid) = (labels.name.clone(), format!("3f1c9a52-7b44-4e0e-9d54-{number:012x}"));
    let slot = Slot {
        key: key.clone(),
        incarnation: Incarnation(number),
        origin: Origin::Minimum,
        failures: 0,
        replacement: Replacement::StandIn,
        born: Incarnation(number),
        started_for: None,
        owner: None,
        asked_at_ms: 1_999_999_000_000,
    };
    snapshot.slots.push(slot);
    snapshot.engines.push(EngineRecord {
        name: name.clone(),
        slot: key.clone(),
        incarnation: Incarnation(number),
        uid: Some(uid.clone()),
        config: labels.config.clone(),
        issued_at_ms: 1_999_999_000_000,
        started_at_ms: Some(1_999_999_001_000),
        end_grace_ms: None,
        end_reason: None,
        ended_at_ms: None,
        ended_reason: None,
        ended_word: None,
        retryable: None,
        log_tail: None,
        failure_before: None,
    });
    let address = "10.1.2.3:10021".to_owned();
    observed.permits.push(Permit {
        engine: name.clone(),
        uid: Some(uid.clone()),
        readable: true,
        answered: true,
        sessions: Some(None),
        owner: Some(None),
    });
    observed.registrations.push(Registration {
        engine: name.clone(),
        uid: Some(uid.clone()),
        address: address.clone(),
        config: labels.config.clone(),
        catalog: None,
        unclaimed: Duration::ZERO,
    });
    observed.loads.insert(name.clone(), EngineLoad { sessions: 1, running: 0 });
    let details =
        [("pod", "rp-0--t-0/an-engine"), ("pod address", "10.1.2.3"), ("pod created at", "2033-05-18T03:33:20Z")];
    observed.instances.push(Instance {
        name,
        uid,
        labels: Arc::new(labels.encode()),
        phase: Phase::Running,
        incomplete: false,
        generation: Some(Generation(1)),
        node: Some(node),
        reason: None,
        started_at_ms: Some(1_999_999_001_000),
        log_tail: None,
        fault: None,
        pods: None,
        details: Arc::new(details.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
    });
}

/// A full plan with its probes.
fn whole(desired: &DesiredState, observed: &ObservedState) -> Plan {
    assert!(probes(desired, observed).is_empty());
    plan(desired, observed)
}

/// The same state as read again by the next tick: at other addresses, except for what the orchestrator's cache shares.
fn read_again(desired: &DesiredState, observed: &ObservedState) -> (DesiredState, ObservedState) {
    let answer = serde_json::to_vec(&desired.snapshot).unwrap();
    let snapshot = serde_json::from_slice(&answer).unwrap();
    let mut observed = observed.clone();
    let read = |name: &mut EngineName| *name = EngineName::new(name.as_str()).unwrap();
    for engine in observed
        .permits
        .iter_mut()
        .map(|permit| &mut permit.engine)
        .chain(observed.registrations.iter_mut().map(|registration| &mut registration.engine))
    {
        read(engine);
    }
    (DesiredState { snapshot, ..desired.clone() }, observed)
}

/// Changes the load of `count` engines, deletes the registrations of `count` others, and drains as many.
fn disturb(observed: &mut ObservedState, count: usize) {
    for load in observed.loads.values_mut().take(count) {
        load.sessions += 1;
    }
    let every = observed.registrations.len() / (count + 1);
    for at in (1..=count).rev() {
        let registration = observed.registrations.remove(at * every);
        let next = &observed.instances[(at * every) / 2];
        let reason = format!("{} is to go", next.name);
        let (engine, uid) = (next.name.clone(), Some(next.uid.clone()));
        observed.drains.push(DrainOrder {
            engine,
            uid,
            grace: Duration::from_mins(1),
            reason,
            age: Duration::from_millis(10),
            quiet: Duration::ZERO,
            namespace: None,
        });
        assert!(registration.uid.is_some());
    }
}

/// Seats of an engine, of which one is taken, and the sessions that wait in each group: more than the free seats of its engines.
const SEATS: u32 = 2;
const WAITING: u64 = 25;

/// The same engines with sessions that wait for each link: the plan adds engines to all of them.
fn waiting(desired: &DesiredState, observed: &ObservedState) -> (DesiredState, ObservedState) {
    let (mut desired, mut observed) = (desired.clone(), observed.clone());
    observed.permits.iter_mut().for_each(|permit| permit.sessions = Some(Some(SEATS)));
    let snapshot = &mut desired.snapshot;
    for unit in snapshot.catalog.units.values_mut() {
        unit.spec.start_on_demand = Some(true);
        unit.spec.sessions_per_engine = Some(SEATS);
        unit.spec.max_engines = 2 * SLOTS_OF_LINK;
    }
    snapshot.demand = snapshot
        .catalog
        .links()
        .into_iter()
        .map(|link| {
            let key = DemandKey {
                pool: Some(link.pool),
                unit: Some(link.unit),
                ..DemandKey::of_tenant(link.tenant, "bench")
            };
            Demand { key, waiting: WAITING, since_ms: snapshot.now_ms - 1_000, until_ms: snapshot.now_ms + 15_000 }
        })
        .collect();
    (desired, observed)
}

/// Processor time of this thread.
fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap())
}

fn time_of<T>(work: impl FnOnce() -> T) -> Duration {
    let begin = spent();
    // Not measured: freeing the result.
    let made = black_box(work());
    let time = spent().saturating_sub(begin);
    drop(made);
    time
}

/// Least, middle and most.
fn spread<T: PartialOrd + Copy>(mut all: Vec<T>) -> (T, T, T) {
    all.sort_by(|one, other| one.partial_cmp(other).unwrap());
    (all[0], all[all.len() / 2], all[all.len() - 1])
}

#[derive(Default)]
struct Times {
    compares: Vec<Duration>,
    plans: Vec<Duration>,
    reads: Vec<Duration>,
    in_a_reading: Vec<f64>,
}

/// Ticks of one kind, with the peer in turns: `disturbed` engines of each kind differ from the tick before.
fn measure(desired: &DesiredState, observed: &ObservedState, disturbed: usize, forgets: bool) -> Times {
    let answer = serde_json::to_vec(&desired.snapshot).unwrap();
    let mut times = Times::default();
    let mut planner = IncrementalPlanner::default();
    for round in 0..=ROUNDS {
        let (desired, mut observed) = read_again(desired, observed);
        if round % 2 == 1 {
            disturb(&mut observed, disturbed);
        }
        if forgets {
            planner = IncrementalPlanner::default();
        }
        let mut delta = None;
        let compare = time_of(|| delta = Some(planner.compare(desired, observed)));
        let mut delta = delta.unwrap();
        let plan = time_of(|| (delta.probes(), planner.plan(&mut delta)));
        planner.keep(delta);
        let read = time_of(|| serde_json::from_slice::<Snapshot>(&answer).unwrap());
        if round > 0 {
            times.compares.push(compare);
            times.plans.push(plan);
            times.reads.push(read);
            times.in_a_reading.push(read.as_secs_f64() / (compare + plan).as_secs_f64());
        }
    }
    times
}

fn print_times(what: &str, times: Times) {
    println!("{what}; processor time; least, middle, most of {ROUNDS}");
    let sums: Vec<Duration> = times.compares.iter().zip(&times.plans).map(|(compare, plan)| *compare + *plan).collect();
    let (least, middle, most) = spread(sums);
    let met = if most <= TARGET { "met" } else { "missed" };
    println!("  all that a tick computes: {least:.2?} {middle:.2?} {most:.2?}; target {TARGET:?}: {met}");
    let (least, middle, most) = spread(times.compares);
    println!("  of it, comparing with the last tick: {least:.2?} {middle:.2?} {most:.2?}");
    let (least, middle, most) = spread(times.plans);
    println!("  of it, the probes and the plan: {least:.2?} {middle:.2?} {most:.2?}");
    let (least, middle, most) = spread(times.reads);
    println!("  the peer, reading the snapshot's JSON: {least:.2?} {middle:.2?} {most:.2?}");
    let (least, middle, most) = spread(times.in_a_reading);
    println!("  comparisons with their plans in one reading: {least:.2} {middle:.2} {most:.2}");
}

fn plans(criterion: &mut Criterion) {
    let (desired, observed) = steady();
    assert_eq!(observed.instances.len(), ENGINES);
    let steady = whole(&desired, &observed);
    assert_eq!((steady.chains.len(), steady.waits.len(), steady.rows.len()), (0, 0, ENGINES));
    let nothing = ObservedState { registry_complete: true, ..ObservedState::default() };
    let mut fresh = desired.clone();
    fresh.snapshot.engines.iter_mut().for_each(|record| record.uid = None);
    fresh.snapshot.ledger = Ledger::new(fresh.snapshot.ledger.scopes().map(|(key, scope)| (key.clone(), *scope)), []);
    fresh.snapshot.ledger.audit().unwrap();
    assert_eq!(whole(&fresh, &nothing).chains.len(), ENGINES);
    let mut group = criterion.benchmark_group("10000 engines");
    group.bench_function("the first plan", |b| b.iter(|| plan(black_box(&desired), &observed)));
    group.bench_function("a plan that makes all of them", |b| b.iter(|| plan(black_box(&fresh), &nothing)));
    group.bench_function("a plan without the list of engines", |b| {
        b.iter(|| planner::plan_without_engines(black_box(&desired), "it does not answer"));
    });
    group.finish();
    let bytes = serde_json::to_vec(&desired.snapshot).unwrap().len();
    println!("{ENGINES} engines, a snapshot of {bytes} bytes");
    print_times("nothing is new", measure(&desired, &observed, 0, false));
    print_times("10 registrations, 10 drain orders and 10 loads differ", measure(&desired, &observed, 10, false));
    print_times("100 of each differ", measure(&desired, &observed, 100, false));
    print_times("nothing is remembered", measure(&desired, &observed, 0, true));
    let (waiting, observed) = waiting(&desired, &observed);
    let scaled = whole(&waiting, &observed);
    let links = scaled
        .chains
        .iter()
        .filter(|chain| chain.decisions.iter().any(|step| matches!(step.action, Action::Scale(_))))
        .count();
    println!("{links} of {} scaling groups get engines", waiting.snapshot.demand.len());
    print_times("sessions wait in every scaling group", measure(&waiting, &observed, 0, false));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    targets = plans
}
criterion_main!(benches);
