//! Probes of instances that the list contains although they are gone.

use std::sync::Arc;
use std::time::Duration;

use model::PoolName;
use model::change::{Change, ObjectPatch, PoolPatch, Setting};
use model::engine_name::EngineName;

use super::fake::{Fake, Fault, no_answer};
use crate::tick::{Reconciler, Ticked};

fn done(ticked: &Ticked) -> bool {
    match ticked {
        Ticked::Done { progress, .. } => *progress,
        Ticked::Stopped(reason) => panic!("{reason}"),
    }
}

/// An installation with one engine that serves, and a master whose registry is believed.
async fn at_rest() -> (Arc<Fake>, Reconciler, EngineName) {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_mins(1));
    fake.state().journal.clear();
    let engine = fake.present(0);
    (fake, reconciler, engine)
}

#[tokio::test]
async fn an_engine_that_vanished_without_an_event_is_probed_and_replaced() {
    let (fake, mut reconciler, engine) = at_rest().await;
    {
        let mut state = fake.state();
        state.list.instances = std::mem::take(&mut state.simulation.observed.instances);
        state.simulation.observed.registrations.clear();
    }
    assert!(!done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().journal.probes().len(), 0, "a moment without a registration is nothing");
    fake.pass(Duration::from_mins(1));
    assert!(done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().journal.probes().len(), 1);
    let effects = fake.state().journal.effects();
    assert_eq!(effects[..2], [format!("ledger: end {engine}"), format!("record end {engine}")]);
    fake.settle(&mut reconciler).await;
    assert_ne!(fake.present(0), engine);
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn an_engine_that_only_lost_its_registration_is_probed_and_stays() {
    let (fake, mut reconciler, engine) = at_rest().await;
    fake.state().simulation.observed.registrations.clear();
    for _ in 0..3 {
        assert!(!done(&reconciler.tick(&*fake).await));
        // Not for as long as it takes to be replaced: it does not answer either.
        fake.pass(Duration::from_secs(25));
    }
    let state = fake.state();
    assert!(state.journal.effects().is_empty(), "{:?}", state.journal.effects());
    assert_eq!(state.journal.probes().len(), 2);
    drop(state);
    assert_eq!(fake.present(0), engine);
}

#[tokio::test]
async fn a_terminating_pod_without_a_delete_event_is_probed_and_removed() {
    let (fake, mut reconciler, engine) = at_rest().await;
    {
        let mut state = fake.state();
        state.list.instances = std::mem::take(&mut state.simulation.observed.instances);
        state.list.instances[0].phase = model::engine_state::Phase::Terminating;
        state.simulation.observed.registrations.clear();
    }
    assert!(done(&reconciler.tick(&*fake).await), "its end is recorded immediately");
    assert_eq!(fake.state().list.instances.len(), 1);
    fake.pass(Duration::from_mins(1));
    let _ = reconciler.tick(&*fake).await;
    assert!(fake.state().list.instances.is_empty(), "it was probed");
    fake.settle(&mut reconciler).await;
    assert_ne!(fake.present(0), engine);
}

#[tokio::test]
async fn an_engine_is_probed_in_its_namespace_unless_its_configuration_changed() {
    let (fake, mut reconciler, engine) = at_rest().await;
    // The probe gets no reply, so it remains unknown whether it is gone.
    fake.script(&format!("probe {engine}"), Fault::Fails(no_answer()));
    fake.state().simulation.observed.instances.clear();
    assert!(!done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().journal.probes(), [Some("rp-1--t-1".to_owned())]);
    fake.state().journal.clear();
    let elsewhere = PoolPatch { namespace: Setting::Set("elsewhere".to_owned()), ..PoolPatch::default() };
    let pool = ObjectPatch::ResourcePool(PoolName::new("rp_1").unwrap(), elsewhere);
    fake.commit("moved", &Change::Alter { if_exists: false, object: pool });
    let _ = reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.probes(), [None]);
}

#[tokio::test]
async fn a_failed_unregistered_pod_without_an_event_is_probed() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    assert!(done(&reconciler.tick(&*fake).await));
    fake.pass(Duration::from_mins(1));
    let engine = fake.present(0);
    {
        let mut state = fake.state();
        state.list.instances = std::mem::take(&mut state.simulation.observed.instances);
        state.journal.clear();
    }
    let _ = reconciler.tick(&*fake).await;
    fake.pass(Duration::from_secs(50));
    let _ = reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.probes().len(), 0, "it may still be on its way");
    fake.pass(Duration::from_secs(10));
    let _ = reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.probes().len(), 1);
    assert!(fake.state().list.instances.is_empty());
    fake.settle(&mut reconciler).await;
    assert_ne!(fake.present(0), engine);
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}
