//! Engines for waiting sessions: they are created in the tick that adds their slots.

use std::sync::Arc;

use model::demand::{Demand, DemandKey};
use model::{Epoch, TenantName};

use super::fake::{Fake, Fault, settings};
use crate::tick::{Reconciler, Ticked};

/// A tenant without engines, and a master that knows its registry to be complete.
async fn at_rest() -> (Arc<Fake>, Reconciler) {
    let fake = Fake::with_engines_wanted(0);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(settings().limits.session_timeout);
    (fake, reconciler)
}

/// As many sessions of the tenant wait.
fn wait_for_engines(fake: &Fake, waiting: u64) {
    let mut state = fake.state();
    let snapshot = &mut state.simulation.desired.snapshot;
    let key = DemandKey::of_tenant(TenantName::new("t_1").unwrap(), "IDE");
    let (since_ms, until_ms) = (snapshot.now_ms, snapshot.now_ms + 60_000);
    snapshot.demand = vec![Demand { key, waiting, since_ms, until_ms }];
}

#[tokio::test]
async fn the_engine_of_a_waiting_session_is_created_in_the_tick_that_adds_its_slot() {
    let (fake, mut reconciler) = at_rest().await;
    fake.state().journal.clear();
    wait_for_engines(&fake, 1);
    reconciler.tick(&*fake).await;
    let effects = fake.state().journal.effects();
    let at = |what: &str| effects.iter().position(|effect| effect.contains(what));
    assert!(at("scale").is_some() && at("scale") < at("create engine"), "{effects:?}");
    assert_eq!(fake.state().simulation.observed.instances.len(), 1);

    // What was added is on its way: the session is not served twice.
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().simulation.desired.snapshot.slots.len(), 1);
}

#[tokio::test]
async fn an_engine_that_is_confirmed_in_the_same_tick_delays_no_other() {
    let (fake, mut reconciler) = at_rest().await;
    wait_for_engines(&fake, 1);
    reconciler.tick(&*fake).await;
    {
        let mut state = fake.state();
        for engine in state.simulation.about_to_register() {
            assert!(state.simulation.register(&engine));
        }
        state.journal.clear();
    }
    // Its agent was not polled, so it counts as full.
    reconciler.tick(&*fake).await;
    let effects = fake.state().journal.effects();
    assert!(effects.iter().any(|effect| effect.starts_with("ledger: confirm")), "{effects:?}");
    assert_eq!(fake.state().simulation.observed.instances.len(), 2, "{effects:?}");
}

#[tokio::test]
async fn a_master_that_was_deposed_after_it_added_slots_creates_nothing() {
    let (fake, mut reconciler) = at_rest().await;
    wait_for_engines(&fake, 1);
    fake.script("scale", Fault::after(|state| state.master().epoch = Epoch(2)));
    let ticked = reconciler.tick(&*fake).await;
    assert!(matches!(ticked, Ticked::Stopped(_)), "{ticked:?}");
    assert_eq!(fake.state().simulation.desired.snapshot.slots.len(), 1);
    assert!(fake.state().simulation.observed.instances.is_empty());
}

#[tokio::test]
async fn sessions_that_try_to_open_meanwhile_take_no_slot_away() {
    let (fake, mut reconciler) = at_rest().await;
    wait_for_engines(&fake, 1);
    // They leave the count before they open, and come back if there is no seat.
    fake.script("scale", Fault::after(|state| state.simulation.desired.snapshot.demand.clear()));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().simulation.observed.instances.len(), 1);
}
