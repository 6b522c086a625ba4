//! Drain orders: how long their grace is counted, and when the orchestrator is probed for what they leave.

use std::sync::Arc;
use std::time::Duration;

use model::UnitName;
use model::change::{Change, ObjectPatch, UnitPatch};

use super::fake::{Fake, settings};

/// An engine that was ready and that no slot wants any more; its drain order is written.
async fn drained() -> Arc<Fake> {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_mins(1));
    let patch = UnitPatch { min_engines: Some(0), ..UnitPatch::default() };
    let object = ObjectPatch::ResourceUnit(UnitName::new("uc_1").unwrap(), patch);
    fake.commit("fewer", &Change::Alter { if_exists: false, object });
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().simulation.observed.drains.len(), 1);
    fake
}

#[tokio::test]
async fn a_new_master_counts_a_grace_from_when_it_observed_the_order() {
    let fake = drained().await;
    let grace = fake.state().simulation.observed.drains[0].grace;
    let deletes = || fake.state().journal.effects().iter().filter(|effect| effect.starts_with("delete engine")).count();
    // Almost all of it is over when another master takes over, on whose clock nothing of it is.
    fake.pass(grace);
    let mut next = fake.reconciler(1);
    next.tick(&*fake).await;
    for passed in [Duration::from_mins(1), grace.saturating_sub(Duration::from_mins(1))] {
        fake.pass(passed);
        next.tick(&*fake).await;
        assert_eq!(deletes(), 0, "what the engine runs may end");
    }
    fake.pass(planner::DELETE_AFTER_GRACE);
    next.tick(&*fake).await;
    assert_eq!(deletes(), 1, "and no longer than its grace");
}

#[tokio::test]
async fn an_order_for_a_gone_pod_costs_one_probe_in_its_namespace() {
    let fake = drained().await;
    assert_eq!(fake.state().simulation.exit_drained(), 1);
    // Each of them is a master of a process that knows nothing yet.
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    assert!(fake.state().simulation.observed.instances.is_empty(), "its pod is cleared away");
    reconciler = fake.reconciler(1);
    fake.state().journal.clear();

    let timeout = settings().limits.session_timeout;
    for _ in 0..2 {
        reconciler.tick(&*fake).await;
        assert_eq!(fake.state().journal.probes().len(), 0, "the answer would not count yet");
        fake.pass(timeout / 2);
    }
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.probes(), [Some("rp-1--t-1".to_owned())], "no list of all pods");
    assert!(fake.state().simulation.observed.drains.is_empty());
}
