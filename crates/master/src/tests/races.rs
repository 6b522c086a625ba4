//! What moves between a tick's look and its effects.

use std::time::Duration;

use super::fake::Fake;
use crate::tick::Ticked;

/// A ctx whose one engine has not registered yet and was superseded.
async fn superseded_before_it_registered() -> (std::sync::Arc<Fake>, crate::tick::Reconciler, model::EngineName) {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    assert!(matches!(reconciler.tick(&*fake).await, Ticked::Done { progress: true, .. }));
    let first = fake.present(0);
    let key = fake.state().simulation.desired.snapshot.slots[0].key.clone();
    fake.state().simulation.renew(&key, 0, false).unwrap();
    fake.state().effects.clear();
    (fake, reconciler, first)
}

#[tokio::test]
async fn an_engine_that_was_superseded_before_it_registered_is_drained_at_once() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert!(state.simulation.observed.drains.iter().any(|fact| fact.engine == first), "{:?}", state.effects);
}

#[tokio::test]
async fn an_engine_that_registered_and_lost_its_session_since_the_look_is_not_drained() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    fake.state().before.push((format!("drain engine {first}"), |state, engine| {
        assert!(state.simulation.register(engine));
        state.simulation.observed.registrations.retain(|live| live.engine != *engine);
    }));
    reconciler.tick(&*fake).await;
    {
        let state = fake.state();
        let drain = format!("drain engine {first}");
        assert!(state.effects.contains(&drain), "the plan was to drain it: {:?}", state.effects);
        assert!(state.before.is_empty() && state.simulation.observed.drains.is_empty(), "and nothing happened");
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
async fn a_drain_fact_that_was_written_since_the_look_is_not_written_again() {
    let (fake, mut reconciler, first) = superseded_before_it_registered().await;
    fake.state().before.push((format!("drain engine {first}"), |state, engine| {
        state.simulation.observed.drains.push(planner::DrainOrder {
            engine: engine.clone(),
            uid: Some("another".to_owned()),
            grace: Duration::ZERO,
            reason: "it was there first".to_owned(),
            age: Duration::ZERO,
            namespace: None,
            quiet: Duration::ZERO,
        });
    }));
    reconciler.tick(&*fake).await;
    let state = fake.state();
    let drains: Vec<_> = state.simulation.observed.drains.iter().map(|fact| fact.uid.clone()).collect();
    assert_eq!(drains, [Some("another".to_owned())]);
}
