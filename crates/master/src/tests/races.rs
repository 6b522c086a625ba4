//! Changes between the observation of a tick and its effects.

use model::slot::Replacement;
use std::time::Duration;

use super::fake::{Fake, Fault};
use crate::tick::Ticked;

/// A ctx whose one engine has not registered yet and was superseded.
async fn superseded_before_it_registered() -> (std::sync::Arc<Fake>, crate::tick::Reconciler, model::EngineName) {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    assert!(matches!(reconciler.tick(&*fake).await, Ticked::Done { progress: true, .. }));
    let first = fake.present(0);
    let key = fake.state().simulation.desired.snapshot.slots[0].key.clone();
    fake.state().simulation.renew(&key, 0, Replacement::StandIn).unwrap();
    fake.state().journal.clear();
    (fake, reconciler, first)
}

#[tokio::test]
async fn an_engine_that_was_superseded_before_it_registered_is_drained_at_once() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert!(
        state.simulation.observed.drains.iter().any(|order| order.engine == first),
        "{:?}",
        state.journal.effects()
    );
}

#[tokio::test]
async fn an_engine_that_registered_and_left_meanwhile_is_not_drained() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    let engine = first.clone();
    let registers_and_leaves = Fault::before(move |state| {
        assert!(state.simulation.register(&engine));
        state.simulation.observed.registrations.retain(|live| live.engine != engine);
    });
    fake.script(&format!("drain engine {first}"), registers_and_leaves);
    reconciler.tick(&*fake).await;
    {
        let state = fake.state();
        let drain = format!("drain engine {first}");
        assert!(state.journal.effects().contains(&drain), "the plan was to drain it: {:?}", state.journal.effects());
        assert!(state.script.is_empty() && state.simulation.observed.drains.is_empty(), "and nothing happened");
    }
    // It stands in from now on, until its replacement is registered.
    reconciler.tick(&*fake).await;
    assert!(fake.state().simulation.observed.drains.is_empty());
    fake.settle(&mut reconciler).await;
    let state = fake.state();
    let names: Vec<_> = state.simulation.observed.instances.iter().map(|instance| instance.name.clone()).collect();
    assert_eq!(names, [state.simulation.desired.snapshot.slots[0].engine()]);
}

#[tokio::test]
async fn a_drain_order_written_since_the_observation_is_not_written_again() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    let drain = format!("drain engine {first}");
    let is_ordered = Fault::before(|state| {
        state.simulation.observed.drains.push(planner::DrainOrder {
            engine: first,
            uid: Some("another".to_owned()),
            grace: Duration::ZERO,
            reason: "it was there first".to_owned(),
            age: Duration::ZERO,
            namespace: None,
            quiet: Duration::ZERO,
        });
    });
    fake.script(&drain, is_ordered);
    reconciler.tick(&*fake).await;
    let state = fake.state();
    let drains: Vec<_> = state.simulation.observed.drains.iter().map(|order| order.uid.clone()).collect();
    assert_eq!(drains, [Some("another".to_owned())]);
}
