//! A cluster of 10,000 engines, all as declared, and what differs from it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::catalog::{Catalog, PoolSpec, TenantSpec, Versioned};
use model::change::UnitPatch;
use model::charge::Charge;
use model::configuration::{Configuration, Defaults};
use model::demand::{Demand, DemandKey};
use model::engine_labels::EngineLabels;
use model::engine_state::Phase;
use model::instance::InstanceKind;
use model::ledger::{Ledger, Measured, Moment, Request, derive};
use model::number::Epoch;
use model::slot::{Origin, Replacement, Slot};
use model::snapshot::{EngineRecord, Snapshot};
use model::{Generation, Incarnation, PoolName, SlotKey, TenantName, UnitName};
use planner::{DesiredState, DrainOrder, EngineLoad, Instance, ObservedState, Permit, Registration};

const TENANTS: u32 = 50;
const POOLS: u32 = 10;
const POOLS_OF_TENANT: u32 = 2;
const UNITS: u32 = 10;
pub const SLOTS_OF_LINK: u32 = 10;
/// The product of the above.
pub const ENGINES: usize = 10_000;
const NODES_OF_POOL: u32 = 100;
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
pub fn steady() -> (DesiredState, ObservedState) {
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
    snapshot.slots.push(slot.into());
    let record = EngineRecord {
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
    };
    snapshot.engines.push(record.into());
    let address = "10.1.2.3:10021".to_owned();
    let permit = Permit {
        engine: name.clone(),
        uid: Some(uid.clone()),
        readable: true,
        answered: true,
        sessions: Some(None),
        owner: Some(None),
    };
    observed.permits.push(permit.into());
    let registration = Registration {
        engine: name.clone(),
        uid: Some(uid.clone()),
        address: address.clone(),
        config: labels.config.clone(),
        catalog: None,
        unclaimed: Duration::ZERO,
    };
    observed.registrations.push(registration.into());
    observed.loads.insert(name.clone(), EngineLoad { sessions: 1, running: 0 });
    let details =
        [("pod", "rp-0--t-0/an-engine"), ("pod address", "10.1.2.3"), ("pod created at", "2033-05-18T03:33:20Z")];
    let instance = Instance {
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
    };
    observed.instances.push(instance.into());
}

/// The same state as read again by the next tick. The caches of permits and pods share what has not changed; the snapshot is parsed.
pub fn read_again(desired: &DesiredState, observed: &ObservedState) -> (DesiredState, ObservedState) {
    let answer = serde_json::to_vec(&desired.snapshot).unwrap();
    let snapshot = serde_json::from_slice(&answer).unwrap();
    (DesiredState { snapshot, ..desired.clone() }, observed.clone())
}

/// Changes the load of `count` engines, deletes the registrations of `count` others, and drains as many.
pub fn disturb(observed: &mut ObservedState, count: usize) {
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
pub const SEATS: u32 = 2;
const WAITING: u64 = 25;

/// The same engines with sessions that wait for each link: the plan adds engines to all of them.
pub fn waiting(desired: &DesiredState, observed: &ObservedState) -> (DesiredState, ObservedState) {
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
