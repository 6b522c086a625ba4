//! Cases about `delete`, and about engines that end.

use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use orchestrator::{Deleted, Error};

use super::harness::{EPOCH, Harness, LONG, Program, all, create, exit_of, gone, name};
use super::{Case, cases};

pub const CASES: &[Case] = cases![
    delete_of_an_absent_engine_succeeds,
    delete_of_another_uid_is_refused_without_effect,
    an_obedient_engine_is_gone_before_its_grace_is_over,
    a_stubborn_engine_is_terminating_until_its_grace_is_over,
    an_engine_without_grace_is_killed_at_once,
    a_grace_can_be_shortened_but_not_extended,
    a_deletion_survives_the_instance_that_requested_it,
    a_failed_engine_has_its_exit_and_its_log_tail,
    an_engine_killed_from_outside_has_the_signal,
    an_ended_engine_is_deleted_at_once_by_its_uid,
];

async fn delete_of_an_absent_engine_succeeds(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    assert_eq!(orchestrator.delete(&name("absent"), "no-uid", LONG, EPOCH).await, Ok(Deleted::Gone));
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    gone(&orchestrator, &engine).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
}

async fn delete_of_another_uid_is_refused_without_effect(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let refused = orchestrator.delete(&engine.name, "another", Duration::ZERO, EPOCH).await;
    let present = engine.uid.clone();
    assert_eq!(refused, Err(Error::Gone { name: engine.name.clone(), uid: "another".to_owned(), present }));
    assert_eq!(orchestrator.get(&engine.name, None).await, Ok(Some(engine)));
}

async fn an_obedient_engine_is_gone_before_its_grace_is_over(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let other = create(&*harness, &orchestrator, "two", Program::Obedient, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    // The clock does not move: the engine obeyed, it was not killed.
    gone(&orchestrator, &engine).await;
    assert_eq!(all(&orchestrator).await.engines, [other.into()]);
}

async fn a_stubborn_engine_is_terminating_until_its_grace_is_over(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    let moment = Duration::from_millis(1);
    harness.advance(LONG.saturating_sub(moment));
    let seen = all(&orchestrator).await.engines;
    assert_eq!((seen[0].phase, &seen[0].uid), (Phase::Terminating, &engine.uid));
    assert!(seen[0].reason.as_deref().unwrap().contains("terminating"));
    harness.advance(moment);
    gone(&orchestrator, &engine).await;
}

async fn an_engine_without_grace_is_killed_at_once(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    orchestrator.delete(&engine.name, &engine.uid, Duration::ZERO, EPOCH).await.unwrap();
    gone(&orchestrator, &engine).await;
}

async fn a_grace_can_be_shortened_but_not_extended(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    let minutes = Duration::from_mins;
    orchestrator.delete(&engine.name, &engine.uid, minutes(10), EPOCH).await.unwrap();
    orchestrator.delete(&engine.name, &engine.uid, minutes(60), EPOCH).await.unwrap();
    orchestrator.delete(&engine.name, &engine.uid, minutes(5), EPOCH).await.unwrap();
    harness.advance(minutes(4));
    assert_eq!(all(&orchestrator).await.engines[0].phase, Phase::Terminating);
    harness.advance(minutes(1));
    gone(&orchestrator, &engine).await;
}

async fn a_deletion_survives_the_instance_that_requested_it(harness: Arc<dyn Harness>) {
    let first = harness.instance();
    let engine = create(&*harness, &first, "one", Program::Stubborn, Phase::Running).await;
    first.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    drop(first);
    let next = harness.instance();
    assert_eq!(all(&next).await.engines[0].phase, Phase::Terminating);
    harness.advance(LONG);
    gone(&next, &engine).await;
}

async fn a_failed_engine_has_its_exit_and_its_log_tail(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    let exit = exit_of(&engine);
    assert_eq!((exit.code, exit.signal), (Some(3), None));
    assert!(engine.started_at_ms.unwrap() <= exit.ended_at_ms, "{engine:?}");
    assert!(engine.log_tail.as_deref().unwrap().ends_with("went wrong"), "{engine:?}");
    assert!(engine.reason.is_some());
    harness.advance(LONG);
    assert_eq!(all(&orchestrator).await.engines, [engine.into()], "an ended engine stays as it is");
}

async fn an_engine_killed_from_outside_has_the_signal(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    harness.kill(&engine);
    let ended =
        super::harness::eventually(&orchestrator, "one has ended", |listing| listing.engines[0].phase == Phase::Ended)
            .await
            .engines
            .remove(0);
    assert_eq!((exit_of(&ended).code, exit_of(&ended).signal), (None, Some(9)));
    assert_eq!(ended.reason.as_deref(), Some("killed by signal 9"));
    assert_eq!((&ended.uid, ended.started_at_ms), (&engine.uid, engine.started_at_ms));
}

async fn an_ended_engine_is_deleted_at_once_by_its_uid(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    let other = orchestrator.delete(&engine.name, "another", LONG, EPOCH).await;
    assert!(matches!(other, Err(Error::Gone { .. })), "{other:?}");
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Gone));
    assert_eq!(all(&orchestrator).await.engines, []);
}
