//! Reservations: they are written before the rest of their chains, in the order of the plan, and what is refused creates
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::change::{Change, ObjectPatch, PoolPatch, Setting};
use model::ledger::{Ledger, ScopeKey};
use model::quota::{Capacity, Limit};
use model::{Epoch, PoolName};
use planner::Action;
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault, State, no_agent, settings};
use super::tick::done;
use crate::settings::Settings;
use crate::tick::{Reconciler, Ticked};

fn pool() -> ScopeKey {
    ScopeKey::pool(&PoolName::new("rp_1").unwrap())
}

/// Another one changes how many engines the pool can have.
fn limit_engines(state: &mut State, engines: Limit) {
    let ledger = &mut state.simulation.desired.snapshot.ledger;
    let mut scope = *ledger.scope(&pool()).unwrap();
    scope.counter.limit.engines = engines;
    ledger.put_scope(pool(), scope);
}

fn held(state: &State) -> i64 {
    state.simulation.desired.snapshot.ledger.scope(&pool()).unwrap().counter.held.engines
}

fn charged_and_running(fake: &Fake) -> (i64, usize) {
    let state = fake.state();
    (held(&state), state.simulation.observed.instances.len())
}

/// The names of the reservations in the order in which they were written.
fn written(state: &State) -> Vec<String> {
    state.journal.changes().iter().flatten().map(|change| change.change.id().to_string()).collect()
}

#[tokio::test]
async fn reservations_are_written_before_anything_is_created() {
    let fake = Fake::with_engines_wanted(3);
    let engines: Vec<String> = (0..3).map(|ordinal| format!("reserve {}", fake.present(ordinal))).collect();
    fake.reconciler(1).tick(&*fake).await;
    let state = fake.state();
    let effects = state.journal.effects();
    assert_eq!(effects[0], format!("ledger: {}", engines.join(", ")));
    assert!(effects[1..].iter().all(|effect| !effect.starts_with("ledger")), "{effects:?}");
    assert_eq!((held(&state), state.simulation.observed.instances.len()), (3, 3));
}

#[tokio::test]
async fn a_registered_engine_is_confirmed_and_the_charge_of_a_gone_one_returned() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let engine = fake.present(0);
    assert!(fake.state().journal.effects().contains(&format!("ledger: confirm {engine}")));
    assert_eq!(held(&fake.state()), 1);
    let slot = fake.state().simulation.desired.snapshot.slots[0].key.clone();
    fake.state().simulation.delete_slot(&slot, "stopped", 0);
    fake.settle(&mut reconciler).await;
    let state = fake.state();
    assert!(state.journal.effects().contains(&format!("ledger: end {engine}")));
    assert_eq!((held(&state), state.simulation.observed.instances.len()), (0, 0));
}

/// The engines of planned reservations, in order.
fn planned(fake: &Fake) -> Vec<String> {
    let plan = fake.state().simulation.plan();
    let reserves = plan.decisions().filter(|decision| matches!(decision.action, Action::Ledger(_)));
    reserves.map(|decision| decision.engine.as_ref().unwrap().to_string()).collect()
}

#[tokio::test]
async fn large_plans_are_written_in_several_transactions_in_their_order() {
    let fake = Fake::with_engines_wanted(300);
    let planned = planned(&fake);
    fake.reconciler(1).tick(&*fake).await;
    let state = fake.state();
    let sizes: Vec<usize> = state.journal.changes().iter().map(Vec::len).collect();
    assert_eq!(sizes, [256, 44]);
    assert_eq!(written(&state), planned);
    assert!(state.journal.effects()[..2].iter().all(|effect| effect.starts_with("ledger: reserve")));
}

#[tokio::test]
async fn engines_are_created_while_later_reservations_are_written() {
    let fake = Fake::with_engines_wanted(300);
    let second = format!("reserve {}", planned(&fake)[256]);
    let created = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&created);
    fake.script(&second, Fault::Takes(Duration::from_millis(200)));
    fake.script(
        &second,
        Fault::after(move |state| seen.store(state.simulation.observed.instances.len(), Ordering::Relaxed)),
    );
    let settings = Settings { effect_deadline: Duration::from_secs(10), ..settings() };
    let now = fake.state().now();
    Reconciler::new(settings, Epoch(1), now, CancellationToken::new()).tick(&*fake).await;
    assert!(created.load(Ordering::Relaxed) > 0, "engines of the first transaction");
    assert_eq!(charged_and_running(&fake), (300, 300));
}

#[tokio::test]
async fn a_refused_reserve_creates_nothing_and_stays_queued() {
    let fake = Fake::with_engines_wanted(3);
    let mut reconciler = fake.reconciler(1);
    fake.script("effect: ledger", Fault::before(|state| limit_engines(state, Limit::Of(2))));
    assert!(done(&reconciler.tick(&*fake).await));
    {
        let state = fake.state();
        assert_eq!((held(&state), state.simulation.observed.instances.len()), (2, 2), "the others go on");
        let records = state.journal.records();
        let queued = |record: &model::ledger::LedgerRecord| match record {
            model::ledger::LedgerRecord::Admission(queued) => Some(queued.values().copied().collect::<Vec<_>>()),
            _ => None,
        };
        assert_eq!(records.iter().find_map(queued), Some(vec![1]), "the plan granted it, the ledger did not");
    }
    let effects = fake.state().journal.effects();
    let third = fake.present(2);
    assert!(effects[1..].iter().all(|effect| !effect.ends_with(third.as_str())), "{effects:?}");
    // The next ticks know the limit and ask for nothing; then it is raised.
    reconciler.tick(&*fake).await;
    fake.state().journal.clear();
    reconciler.tick(&*fake).await;
    assert!(written(&fake.state()).iter().all(|name| name != third.as_str()));
    limit_engines(&mut fake.state(), Limit::Unlimited);
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert_eq!((held(&state), state.simulation.observed.instances.len()), (3, 3));
}

#[tokio::test]
async fn a_failed_transaction_leaves_its_chains_to_the_next_tick() {
    let fake = Fake::with_engines_wanted(2);
    let mut reconciler = fake.reconciler(1);
    fake.script("effect: ledger", Fault::Fails(no_agent()));
    reconciler.tick(&*fake).await;
    assert_eq!(charged_and_running(&fake), (0, 0));
    fake.recover();
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().simulation.observed.instances.len(), 2);
}

#[tokio::test]
async fn a_reservation_of_which_the_answer_was_lost_is_not_requested_again() {
    let fake = Fake::with_engines_wanted(2);
    let mut reconciler = fake.reconciler(1);
    fake.script("effect: ledger", Fault::LosesAnswer);
    reconciler.tick(&*fake).await;
    assert_eq!(charged_and_running(&fake), (2, 0));
    fake.recover();
    fake.state().journal.clear();
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert!(written(&state).is_empty(), "{:?}", state.journal.effects());
    assert_eq!((held(&state), state.simulation.observed.instances.len()), (2, 2));
}

#[tokio::test]
async fn a_deposed_master_changes_no_reservation_and_creates_nothing() {
    let fake = Fake::with_engines_wanted(2);
    fake.script("effect: ledger", Fault::before(|state| state.master().epoch = Epoch(2)));
    assert!(matches!(fake.reconciler(1).tick(&*fake).await, Ticked::Stopped(_)));
    let state = fake.state();
    assert_eq!((held(&state), state.simulation.observed.instances.len()), (0, 0));
    assert!(state.simulation.observed.permits.is_empty());
    assert!(state.simulation.desired.snapshot.ledger.reservations().next().is_none());
}

#[tokio::test]
async fn running_engines_without_reservations_are_adopted_before_anything_is_granted() {
    let fake = Fake::with_engines_wanted(2);
    fake.settle(&mut fake.reconciler(1)).await;
    let engines = [fake.present(0), fake.present(1)];
    {
        // The database of an older version has no reservations.
        let mut state = fake.state();
        let snapshot = &mut state.simulation.desired.snapshot;
        let scopes = snapshot.ledger.scopes().map(|(key, scope)| {
            let mut scope = *scope;
            scope.counter.held = model::resource::Amount::ZERO;
            if let model::ledger::Role::Pool(row) = &mut scope.role {
                (row.shared.held, row.unguaranteed.held) = Default::default();
                row.counted_epoch = Epoch(0);
            }
            (key.clone(), scope)
        });
        snapshot.ledger = Ledger::new(scopes.collect::<Vec<_>>(), []);
        state.journal.clear();
    }
    let uids: Vec<String> =
        fake.state().simulation.observed.instances.iter().map(|instance| instance.uid.clone()).collect();
    let mut next = fake.reconciler(1);
    next.tick(&*fake).await;
    {
        let state = fake.state();
        let adopted = engines.iter().map(|engine| format!("adopt {engine}")).collect::<Vec<_>>().join(", ");
        assert_eq!(state.journal.effects(), [format!("ledger: {adopted}")]);
        assert!(state.journal.records().is_empty(), "the engines were not all counted when it planned");
    }
    next.tick(&*fake).await;
    let state = fake.state();
    assert_eq!(state.journal.records().len(), 1);
    assert_eq!(held(&state), 2);
    let now: Vec<String> = state.simulation.observed.instances.iter().map(|instance| instance.uid.clone()).collect();
    assert_eq!(now, uids, "nothing restarts");
}

/// `ALTER RESOURCE POOL rp_1 SET CAPACITY`.
pub(super) fn capacity(capacity: Capacity) -> Change {
    let patch = PoolPatch { capacity: Setting::Set(capacity), ..PoolPatch::default() };
    Change::Alter { if_exists: false, object: ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), patch) }
}

#[tokio::test]
async fn a_steady_state_changes_and_records_nothing() {
    let fake = Fake::with_engines_wanted(2);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.state().journal.clear();
    for _ in 0..20 {
        fake.pass(Duration::from_secs(2));
        assert!(!done(&reconciler.tick(&*fake).await));
    }
    let state = fake.state();
    assert!(state.journal.changes().is_empty() && state.journal.records().is_empty());
}
