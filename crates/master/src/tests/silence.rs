//! Engines, agents and ZooKeeper that are slow or give no answer.

use std::time::Duration;

use model::number::Epoch;
use planner::EngineLoad;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault, settings};
use crate::ctx::LeaseState;
use crate::settings::Settings;
use crate::tick::{Reconciler, Ticked};

#[tokio::test]
async fn a_silent_unregistered_engine_is_replaced_before_it_is_drained() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_mins(10));
    let old = fake.present(0);
    fake.state().simulation.observed.registrations.clear();
    let shown = |fake: &Fake| {
        let rows =
            fake.state().journal.publications().iter().flat_map(|report| report.engines.clone()).collect::<Vec<_>>();
        rows.into_iter().rfind(|row| row.name == old).unwrap()
    };
    reconciler.tick(&*fake).await;
    fake.pass(Duration::from_secs(12));
    reconciler.tick(&*fake).await;
    let row = shown(&fake);
    assert_eq!(row.reason.as_deref(), Some("lost its registration 12 s ago; does not answer"));
    assert_eq!(row.state().as_str(), "lost");
    fake.pass(Duration::from_secs(47));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.present(0), old, "a minute is not over");
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    assert_ne!(fake.present(0), old);
    reconciler.tick(&*fake).await;
    assert!(fake.state().simulation.observed.drains.is_empty(), "it stands in until the new one is registered");
    let new = fake.present(0);
    assert!(fake.state().simulation.register(&new));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().simulation.observed.drains[0].engine, old);
}

#[tokio::test]
async fn an_engine_that_answers_is_not_replaced_for_its_lost_registration() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let old = fake.present(0);
    fake.state().simulation.observed.loads.insert(old.clone(), EngineLoad { sessions: 1, running: 0 });
    let now = fake.state().now();
    let mut reconciler = Reconciler::new(settings(), Epoch(1), now, CancellationToken::new());
    fake.state().simulation.observed.registrations.clear();
    for _ in 0..20 {
        reconciler.tick(&*fake).await;
        fake.pass(Duration::from_mins(1));
    }
    assert_eq!(fake.present(0), old);
}

#[tokio::test]
async fn a_reading_of_zookeeper_may_take_longer_than_an_effect() {
    let fake = Fake::with_engines_wanted(2);
    fake.script("zookeeper: read", Fault::Takes(settings().effect_deadline * 2));
    fake.reconciler(1).tick(&*fake).await;
    assert_eq!(fake.state().simulation.observed.instances.len(), 2);
}

#[tokio::test]
async fn an_effect_on_its_way_ends_when_the_lock_may_be_lost() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("create engine", Fault::Hangs);
    let settings = Settings { effect_deadline: Duration::from_mins(1), ..settings() };
    let now = fake.state().now();
    let stop = CancellationToken::new();
    let mut reconciler = Reconciler::new(settings, Epoch(1), now, stop);
    let begun = Instant::now();
    let loses = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        fake.state().lease = LeaseState::InDoubt;
    };
    let (ticked, ()) = tokio::join!(reconciler.tick(&*fake), loses);
    assert!(matches!(ticked, Ticked::Stopped(_)), "{ticked:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
