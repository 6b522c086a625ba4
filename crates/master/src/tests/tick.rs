//! Whole ticks: steady states, successors, and what a tick reports.

use std::time::Duration;

use model::observation::ClusterWarnings;
use model::slot::Replacement;

use super::fake::{Fake, Fault, memory};
use crate::ctx::{Failure, LeaseState};
use crate::tick::Ticked;

/// Whether the tick made progress; panics if it was stopped.
pub(super) fn done(ticked: &Ticked) -> bool {
    match ticked {
        Ticked::Done { progress, .. } => *progress,
        Ticked::Stopped(reason) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn a_steady_state_makes_no_effect_and_reports_nothing_new() {
    let fake = Fake::with_engines_wanted(2);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.state().journal.clear();
    assert!(!done(&reconciler.tick(&*fake).await));
    let state = fake.state();
    assert!(state.journal.effects().is_empty(), "{:?}", state.journal.effects());
    assert_eq!(state.journal.publications().len(), 1, "every tick publishes its end");
    assert!(
        state.journal.publications()[0].engines.is_empty()
            && state.journal.publications()[0].gone.is_empty()
            && !state.journal.publications()[0].complete
    );
}

#[tokio::test]
async fn what_is_around_the_engines_is_reported_when_it_changes() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let warnings = |fake: &Fake| fake.state().journal.publications().last().unwrap().cluster_warnings.clone();
    assert_eq!(
        fake.state().journal.publications()[0].cluster_warnings,
        Some(ClusterWarnings::default()),
        "the first report has it all"
    );
    assert_eq!(warnings(&fake), None, "nothing changed");
    let around = ClusterWarnings::new(Vec::new(), &["create pods in the whole cluster".to_owned()]);
    fake.state().list.warnings = around.clone();
    let _ = reconciler.tick(&*fake).await;
    assert_eq!(warnings(&fake), Some(around));
    let _ = reconciler.tick(&*fake).await;
    assert_eq!(warnings(&fake), None);
}

#[tokio::test]
async fn a_new_master_finds_everything_as_it_should_be_and_creates_nothing() {
    let fake = Fake::with_engines_wanted(3);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.state().journal.clear();
    let mut next = fake.reconciler(1);
    assert!(!done(&next.tick(&*fake).await));
    assert!(fake.state().journal.effects().is_empty());
    assert!(fake.state().journal.publications().last().unwrap().complete, "the first report of a term is complete");
}

#[tokio::test]
async fn a_successor_completes_the_work_of_a_master_that_died_after_any_effect() {
    let total = {
        let fake = Fake::with_engines_wanted(3);
        fake.settle(&mut fake.reconciler(1)).await;
        fake.commit("a-1", &memory(2));
        fake.state().journal.clear();
        fake.settle(&mut fake.reconciler(1)).await;
        fake.state().journal.effects().len()
    };
    assert!(total > 20, "{total}");
    for stop_after in 1..=total {
        let fake = Fake::with_engines_wanted(3);
        fake.settle(&mut fake.reconciler(1)).await;
        fake.commit("a-1", &memory(2));
        let uids: Vec<String> =
            fake.state().simulation.observed.instances.iter().map(|instance| instance.uid.clone()).collect();
        fake.suspend_after(stop_after);
        let mut dying = fake.reconciler(1);
        while fake.state().lease.is_valid() {
            let _ = dying.tick(&*fake).await;
            let mut state = fake.state();
            for engine in state.simulation.about_to_register() {
                state.simulation.register(&engine);
            }
            state.simulation.exit_drained();
            drop(state);
            fake.pass(Duration::from_secs(10));
        }
        fake.state().lease = LeaseState::Valid;
        fake.state().master().epoch = model::Epoch(2);
        fake.settle(&mut fake.reconciler(2)).await;
        let state = fake.state();
        assert_eq!(state.simulation.observed.instances.len(), 3, "after {stop_after} effects");
        assert!(
            state.simulation.observed.instances.iter().all(|instance| !uids.contains(&instance.uid)),
            "after {stop_after} effects"
        );
        assert!(
            state.simulation.observed.drains.is_empty() && state.simulation.desired.snapshot.alterations.is_empty()
        );
    }
}

#[tokio::test]
async fn an_engine_that_lost_its_session_with_the_masters_is_not_drained() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.commit("a-1", &memory(2));
    fake.state().simulation.observed.registrations.clear();
    reconciler.distrust_registry(fake.state().now());
    reconciler.tick(&*fake).await;
    assert!(
        fake.state().journal.effects().iter().all(|effect| !effect.starts_with("drain")),
        "{:?}",
        fake.state().journal.effects()
    );
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1);
}

#[tokio::test]
async fn a_replacement_that_never_answered_is_condemned_when_it_is_superseded() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_secs(10));
    fake.commit("a-1", &memory(2));
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    let never_ready = fake.present(0);
    fake.commit("a-2", &memory(1));
    reconciler.tick(&*fake).await;
    assert!(
        fake.state().journal.effects().contains(&format!("drain engine {never_ready}")),
        "{:?}",
        fake.state().journal.effects()
    );
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().simulation.observed.instances.len(), 1);
}

#[tokio::test]
async fn a_stand_in_whose_replacement_lost_its_registration_in_between_is_kept() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    let old = fake.present(0);
    fake.commit("a-1", &memory(2));
    reconciler.tick(&*fake).await;
    let new = fake.present(0);
    assert!(fake.state().simulation.register(&new));
    // The registration goes after it was observed: the multi fails as a whole.
    fake.script(&format!("drain engine {old}"), Fault::Fails(Failure::Moved("it is not registered".to_owned())));
    reconciler.tick(&*fake).await;
    assert!(fake.state().simulation.observed.registrations.iter().any(|live| live.engine == old));
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert!(fake.state().simulation.observed.registrations.iter().all(|live| live.engine == new));
}

#[tokio::test]
async fn explain_over_the_last_report_lists_the_decisions_then_executed() {
    let fake = Fake::with_engines_wanted(3);
    fake.settle(&mut fake.reconciler(1)).await;
    // A new master's first report is complete: what a metadata agent knows.
    fake.reconciler(1).tick(&*fake).await;
    let desired = fake.state().simulation.desired.clone();
    let observed = planner::ObservedState::from_report(
        &fake.state().journal.publications().last().unwrap().engines,
        &desired.snapshot,
    );
    let change = memory(2);
    let rules = model::change::Rules::default();
    let explained = planner::explain_change(&desired, &change, Replacement::StandIn, &rules, &observed).unwrap();
    let mut explained: Vec<String> = explained.iter().map(|row| format!("{} {}", row.decision, row.engine)).collect();
    assert!(explained.len() > 20, "{explained:?}");
    fake.commit("a-1", &change);
    fake.state().journal.clear();
    fake.settle(&mut fake.reconciler(1)).await;
    let mut executed = fake.state().journal.effects();
    // Nothing is limited, so EXPLAIN does not show the changes of reservations.
    executed.retain(|effect| !effect.starts_with("ledger: "));
    // Chains of one stage run concurrently, so their order is not fixed.
    explained.sort();
    executed.sort();
    assert_eq!(explained, executed);
}

#[tokio::test]
async fn a_master_that_is_shut_down_begins_no_further_effect() {
    let fake = Fake::with_engines_wanted(3);
    let stop = tokio_util::sync::CancellationToken::new();
    let now = fake.state().now();
    let mut reconciler = crate::tick::Reconciler::new(super::fake::settings(), model::Epoch(1), now, stop.clone());
    stop.cancel();
    assert!(matches!(reconciler.tick(&*fake).await, Ticked::Stopped(_)));
    assert!(fake.state().journal.effects().is_empty());
}

#[tokio::test]
async fn an_alteration_that_cannot_be_settled_delays_no_engine() {
    let fake = Fake::with_engines_wanted(2);
    fake.create_node("a-1", 99);
    let blocked = Failure::Unknown("a transaction holds the row".to_owned());
    fake.script("database: abort", Fault::Fails(blocked));
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_some());
    assert_eq!(fake.state().simulation.observed.instances.len(), 2);
}

#[tokio::test]
async fn a_tick_whose_report_was_refused_as_late_is_followed_by_a_complete_one() {
    let fake = Fake::with_engines_wanted(1);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    reconciler.tick(&*fake).await;
    assert!(!fake.state().journal.publications().last().unwrap().complete);
    let snapshot_of = fake.state().master().last_tick_ms;
    // Another master ends a tick between this one's snapshot and its report.
    fake.script("database: publish", Fault::before(|state| state.master().last_tick_ms += 1));
    assert!(!done(&reconciler.tick(&*fake).await));
    assert_eq!(fake.state().master().last_tick_ms, snapshot_of + 1, "the other one's");
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert!(state.journal.publications().last().unwrap().complete, "the rows of the other tick are unknown");
}

#[tokio::test]
async fn many_rows_are_published_in_parts_and_again_after_a_lost_part() {
    const ENGINES: usize = 5;
    let fake = Fake::with_engines_wanted(ENGINES as u32);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.state().journal.clear();
    let settings = crate::settings::Settings { report_rows: 2, ..super::fake::settings() };
    let (now, halt) = (fake.state().now(), tokio_util::sync::CancellationToken::new());
    let mut reconciler = crate::tick::Reconciler::new(settings, model::Epoch(1), now, halt);
    assert!(!done(&reconciler.tick(&*fake).await));
    let reports = fake.state().journal.publications();
    fake.state().journal.clear();
    assert_eq!(
        reports.iter().map(|report| (report.engines.len(), report.part)).collect::<Vec<_>>(),
        [(2, true), (2, true), (1, false)]
    );
    let names = |reports: &[model::observation::Publication]| {
        reports
            .iter()
            .flat_map(|report| &report.engines)
            .map(|row| row.name.clone())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&reports).len(), ENGINES, "each once");
    let last = &reports[2];
    assert!(last.complete && last.kept.len() == 4 && last.kept.iter().all(|name| *name != last.engines[0].name));
    assert!(!done(&reconciler.tick(&*fake).await));
    assert!(fake.state().journal.publications().iter().all(|report| report.engines.is_empty()), "nothing has changed");
    // The first part of the next report is rejected: it is unknown which rows are written.
    fake.state()
        .simulation
        .observed
        .instances
        .iter_mut()
        .for_each(|instance| instance.node = Some("node-2".to_owned()));
    fake.script("database: publish", Fault::before(|state| state.master().last_tick_ms += 1));
    reconciler.tick(&*fake).await;
    fake.state().journal.clear();
    assert!(!done(&reconciler.tick(&*fake).await));
    let reports = fake.state().journal.publications();
    assert!(reports.last().unwrap().complete && names(&reports).len() == ENGINES, "{reports:?}");
}
