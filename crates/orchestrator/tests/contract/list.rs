//! Cases about `list`, `get` and `watch`.

use std::sync::Arc;

use model::engine_state::Phase;
use model::labels::{self, LabelMap};
use model::shared::Shared;
use orchestrator::{Listing, Orchestrator, WakeUps};

use super::harness::{DEADLINE, EPOCH, Harness, LONG, Program, all, create, eventually, gone, name, spec};
use super::{Case, cases};

pub const CASES: &[Case] = cases![
    an_empty_orchestrator_lists_nothing,
    another_instance_adopts_existing_engines,
    a_selector_chooses_by_labels,
    get_agrees_with_list,
    a_label_changed_by_hand_is_listed,
    an_engine_removed_by_hand_is_not_listed,
    the_watch_wakes_for_effects_of_others,
];

async fn an_empty_orchestrator_lists_nothing(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    assert_eq!(all(&orchestrator).await, Listing::default());
    assert_eq!(orchestrator.get(&name("absent"), None).await, Ok(None));
}

async fn another_instance_adopts_existing_engines(harness: Arc<dyn Harness>) {
    let first = harness.instance();
    let engine = create(&*harness, &first, "one", Program::Obedient, Phase::Running).await;
    drop(first);
    let second = harness.instance();
    assert_eq!(all(&second).await.find(&engine.name), Some(&engine));
    let ensured = second.ensure(&spec(&*harness, "one", Program::Obedient), EPOCH).await.unwrap();
    assert_eq!((&ensured.uid, ensured.created), (&engine.uid, false));
    second.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    gone(&second, &engine).await;
}

async fn a_selector_chooses_by_labels(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let mine = create(&*harness, &orchestrator, "mine", Program::Obedient, Phase::Running).await;
    let mut foreign = spec(&*harness, "foreign", Program::Obedient);
    foreign.labels.insert(labels::CLUSTER.to_owned(), "another".to_owned());
    orchestrator.ensure(&foreign, EPOCH).await.unwrap();
    assert_eq!(orchestrator.list(&labels::selector("test")).await.unwrap().engines, [mine.into()]);
    assert_eq!(orchestrator.list(&labels::selector("third")).await.unwrap().engines, []);
    assert_eq!(orchestrator.list(&LabelMap::new()).await.unwrap().engines.len(), 2);
}

async fn get_agrees_with_list(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    for (engine, program, phase) in [
        ("running", Program::Obedient, Phase::Running),
        ("ended", Program::Fails, Phase::Ended),
        ("terminating", Program::Stubborn, Phase::Running),
    ] {
        let engine = create(&*harness, &orchestrator, engine, program, phase).await;
        if program == Program::Stubborn {
            orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
        }
    }
    let listing = all(&orchestrator).await;
    assert_eq!(listing.engines.len(), 3);
    for engine in listing.engines {
        assert_eq!(orchestrator.get(&engine.name, None).await, Ok(Some(Shared::into_inner(engine))));
    }
}

async fn a_label_changed_by_hand_is_listed(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    harness.edit_label(&engine.name, labels::CONFIG, "edited");
    let seen = eventually(&orchestrator, "the label is listed", |listing| {
        listing.engines[0].labels.get(labels::CONFIG).is_some_and(|value| value == "edited")
    })
    .await;
    assert_eq!((seen.engines[0].phase, &seen.engines[0].uid), (Phase::Running, &engine.uid));
}

async fn an_engine_removed_by_hand_is_not_listed(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    harness.remove_by_hand(&engine);
    gone(&orchestrator, &engine).await;
}

async fn the_watch_wakes_for_effects_of_others(harness: Arc<dyn Harness>) {
    let (watcher, actor) = (harness.instance(), harness.instance());
    let mut wake_ups = watcher.watch();
    let engine = create(&*harness, &actor, "one", Program::Obedient, Phase::Running).await;
    woken_until(&mut wake_ups, &watcher, |listing| {
        listing.engines.first().is_some_and(|engine| engine.phase == Phase::Running)
    })
    .await;
    harness.kill(&engine);
    woken_until(&mut wake_ups, &watcher, |listing| listing.engines[0].phase == Phase::Ended).await;
    actor.delete(&engine.name, &engine.uid, LONG, EPOCH).await.unwrap();
    woken_until(&mut wake_ups, &watcher, |listing| listing.engines.is_empty()).await;
}

/// Lists only after wake-ups, so a change without a wake-up is never found.
async fn woken_until(
    wake_ups: &mut WakeUps,
    orchestrator: &Arc<dyn Orchestrator>,
    holds: impl Fn(&Listing) -> bool + Send,
) {
    let waiting = async {
        loop {
            wake_ups.wait().await;
            if holds(&all(orchestrator).await) {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("no wake-up");
}
