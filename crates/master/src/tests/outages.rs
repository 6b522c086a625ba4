//! Ticks without an orchestrator, or with calls to it that fail, hang or lose their answers.

use std::time::Duration;

use model::alteration::AlterationProgress;

use super::fake::{Fake, Fault, create, id, memory, no_answer};
use super::tick::done;
use crate::ctx::Failure;

#[tokio::test]
async fn a_refused_create_delays_no_other_and_backs_off() {
    let fake = Fake::with_engines_wanted(3);
    let broken = fake.present(1);
    let failure = Failure::Refused("no quota left".to_owned());
    fake.script(&format!("create engine {broken}"), Fault::Fails(failure));
    let mut reconciler = fake.reconciler(1);
    assert!(done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().simulation.observed.instances.len(), 2);
    let tries =
        || fake.state().journal.effects().iter().filter(|effect| **effect == format!("create engine {broken}")).count();
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    assert_eq!(tries(), 1, "it waits");
    let shown = fake
        .state()
        .journal
        .publications()
        .iter()
        .flat_map(|report| report.engines.clone())
        .rfind(|row| row.name == broken)
        .unwrap();
    assert!(shown.reason.unwrap().contains("no quota left"));
    fake.pass(Duration::from_secs(3));
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    assert_eq!(tries(), 2);
    fake.pass(Duration::from_secs(3));
    reconciler.tick(&*fake).await;
    assert_eq!(tries(), 2, "the second time it waits twice as long");
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.registrations.len(), 3);
}

#[tokio::test]
async fn an_unavailable_orchestrator_is_no_failure_of_the_engine() {
    let fake = Fake::with_engines_wanted(1);
    let create = format!("create engine {}", fake.present(0));
    fake.script(&create, Fault::Fails(Failure::Unknown("500 Internal Server Error".to_owned())));
    let mut reconciler = fake.reconciler(1);
    let tries = || fake.state().journal.effects().iter().filter(|effect| **effect == create).count();
    for times in 1..=10 {
        reconciler.tick(&*fake).await;
        reconciler.tick(&*fake).await;
        assert_eq!(tries(), times, "it is tried again after seconds, and not with each tick");
        fake.pass(Duration::from_secs(12));
    }
    // What is refused afterwards is its first failure.
    fake.recover();
    fake.script(&create, Fault::Fails(Failure::Refused("no quota left".to_owned())));
    reconciler.tick(&*fake).await;
    fake.pass(Duration::from_secs(3));
    reconciler.tick(&*fake).await;
    assert_eq!(tries(), 12);
    let shown =
        fake.state().journal.publications().iter().flat_map(|report| report.engines.clone()).next_back().unwrap();
    assert!(shown.reason.unwrap().contains("failure 1: no quota left"));
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn an_effect_that_never_answers_is_cut_off_and_the_others_go_on() {
    let fake = Fake::with_engines_wanted(3);
    let broken = fake.present(0);
    fake.script(&format!("create engine {broken}"), Fault::Hangs);
    let mut reconciler = fake.reconciler(1);
    assert!(done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().simulation.observed.instances.len(), 2);
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.registrations.len(), 3);
}

#[tokio::test]
async fn a_create_with_a_lost_answer_is_observed_and_not_repeated() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("create engine", Fault::LosesAnswer);
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    fake.recover();
    fake.settle(&mut reconciler).await;
    let state = fake.state();
    assert_eq!(state.simulation.created, 1);
    assert_eq!(state.journal.effects().iter().filter(|effect| effect.starts_with("create engine")).count(), 1);
    assert_eq!(state.simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn without_the_orchestrator_no_engine_is_touched_and_the_wait_is_shown() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("orchestrator: list", Fault::Fails(no_answer()));
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    let effects = fake.state().journal.effects();
    assert!(effects.iter().all(|effect| effect.starts_with("finish alteration")), "{effects:?}");
    assert!(!done(&reconciler.tick(&*fake).await));
    assert!(fake.state().journal.publications()[0].waits_for.as_ref().unwrap().contains("orchestrator"));
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn an_alteration_stalls_at_its_deadline_without_the_orchestrator() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.commit("a-1", &memory(2));
    fake.create_node("a-1", 7);
    fake.script("orchestrator: list", Fault::Fails(no_answer()));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converging));
    let report = fake.state().journal.publications().last().unwrap().clone();
    assert_eq!(report.engines.len(), 1, "{report:?}");
    assert!(report.engines[0].reason.as_ref().unwrap().contains("orchestrator") && !report.complete);
    assert!(report.waits_for.unwrap().contains("a-1"));
    fake.pass(Duration::from_secs(61));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Stalled));
    assert!(fake.state().zookeeper.alter.is_none(), "the next alteration may come");
    // What reaches no engine has nothing to wait for.
    let unit = model::change::UnitPatch::default();
    let another = model::change::ObjectPatch::ResourceUnit(model::UnitName::new("uc_2").unwrap(), unit);
    fake.commit("a-2", &create(another));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-2")].progress, Some(AlterationProgress::Converged));
    // It recovers: the stalled alteration converges after all.
    fake.recover();
    reconciler.tick(&*fake).await;
    assert!(fake.state().journal.publications().last().unwrap().complete, "the rows of the meantime are replaced");
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converged));
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn an_engine_whose_probe_is_not_answered_has_not_vanished() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let engine = fake.present(0);
    let instances = std::mem::take(&mut fake.state().simulation.observed.instances);
    fake.script(&format!("probe {engine}"), Fault::Fails(no_answer()));
    fake.state().journal.clear();
    assert!(!done(&reconciler.tick(&*fake).await));
    assert!(fake.state().journal.effects().is_empty());
    fake.state().simulation.observed.instances = instances;
    fake.recover();
    assert!(!done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.present(0), engine);
}

#[tokio::test]
async fn probes_that_hang_delay_a_tick_for_a_limited_time() {
    const ENGINES: u32 = 12;
    let fake = Fake::with_engines_wanted(ENGINES);
    fake.settle(&mut fake.reconciler(1)).await;
    let settings = crate::settings::Settings { parallelism: 1, ..super::fake::settings() };
    let (now, halt) = (fake.state().now(), tokio_util::sync::CancellationToken::new());
    let mut reconciler = crate::tick::Reconciler::new(settings, model::Epoch(1), now, halt);
    fake.state().simulation.observed.instances.clear();
    fake.state().journal.clear();
    fake.script("orchestrator: probe", Fault::Hangs);
    assert!(!done(&reconciler.tick(&*fake).await));
    let state = fake.state();
    assert!(
        state.journal.effects().is_empty(),
        "who was not asked about has not vanished: {:?}",
        state.journal.effects()
    );
    // Each question may take one effect deadline, all of them two.
    assert!(
        (1..6).contains(&state.journal.probes().len()),
        "{} of {ENGINES} were asked for",
        state.journal.probes().len()
    );
}
