//! What moves between a tick's look and its effects.

use super::fake::Fake;
use crate::tick::Ticked;

/// A world whose one engine has not registered yet and was superseded.
async fn superseded_before_it_registered() -> (std::sync::Arc<Fake>, crate::tick::Driver, model::EngineName) {
    let fake = Fake::with_engines_wanted(1);
    let mut driver = fake.driver(1);
    assert!(matches!(driver.tick(&*fake).await, Ticked::Done { progress: true, .. }));
    let first = fake.present(0);
    let key = fake.state().world.desired.snapshot.slots[0].key.clone();
    fake.state().world.renew(&key, 0, false).unwrap();
    fake.state().effects.clear();
    (fake, driver, first)
}

#[tokio::test]
async fn an_engine_that_was_superseded_before_it_registered_is_drained_at_once() {
    let (fake, mut driver, first) = superseded_before_it_registered().await;
    driver.tick(&*fake).await;
    let state = fake.state();
    assert!(state.world.observed.facts.iter().any(|fact| fact.engine == first), "{:?}", state.effects);
}

#[tokio::test]
async fn an_engine_that_registered_and_lost_its_session_since_the_look_is_not_drained() {
    let (fake, mut driver, first) = superseded_before_it_registered().await;
    fake.state().before.push((format!("drain engine {first}"), |state, engine| {
        assert!(state.world.register(engine));
        state.world.observed.lives.retain(|live| live.engine != *engine);
    }));
    driver.tick(&*fake).await;
    {
        let state = fake.state();
        let drain = format!("drain engine {first}");
        assert!(state.effects.contains(&drain), "the plan was to drain it: {:?}", state.effects);
        assert!(state.before.is_empty() && state.world.observed.facts.is_empty(), "and nothing happened");
    }
    // It stands in from now on, until its replacement is registered.
    driver.tick(&*fake).await;
    assert!(fake.state().world.observed.facts.is_empty());
    fake.settle(&mut driver).await;
    let state = fake.state();
    let names: Vec<_> = state.world.observed.pods.iter().map(|pod| pod.name.clone()).collect();
    assert_eq!(names, [state.world.desired.snapshot.slots[0].engine()]);
}

#[tokio::test]
async fn a_drain_fact_that_was_written_since_the_look_is_not_written_again() {
    let (fake, mut driver, first) = superseded_before_it_registered().await;
    fake.state().before.push((format!("drain engine {first}"), |state, engine| {
        state.world.observed.facts.push(planner::Fact {
            engine: engine.clone(),
            uid: Some("another".to_owned()),
            grace_ms: 0,
            reason: "it was there first".to_owned(),
            age_ms: 0,
            namespace: None,
            quiet_ms: 0,
        });
    }));
    driver.tick(&*fake).await;
    let state = fake.state();
    let facts: Vec<_> = state.world.observed.facts.iter().map(|fact| fact.uid.clone()).collect();
    assert_eq!(facts, [Some("another".to_owned())]);
}
