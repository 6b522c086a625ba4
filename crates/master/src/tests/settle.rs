//! Settling of alterations, and the deletion of their node.

use std::time::Duration;

use model::alteration::{AlterationProgress, Outcome};

use super::fake::{Fake, Fault, agent, id, memory, no_agent};
use crate::ctx::Failure;
use crate::tick::Ticked;

#[tokio::test]
async fn an_alteration_in_doubt_has_a_grace_while_its_agent_lives() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    fake.pass(Duration::from_secs(29));
    reconciler.tick(&*fake).await;
    assert!(fake.state().journal.aborts().is_empty() && fake.state().zookeeper.alter.is_some());
    let waits_for = fake.state().journal.publications().last().unwrap().waits_for.clone().unwrap();
    assert!(waits_for.contains("a-1"), "{waits_for}");
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    let state = fake.state();
    assert_eq!(state.journal.aborts().len(), 1);
    assert_eq!(state.journal.aborts()[0].decided_by, "master 1");
    assert!(state.journal.aborts()[0].reason.contains("did not decide"), "{}", state.journal.aborts()[0].reason);
    assert!(state.zookeeper.alter.is_none());
}

#[tokio::test]
async fn the_grace_counts_from_when_this_master_first_saw_the_alteration() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    fake.reconciler(1).tick(&*fake).await;
    fake.pass(Duration::from_secs(25));
    let mut next = fake.reconciler(1);
    next.tick(&*fake).await;
    fake.pass(Duration::from_secs(25));
    next.tick(&*fake).await;
    assert!(fake.state().journal.aborts().is_empty());
}

#[tokio::test]
async fn an_alteration_in_doubt_is_aborted_when_its_agent_is_gone() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    fake.state().zookeeper.agents = vec![agent(8)];
    fake.reconciler(1).tick(&*fake).await;
    let state = fake.state();
    assert!(state.journal.aborts()[0].reason.contains("gone"), "{}", state.journal.aborts()[0].reason);
    assert_eq!(state.journal.aborts()[0].statement, "ALTER RESOURCE UNIT uc_1 SET DRIVER_MEMORY '2G'");
    assert_eq!(state.journal.aborts()[0].source.client.as_deref(), Some("192.0.2.7"));
    assert!(state.zookeeper.alter.is_none());
}

#[tokio::test]
async fn an_abort_refused_for_its_content_is_repeated_without_it() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    fake.state().zookeeper.agents = vec![agent(8)];
    let unfit = Failure::Refused("the statement has a character that cannot be stored".to_owned());
    fake.script("abort a-1 ALTER", Fault::Fails(unfit));
    fake.reconciler(1).tick(&*fake).await;
    let state = fake.state();
    assert_eq!(state.journal.aborts().len(), 2);
    assert_eq!((state.journal.aborts()[1].statement.as_str(), &state.journal.aborts()[1].object), ("", &None));
    assert!(state.zookeeper.alter.is_none(), "the node goes, so that others can alter");
}

#[tokio::test]
async fn an_earlier_commit_wins_over_the_abort_and_keeps_its_node_for_one_tick() {
    let fake = Fake::with_engines_wanted(1);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.create_node("a-1", 99);
    fake.commit("a-1", &memory(2));
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    {
        let state = fake.state();
        assert!(state.journal.aborts().is_empty(), "a decided one is not aborted");
        assert_eq!(state.records[&id("a-1")].progress, Some(AlterationProgress::Converging));
        assert!(state.zookeeper.alter.is_none(), "another alteration waits for one tick at most");
        let last = state.journal.effects().iter().rposition(|effect| effect.starts_with("create engine"));
        assert!(
            last < state.journal.effects().iter().position(|effect| effect == "delete alter node"),
            "{:?}",
            state.journal.effects()
        );
    }
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converged));
}

#[tokio::test]
async fn a_commit_between_reading_the_outcome_and_the_abort_stands() {
    let fake = Fake::with_engines_wanted(1);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.create_node("a-1", 99);
    fake.commit("a-1", &memory(2));
    fake.commit_late("a-1");
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.aborts().len(), 1, "it was tried");
    assert_eq!(fake.state().records[&id("a-1")].outcome, Outcome::Committed);
    assert!(fake.state().zookeeper.alter.is_none(), "this tick has acted on it");
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converged));
}

#[tokio::test]
async fn a_node_without_a_child_is_debris_and_goes() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    fake.state().zookeeper.alter.as_mut().unwrap().children.clear();
    fake.reconciler(1).tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_none() && fake.state().journal.aborts().is_empty());
}

#[tokio::test]
async fn unreadable_data_is_settled_like_any_other() {
    let fake = Fake::new();
    fake.create_node("a-1", 7);
    {
        let mut state = fake.state();
        let node = state.zookeeper.alter.as_mut().unwrap();
        node.content = Err("no JSON".to_owned());
        node.children[0].agent = None;
        node.children[0].session = None;
    }
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_some(), "it is unknown whether its agent is alive");
    fake.pass(Duration::from_secs(30));
    reconciler.tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_none());
    assert_eq!(fake.state().journal.aborts()[0].object, None);
}

#[tokio::test]
async fn without_a_metadata_agent_nothing_is_decided_and_the_node_stays() {
    let fake = Fake::new();
    fake.create_node("a-1", 99);
    fake.script("database:", Fault::Fails(no_agent()));
    let mut reconciler = fake.reconciler(1);
    for _ in 0..3 {
        assert_eq!(reconciler.tick(&*fake).await, Ticked::Done { progress: false, due: None });
        fake.pass(Duration::from_mins(1));
    }
    assert!(fake.state().zookeeper.alter.is_some() && fake.state().journal.aborts().is_empty());
    fake.recover();
    reconciler.tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_none());
}

#[tokio::test]
async fn a_converging_row_is_finished_without_its_node() {
    let fake = Fake::with_engines_wanted(2);
    fake.settle(&mut fake.reconciler(1)).await;
    assert!(fake.state().records.values().all(|record| record.progress == Some(AlterationProgress::Converged)));
    assert!(fake.state().journal.effects().iter().all(|effect| effect != "delete alter node"));
}

#[tokio::test]
async fn a_stalled_alteration_blocks_no_other_and_converges_later() {
    let fake = Fake::with_engines_wanted(1);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.create_node("a-1", 7);
    fake.commit("a-1", &memory(2));
    let broken = fake.present(0);
    let failure = Failure::Refused("no quota left".to_owned());
    fake.script(&format!("create engine {broken}"), Fault::Fails(failure));
    let mut reconciler = fake.reconciler(1);
    reconciler.tick(&*fake).await;
    assert!(fake.state().zookeeper.alter.is_none(), "after one tick it blocks no other");
    fake.pass(Duration::from_secs(59));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converging));
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Stalled));
    assert_eq!(fake.state().simulation.observed.registrations.len(), 1, "the old engine serves");
    fake.recover();
    fake.settle(&mut reconciler).await;
    assert_eq!(fake.state().records[&id("a-1")].progress, Some(AlterationProgress::Converged));
}
