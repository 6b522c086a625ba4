//! Cases about `ensure`.

use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use model::labels;
use model::shared::Shared;
use model::{Epoch, Generation};
use orchestrator::{Deleted, Error, Listing, SpecFile};

use super::harness::{EPOCH, Harness, LONG, Program, all, create, eventually, gone, is_conflict, refusal, spec};
use super::{Case, cases};

pub const CASES: &[Case] = cases![
    a_new_engine_is_observed_as_specified,
    ensure_is_idempotent,
    a_spec_with_other_labels_is_a_conflict,
    an_ended_engine_keeps_its_name,
    a_terminating_engine_keeps_its_name,
    a_reused_name_has_another_uid,
    two_instances_create_each_engine_once,
    a_lower_epoch_is_refused_by_every_instance,
    a_node_list_chooses_among_the_nodes,
    engines_spread_over_the_nodes,
    an_engine_above_the_limit_is_refused,
    an_invalid_spec_is_refused,
];

async fn a_new_engine_is_observed_as_specified(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let desired = spec(&*harness, "one", Program::Obedient);
    assert_eq!(*engine.labels, desired.labels);
    assert_eq!(engine.generation(), Some(Generation(12)));
    assert_eq!(engine.epoch(), Some(EPOCH));
    assert_eq!(engine.annotations.get("note").map(String::as_str), Some("kept"));
    assert_eq!(engine.started_at_ms, Some(harness.now_ms()));
    assert_eq!((engine.reason, engine.exit, engine.log_tail), (None, None, None));
}

async fn ensure_is_idempotent(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let again = orchestrator.ensure(&spec(&*harness, "one", Program::Obedient), EPOCH).await.unwrap();
    assert_eq!((again.uid, again.created), (engine.uid, false));
    assert_eq!(all(&orchestrator).await.engines.len(), 1);
}

async fn a_spec_with_other_labels_is_a_conflict(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let mut other = spec(&*harness, "one", Program::Obedient);
    other.labels.insert(labels::CONFIG.to_owned(), "another".to_owned());
    is_conflict(orchestrator.ensure(&other, EPOCH).await, "label");
    assert_eq!(all(&orchestrator).await.engines, [engine.into()]);
}

async fn an_ended_engine_keeps_its_name(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    is_conflict(orchestrator.ensure(&spec(&*harness, "one", Program::Obedient), EPOCH).await, "ended");
    assert_eq!(all(&orchestrator).await.engines, [engine.into()]);
}

async fn a_terminating_engine_keeps_its_name(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = create(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    is_conflict(orchestrator.ensure(&spec(&*harness, "one", Program::Stubborn), EPOCH).await, "terminating");
}

async fn a_reused_name_has_another_uid(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let first = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    orchestrator.delete(&first.name, &first.uid, LONG, EPOCH).await.unwrap();
    gone(&orchestrator, &first).await;
    let second = create(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    assert_ne!(first.uid, second.uid);
}

async fn two_instances_create_each_engine_once(harness: Arc<dyn Harness>) {
    let (one, other) = (harness.instance(), harness.instance());
    for round in 0..5 {
        let spec = spec(&*harness, &format!("engine-{round}"), Program::Obedient);
        let (first, second) = tokio::join!(one.ensure(&spec, EPOCH), other.ensure(&spec, EPOCH));
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.uid, second.uid);
        assert!(first.created != second.created, "{first:?} {second:?}");
    }
    assert_eq!(all(&one).await.engines.len(), 5);
}

async fn a_lower_epoch_is_refused_by_every_instance(harness: Arc<dyn Harness>) {
    let (deposed, acting) = (harness.instance(), harness.instance());
    let engine = create(&*harness, &deposed, "one", Program::Obedient, Phase::Running).await;
    acting.ensure(&spec(&*harness, "two", Program::Obedient), Epoch(5)).await.unwrap();
    let refused = Error::Deposed { epoch: EPOCH, highest: Epoch(5) };
    let late = deposed.ensure(&spec(&*harness, "three", Program::Obedient), EPOCH).await;
    assert_eq!(late, Err(refused.clone()));
    assert_eq!(deposed.delete(&engine.name, &engine.uid, Duration::ZERO, EPOCH).await, Err(refused));
    // A list may lag behind the effects of another instance.
    let both = eventually(&acting, "both are listed", |listing| listing.engines.len() == 2).await;
    assert_eq!(both.engines.iter().map(|engine| engine.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(acting.get(&engine.name, None).await.unwrap().unwrap().phase, Phase::Running);
    acting.delete(&engine.name, &engine.uid, LONG, Epoch(5)).await.unwrap();
    gone(&deposed, &engine).await;
}

async fn a_node_list_chooses_among_the_nodes(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let mut desired = spec(&*harness, "one", Program::Obedient);
    desired.nodes = Some(vec!["node-9".to_owned(), "node-2".to_owned()]);
    orchestrator.ensure(&desired, EPOCH).await.unwrap();
    let placed = |listing: &Listing| listing.find(&desired.name).is_some_and(|engine| engine.node.is_some());
    eventually(&orchestrator, "one has a node", placed).await;
    assert_eq!(orchestrator.get(&desired.name, None).await.unwrap().unwrap().node.as_deref(), Some("node-2"));
    let mut nowhere = spec(&*harness, "two", Program::Obedient);
    nowhere.nodes = Some(vec!["node-9".to_owned()]);
    assert!(refusal(orchestrator.ensure(&nowhere, EPOCH).await).contains("node"));
    nowhere.nodes = Some(Vec::new());
    assert!(refusal(orchestrator.ensure(&nowhere, EPOCH).await).contains("node list is empty"));
}

async fn engines_spread_over_the_nodes(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    for engine in ["one", "two", "three", "four"] {
        create(&*harness, &orchestrator, engine, Program::Obedient, Phase::Running).await;
    }
    let on_the_first = |engine: &&Shared<orchestrator::ObservedInstance>| engine.node.as_deref() == Some("node-1");
    assert_eq!(all(&orchestrator).await.engines.iter().filter(on_the_first).count(), 2);
}

async fn an_engine_above_the_limit_is_refused(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let mut last = None;
    for engine in 0..6 {
        let spec = spec(&*harness, &format!("engine-{engine}"), Program::Obedient);
        last = Some(orchestrator.ensure(&spec, EPOCH).await.unwrap());
    }
    let seventh = spec(&*harness, "engine-6", Program::Obedient);
    assert!(refusal(orchestrator.ensure(&seventh, EPOCH).await).contains("6 engines"));
    // An existing one adds none.
    let again = orchestrator.ensure(&spec(&*harness, "engine-5", Program::Obedient), EPOCH).await.unwrap();
    assert_eq!(Some(again.uid), last.map(|last| last.uid));
}

async fn an_invalid_spec_is_refused(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let good = spec(&*harness, "one", Program::Obedient);
    let file = |path: &str| SpecFile { path: path.to_owned(), content: Vec::new(), mode: 0o600 };
    let mut bad = vec![good.clone(), good.clone(), good.clone()];
    bad[0].argv = vec!["sleep".to_owned()];
    bad[1].labels.insert(labels::NAME.to_owned(), "two".to_owned());
    bad[2].environment.insert("A=B".to_owned(), String::new());
    for path in ["", "../out", "/etc/passwd", "a/../../b"] {
        bad.push(good.clone());
        bad.last_mut().unwrap().files = vec![file(path)];
    }
    bad.push(good.clone());
    bad.last_mut().unwrap().files = vec![file("twice"), file("twice")];
    for bad in bad {
        refusal(orchestrator.ensure(&bad, EPOCH).await);
    }
    assert_eq!(all(&orchestrator).await.engines, []);
}
