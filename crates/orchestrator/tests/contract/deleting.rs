//! Cases about `delete`, and about engines that end.

use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use orchestrator::{Deleted, Error};

use super::harness::{EPOCH, Harness, LONG, Program, all, exit_of, gone, made, name};
use super::{Case, cases};

pub const CASES: &[Case] = cases![
    what_is_not_there_is_deleted_with_success,
    another_uid_is_refused_and_nothing_is_harmed,
    an_obedient_engine_is_soon_gone,
    a_stubborn_engine_is_terminating_until_its_grace_is_over,
    without_grace_an_engine_is_killed_at_once,
    a_grace_can_be_made_shorter_never_longer,
    a_deletion_is_carried_on_when_its_asker_is_gone,
    a_failed_engine_is_ended_with_its_exit_and_last_lines,
    an_engine_killed_from_outside_is_ended_with_the_signal,
    an_ended_engine_is_deleted_by_uid_at_once,
];

async fn what_is_not_there_is_deleted_with_success(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    assert_eq!(orchestrator.delete(&name("nobody"), "no-uid", LONG, EPOCH).await, Ok(Deleted::Gone));
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    gone(&orchestrator, &engine).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
}

async fn another_uid_is_refused_and_nothing_is_harmed(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let refused = orchestrator.delete(&engine.name, "another", Duration::ZERO, EPOCH).await;
    let present = engine.uid.clone();
    assert_eq!(refused, Err(Error::Gone { name: engine.name.clone(), uid: "another".to_owned(), present }));
    assert_eq!(orchestrator.get(&engine.name).await, Ok(Some(engine)));
}

async fn an_obedient_engine_is_soon_gone(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let other = made(&*harness, &orchestrator, "two", Program::Obedient, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    // The clock stands still: it is gone because it obeyed, not because it was killed.
    gone(&orchestrator, &engine).await;
    assert_eq!(all(&orchestrator).await.engines, [other]);
}

async fn a_stubborn_engine_is_terminating_until_its_grace_is_over(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    let moment = Duration::from_millis(1);
    harness.advance(LONG.saturating_sub(moment));
    let seen = all(&orchestrator).await.engines;
    assert_eq!((seen[0].phase, &seen[0].uid), (Phase::Terminating, &engine.uid));
    assert!(seen[0].reason.as_deref().unwrap().contains("told to end"));
    harness.advance(moment);
    gone(&orchestrator, &engine).await;
}

async fn without_grace_an_engine_is_killed_at_once(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    orchestrator.delete(&engine.name, &engine.uid, Duration::ZERO, EPOCH).await.unwrap();
    gone(&orchestrator, &engine).await;
}

async fn a_grace_can_be_made_shorter_never_longer(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    let minutes = Duration::from_mins;
    orchestrator.delete(&engine.name, &engine.uid, minutes(10), EPOCH).await.unwrap();
    orchestrator.delete(&engine.name, &engine.uid, minutes(60), EPOCH).await.unwrap();
    orchestrator.delete(&engine.name, &engine.uid, minutes(5), EPOCH).await.unwrap();
    harness.advance(minutes(4));
    assert_eq!(all(&orchestrator).await.engines[0].phase, Phase::Terminating);
    harness.advance(minutes(1));
    gone(&orchestrator, &engine).await;
}

async fn a_deletion_is_carried_on_when_its_asker_is_gone(harness: Arc<dyn Harness>) {
    let asker = harness.instance();
    let engine = made(&*harness, &asker, "one", Program::Stubborn, Phase::Running).await;
    asker.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    drop(asker);
    let next = harness.instance();
    assert_eq!(all(&next).await.engines[0].phase, Phase::Terminating);
    harness.advance(LONG);
    gone(&next, &engine).await;
}

async fn a_failed_engine_is_ended_with_its_exit_and_last_lines(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    let exit = exit_of(&engine);
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    assert!(engine.started_at_ms.unwrap() <= exit.ended_at_ms, "{engine:?}");
    assert!(engine.log_tail.as_deref().unwrap().ends_with("went wrong"), "{engine:?}");
    assert!(engine.reason.is_some());
    harness.advance(LONG);
    assert_eq!(all(&orchestrator).await.engines, [engine], "an ended engine stays as it is");
}

async fn an_engine_killed_from_outside_is_ended_with_the_signal(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    harness.kill(&engine);
    let ended =
        super::harness::eventually(&orchestrator, "one has ended", |listing| listing.engines[0].phase == Phase::Ended)
            .await
            .engines
            .remove(0);
    assert_eq!((exit_of(&ended).code, exit_of(&ended).signal), (None, Some(9)));
    assert_eq!(ended.reason.as_deref(), Some("killed by signal 9"));
    assert_eq!((ended.uid, ended.started_at_ms), (engine.uid, engine.started_at_ms));
}

async fn an_ended_engine_is_deleted_by_uid_at_once(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    let other = orchestrator.delete(&engine.name, "another", LONG, EPOCH).await;
    assert!(matches!(other, Err(Error::Gone { .. })), "{other:?}");
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
    assert_eq!(all(&orchestrator).await.engines, []);
}
