//! Replacing engines in place under masters that stop after any effect.

use std::sync::Arc;
use std::time::Duration;

use model::engine_name::EngineName;
use model::ledger::ScopeKey;
use model::slot::Replacement;
use model::{Epoch, PoolName};

use super::fake::{Fake, memory, settings};
use crate::ctx::LeaseState;
use crate::tick::{Reconciler, Ticked};

/// How many engines the pool is charged for.
fn charged(fake: &Fake) -> i64 {
    let key = ScopeKey::pool(&PoolName::new("rp_1").unwrap());
    fake.state().simulation.desired.snapshot.ledger.scope(&key).unwrap().counter.held.engines
}

/// The number of instances, and how many of them are registered.
fn running(fake: &Fake) -> (usize, usize) {
    let state = fake.state();
    (state.simulation.observed.instances.len(), state.simulation.observed.registrations.len())
}

/// Two engines serve, and the statement has been committed.
async fn replaced() -> Arc<Fake> {
    let fake = Fake::with_engines_wanted(2);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.commit_with("a-1", &memory(2), Replacement::InPlace);
    fake.state().journal.clear();
    fake
}

/// A master that has acted for so long that it knows which engines are registered.
fn informed(fake: &Fake) -> Reconciler {
    let reconciler = fake.reconciler(1);
    fake.pass(settings().limits.session_timeout);
    reconciler
}

#[tokio::test]
async fn masters_that_stop_after_any_effect_take_down_one_slot_and_return_nothing() {
    for effects in 1..4 {
        let fake = replaced().await;
        let old: Vec<EngineName> =
            fake.state().simulation.observed.instances.iter().map(|instance| instance.name.clone()).collect();
        for round in 0.. {
            assert!(round < 200, "never replaced: {:#?}", fake.state().simulation.plan());
            let mut reconciler = informed(&fake);
            fake.suspend_after(effects);
            let ticked = reconciler.tick(&*fake).await;
            fake.recover();
            fake.state().lease = LeaseState::Valid;
            let (instances, registered) = running(&fake);
            assert!(instances <= 2 && registered >= 1, "{effects}: {instances} run, {registered} serve");
            assert_eq!(charged(&fake), 2, "{effects}");
            if matches!(ticked, Ticked::Stopped(_)) {
                continue;
            }
            {
                let mut state = fake.state();
                for engine in state.simulation.about_to_register() {
                    state.simulation.register(&engine);
                }
                state.simulation.exit_drained();
            }
            let is_old = |name: &EngineName| old.contains(name);
            let some_are_old = fake.state().simulation.observed.instances.iter().any(|instance| is_old(&instance.name));
            if !some_are_old && running(&fake) == (2, 2) {
                break;
            }
            fake.pass(Duration::from_secs(1));
        }
    }
}

#[tokio::test]
async fn a_deposed_master_transfers_nothing() {
    let fake = replaced().await;
    let mut reconciler = informed(&fake);
    reconciler.tick(&*fake).await;
    fake.state().simulation.exit_drained();
    reconciler.tick(&*fake).await;
    let waiting = fake.state().simulation.plan();
    assert!(waiting.decisions().any(|decision| decision.verb() == "transfer reservation"), "{waiting:#?}");
    fake.state().master().epoch = Epoch(2);
    fake.state().journal.clear();
    assert!(matches!(reconciler.tick(&*fake).await, Ticked::Stopped(_)));
    assert!(fake.state().journal.effects().is_empty());
    assert_eq!(charged(&fake), 2);
}

#[tokio::test]
async fn a_failed_start_draws_an_incarnation_that_is_in_place_again() {
    let fake = replaced().await;
    let mut reconciler = informed(&fake);
    for _ in 0..60 {
        reconciler.tick(&*fake).await;
        let mut state = fake.state();
        state.simulation.exit_drained();
        for engine in state.simulation.about_to_register() {
            let found = state.simulation.observed.instances.iter().find(|instance| instance.name == engine);
            let uid = found.unwrap().uid.clone();
            state.simulation.end(&uid, "unknown property");
        }
        drop(state);
        fake.pass(Duration::from_secs(10));
        assert_eq!((running(&fake).1, charged(&fake)), (1, 2));
    }
    let state = fake.state();
    let slots = &state.simulation.desired.snapshot.slots;
    assert!(slots[0].failures > 1 && slots[0].replacement == Replacement::InPlace, "{:?}", slots[0]);
}
