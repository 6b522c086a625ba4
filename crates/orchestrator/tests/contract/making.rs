//! Cases about `ensure`.

use std::sync::Arc;
use std::time::Duration;

use model::engine_state::Phase;
use model::labels;
use model::{Epoch, Generation};
use orchestrator::{Deleted, Error, Listing, SpecFile};

use super::harness::{EPOCH, Harness, LONG, Program, all, eventually, gone, is_conflict, made, refusal, spec};
use super::{Case, cases};

pub const CASES: &[Case] = cases![
    a_made_engine_is_seen_as_it_was_asked_for,
    ensure_twice_makes_one_engine,
    a_spec_with_other_labels_is_a_conflict,
    an_ended_engine_keeps_its_name,
    a_terminating_engine_keeps_its_name,
    a_name_that_was_given_back_bears_another_uid,
    two_instances_make_each_engine_once,
    a_lower_epoch_is_refused_whoever_has_seen_the_higher_one,
    a_node_list_chooses_among_the_nodes,
    engines_spread_over_the_nodes,
    a_limit_refuses_one_more_and_says_why,
    a_spec_that_makes_no_sense_is_refused,
];

async fn a_made_engine_is_seen_as_it_was_asked_for(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let wanted = spec(&*harness, "one", Program::Obedient);
    assert_eq!(*engine.labels, wanted.labels);
    assert_eq!(engine.generation(), Some(Generation(12)));
    assert_eq!(engine.epoch(), Some(EPOCH));
    assert_eq!(engine.annotations.get("note").map(String::as_str), Some("kept"));
    assert_eq!(engine.started_at_ms, Some(harness.now_ms()));
    assert_eq!((engine.reason, engine.exit, engine.log_tail), (None, None, None));
}

async fn ensure_twice_makes_one_engine(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let again = orchestrator.ensure(&spec(&*harness, "one", Program::Obedient), EPOCH).await.unwrap();
    assert_eq!((again.uid, again.created), (engine.uid, false));
    assert_eq!(all(&orchestrator).await.engines.len(), 1);
}

async fn a_spec_with_other_labels_is_a_conflict(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    let mut other = spec(&*harness, "one", Program::Obedient);
    other.labels.insert(labels::CONFIG.to_owned(), "another".to_owned());
    is_conflict(orchestrator.ensure(&other, EPOCH).await, "label");
    assert_eq!(all(&orchestrator).await.engines, [engine]);
}

async fn an_ended_engine_keeps_its_name(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Fails, Phase::Ended).await;
    is_conflict(orchestrator.ensure(&spec(&*harness, "one", Program::Obedient), EPOCH).await, "ended");
    assert_eq!(all(&orchestrator).await.engines, [engine]);
}

async fn a_terminating_engine_keeps_its_name(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let engine = made(&*harness, &orchestrator, "one", Program::Stubborn, Phase::Running).await;
    assert_eq!(orchestrator.delete(&engine.name, &engine.uid, LONG, EPOCH).await, Ok(Deleted::Terminating));
    is_conflict(orchestrator.ensure(&spec(&*harness, "one", Program::Stubborn), EPOCH).await, "told to end");
}

async fn a_name_that_was_given_back_bears_another_uid(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let first = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    orchestrator.delete(&first.name, &first.uid, LONG, EPOCH).await.unwrap();
    gone(&orchestrator, &first).await;
    let second = made(&*harness, &orchestrator, "one", Program::Obedient, Phase::Running).await;
    assert_ne!(first.uid, second.uid);
}

async fn two_instances_make_each_engine_once(harness: Arc<dyn Harness>) {
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

async fn a_lower_epoch_is_refused_whoever_has_seen_the_higher_one(harness: Arc<dyn Harness>) {
    let (deposed, acting) = (harness.instance(), harness.instance());
    let engine = made(&*harness, &deposed, "one", Program::Obedient, Phase::Running).await;
    acting.ensure(&spec(&*harness, "two", Program::Obedient), Epoch(5)).await.unwrap();
    let refused = Error::Deposed { epoch: EPOCH, highest: Epoch(5) };
    let late = deposed.ensure(&spec(&*harness, "three", Program::Obedient), EPOCH).await;
    assert_eq!(late, Err(refused.clone()));
    assert_eq!(deposed.delete(&engine.name, &engine.uid, Duration::ZERO, EPOCH).await, Err(refused));
    // A list may lag behind what another instance did.
    let both = eventually(&acting, "both are listed", |listing| listing.engines.len() == 2).await;
    assert_eq!(both.engines.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(acting.get(&engine.name).await.unwrap().unwrap().phase, Phase::Running);
    acting.delete(&engine.name, &engine.uid, LONG, Epoch(5)).await.unwrap();
    gone(&deposed, &engine).await;
}

async fn a_node_list_chooses_among_the_nodes(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    let mut wanted = spec(&*harness, "one", Program::Obedient);
    wanted.nodes = Some(vec!["node-9".to_owned(), "node-2".to_owned()]);
    orchestrator.ensure(&wanted, EPOCH).await.unwrap();
    let placed = |listing: &Listing| listing.find(&wanted.name).is_some_and(|it| it.node.is_some());
    eventually(&orchestrator, "one has a node", placed).await;
    assert_eq!(orchestrator.get(&wanted.name).await.unwrap().unwrap().node.as_deref(), Some("node-2"));
    let mut nowhere = spec(&*harness, "two", Program::Obedient);
    nowhere.nodes = Some(vec!["node-9".to_owned()]);
    assert!(refusal(orchestrator.ensure(&nowhere, EPOCH).await).contains("node"));
    nowhere.nodes = Some(Vec::new());
    assert!(refusal(orchestrator.ensure(&nowhere, EPOCH).await).contains("node list is empty"));
    assert_eq!(orchestrator.capacity().await.unwrap().nodes, ["node-1", "node-2"]);
}

async fn engines_spread_over_the_nodes(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    for engine in ["one", "two", "three", "four"] {
        made(&*harness, &orchestrator, engine, Program::Obedient, Phase::Running).await;
    }
    let on_the_first = |it: &&orchestrator::Observed| it.node.as_deref() == Some("node-1");
    assert_eq!(all(&orchestrator).await.engines.iter().filter(on_the_first).count(), 2);
}

async fn a_limit_refuses_one_more_and_says_why(harness: Arc<dyn Harness>) {
    let orchestrator = harness.instance();
    assert_eq!(orchestrator.capacity().await.unwrap().engines, Some(6));
    let mut last = None;
    for engine in 0..6 {
        let spec = spec(&*harness, &format!("engine-{engine}"), Program::Obedient);
        last = Some(orchestrator.ensure(&spec, EPOCH).await.unwrap());
    }
    let seventh = spec(&*harness, "engine-6", Program::Obedient);
    assert!(refusal(orchestrator.ensure(&seventh, EPOCH).await).contains("6 engines"));
    // One that is there is no more.
    let again = orchestrator.ensure(&spec(&*harness, "engine-5", Program::Obedient), EPOCH).await.unwrap();
    assert_eq!(Some(again.uid), last.map(|last| last.uid));
}

async fn a_spec_that_makes_no_sense_is_refused(harness: Arc<dyn Harness>) {
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
