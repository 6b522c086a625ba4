//! What is recorded of the ledger, and when: capacities, deadlines of external holders, and the audit.

use std::sync::Arc;
use std::time::Duration;

use model::change::{ObjectPatch, PoolPatch, Setting};
use model::ledger::{Amounts, Change, Holder, LedgerRecord, Moment, Request, ScopeKey, Scopes, State as Held};
use model::observation::ObservedNode;
use model::quota::{Capacity, Limit};
use model::resource::{Amount, Triple};
use model::{Epoch, PoolName, TenantName};

use super::fake::{Fake, Fault, create, no_agent};
use super::ledger::capacity;
use super::tick::done;
use crate::tick::Ticked;

const GIB: u64 = 1 << 30;

fn pool(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn node(name: &str) -> ObservedNode {
    ObservedNode {
        name: name.to_owned(),
        cpu_millis: 4_000,
        memory_bytes: 16 * GIB,
        ready: true,
        open: true,
        ..ObservedNode::default()
    }
}

fn nodes(fake: &Fake, nodes: Vec<ObservedNode>) {
    fake.state().list.nodes = Some(nodes);
}

fn cpu(record: &LedgerRecord) -> Vec<(String, Limit)> {
    match record {
        LedgerRecord::Capacity(pools) => pools.iter().map(|(pool, of)| (pool.to_string(), of.cpu_m)).collect(),
        _ => Vec::new(),
    }
}

/// The CPU of the capacities that were recorded since the last call.
fn recorded(fake: &Fake) -> Vec<(String, Limit)> {
    let capacities = fake.state().journal.records().iter().flat_map(cpu).collect();
    fake.state().journal.clear();
    capacities
}

fn of(pool: &str, cpu_millis: i64) -> (String, Limit) {
    (pool.to_owned(), Limit::Of(cpu_millis))
}

#[tokio::test]
async fn capacities_of_nodes_are_recorded_at_once_and_then_every_ten_seconds() {
    let fake = Fake::with_engines_wanted(0);
    let mut reconciler = fake.reconciler(1);
    nodes(&fake, vec![node("node-1")]);
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [], "its capacity is unlimited");
    fake.commit("a-1", &capacity(Capacity::Nodes));
    assert!(done(&reconciler.tick(&*fake).await), "the next tick follows at once");
    assert_eq!(recorded(&fake), [of("rp_1", 4_000)]);
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [], "nothing changed");
    nodes(&fake, vec![node("node-1"), node("node-2")]);
    fake.pass(Duration::from_secs(9));
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [], "too early");
    // Another pool does not wait for the first one.
    let patch = PoolPatch { capacity: Setting::Set(Capacity::Nodes), ..PoolPatch::default() };
    fake.commit("a-2", &create(ObjectPatch::ResourcePool(pool("rp_2"), patch)));
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [of("rp_2", 8_000)]);
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [of("rp_1", 8_000)]);
    let limit = fake.state().simulation.desired.snapshot.ledger.scope(&ScopeKey::pool(&pool("rp_1"))).unwrap().counter;
    let expected = Triple { cpu_m: Limit::Of(8_000), memory: Limit::Of(32 << 30), engines: Limit::Unlimited };
    assert_eq!(limit.limit, expected);
}

#[tokio::test]
async fn the_next_master_records_a_capacity_only_if_it_differs() {
    let fake = Fake::with_engines_wanted(0);
    nodes(&fake, vec![node("node-1")]);
    fake.commit("a-1", &capacity(Capacity::Nodes));
    fake.reconciler(1).tick(&*fake).await;
    assert_eq!(recorded(&fake), [of("rp_1", 4_000)]);
    fake.reconciler(1).tick(&*fake).await;
    assert_eq!(recorded(&fake), []);
    nodes(&fake, vec![ObservedNode { ready: false, open: false, ..node("node-1") }]);
    fake.reconciler(1).tick(&*fake).await;
    assert_eq!(recorded(&fake), [of("rp_1", 0)]);
}

#[tokio::test]
async fn unread_nodes_change_no_capacity() {
    let fake = Fake::with_engines_wanted(0);
    let mut reconciler = fake.reconciler(1);
    nodes(&fake, vec![node("node-1")]);
    fake.commit("a-1", &capacity(Capacity::Nodes));
    reconciler.tick(&*fake).await;
    recorded(&fake);
    for unread in [None, Some(Vec::new())] {
        fake.state().list.nodes = unread;
        fake.pass(Duration::from_secs(10));
        reconciler.tick(&*fake).await;
        assert_eq!(recorded(&fake), []);
    }
}

#[tokio::test]
async fn a_capacity_that_could_not_be_recorded_is_recorded_by_the_next_tick() {
    let fake = Fake::with_engines_wanted(0);
    let mut reconciler = fake.reconciler(1);
    nodes(&fake, vec![node("node-1")]);
    fake.commit("a-1", &capacity(Capacity::Nodes));
    fake.script("database: record", Fault::Fails(no_agent()));
    assert!(matches!(reconciler.tick(&*fake).await, Ticked::Done { .. }));
    fake.recover();
    reconciler.tick(&*fake).await;
    assert_eq!(recorded(&fake), [of("rp_1", 4_000)]);
}

#[tokio::test]
async fn a_lost_node_shrinks_the_capacity_before_charges_are_returned() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    nodes(&fake, vec![node("node-1"), node("node-2")]);
    fake.commit("a-1", &capacity(Capacity::Nodes));
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_secs(10));
    nodes(&fake, vec![node("node-2")]);
    fake.state().simulation.observed.instances.clear();
    fake.state().simulation.observed.registrations.clear();
    fake.state().journal.clear();
    let limit_at_end = Arc::new(parking_lot::Mutex::new(None));
    let seen = Arc::clone(&limit_at_end);
    fake.script(
        "effect: ledger: end",
        Fault::before(move |state| {
            let scope = *state.simulation.desired.snapshot.ledger.scope(&ScopeKey::pool(&pool("rp_1"))).unwrap();
            *seen.lock() = Some(scope.counter.limit.cpu_m);
        }),
    );
    for _ in 0..3 {
        reconciler.tick(&*fake).await;
    }
    assert_eq!(*limit_at_end.lock(), Some(Limit::Of(4_000)));
}

/// A reservation of an external program, with a lease of this many milliseconds.
fn reserve(fake: &Fake, lease_ms: i64) {
    let scopes = Scopes::new(&TenantName::new("t_1").unwrap(), &pool("rp_1"), None, None);
    let request = Request {
        id: "external-1".into(),
        holder: Holder::External { key: "key".into(), instance: "instance".into() },
        lineage: "external-1".into(),
        scopes,
        amounts: Amounts::same(Amount { cpu_m: 1_000, memory: 1 << 30, engines: 1 }).unwrap(),
        asked: None,
        ttl_ms: Some(lease_ms),
    };
    let mut state = fake.state();
    let snapshot = &mut state.simulation.desired.snapshot;
    let at = Moment { now_ms: snapshot.now_ms, epoch: Epoch(0) };
    snapshot.ledger.apply(&Change::Reserve(Arc::new(request)), at).unwrap();
}

#[tokio::test]
async fn overdue_reservations_of_programs_end_in_the_tick_of_their_deadline() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    reserve(&fake, 1_500);
    fake.state().journal.clear();
    let ticked = reconciler.tick(&*fake).await;
    let expected = Ticked::Done { progress: false, due: Some(Duration::from_millis(1_500)) };
    assert_eq!(ticked, expected);
    assert!(fake.state().journal.records().is_empty());
    fake.pass(Duration::from_millis(1_500));
    assert!(done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().journal.records(), [LedgerRecord::Expiry]);
    let expired = |fake: &Fake| {
        let state = fake.state();
        let ledger = &state.simulation.desired.snapshot.ledger;
        ledger.reservation("external-1").is_none_or(|reservation| reservation.state == Held::Expired)
    };
    assert!(expired(&fake));
    assert!(!done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().journal.records().len(), 1, "once");
}

#[tokio::test]
async fn the_ledger_is_audited_once_in_an_interval() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_mins(1));
    reconciler.tick(&*fake).await;
    fake.state().journal.clear();
    fake.pass(Duration::from_secs(59));
    reconciler.tick(&*fake).await;
    assert!(fake.state().journal.records().is_empty());
    // A failed audit is expensive too: it is not repeated at once.
    fake.script("database: record", Fault::Fails(no_agent()));
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    fake.recover();
    reconciler.tick(&*fake).await;
    assert!(fake.state().journal.records().is_empty());
    fake.pass(Duration::from_mins(1));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.records(), [LedgerRecord::Audit]);
}
