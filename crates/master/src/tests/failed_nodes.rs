//! Nodes that fail: when the engines on them are replaced, by this master's own clock.

use std::sync::Arc;
use std::time::Duration;

use model::engine_name::EngineName;
use model::observation::ObservedNode;

use super::fake::{Fake, Fault};
use crate::tick::{Reconciler, Ticked};

/// So many engines that serve, each on its own node, with one node more.
async fn serving(count: u32) -> (Arc<Fake>, Reconciler) {
    let fake = Fake::with_engines_wanted(count);
    let mut reconciler = fake.reconciler(1);
    fake.settle(&mut reconciler).await;
    fake.pass(Duration::from_mins(10));
    for (number, instance) in fake.state().simulation.observed.instances.iter_mut().enumerate() {
        instance.node = Some(format!("n-{number}"));
    }
    fake.state().list.nodes = Some((0..=count).map(|number| node(&format!("n-{number}"))).collect());
    reconciler.tick(&*fake).await;
    (fake, reconciler)
}

fn node(name: &str) -> ObservedNode {
    let (cpu_millis, memory_bytes) = (64_000, 1 << 40);
    ObservedNode { name: name.to_owned(), cpu_millis, memory_bytes, ready: true, open: true, ..ObservedNode::default() }
}

/// The node is not ready from now on, and its engine has lost its registration.
fn fail(fake: &Fake, number: usize) {
    let mut state = fake.state();
    let node = &mut state.list.nodes.as_mut().unwrap()[number];
    (node.ready, node.open) = (false, false);
    let name = node.name.clone();
    let observed = &mut state.simulation.observed;
    let there = observed.instances.iter().filter(|instance| instance.node.as_ref() == Some(&name));
    let there: Vec<EngineName> = there.map(|instance| instance.name.clone()).collect();
    observed.registrations.retain(|registration| !there.contains(&registration.engine));
}

fn instances(fake: &Fake) -> usize {
    fake.state().simulation.observed.instances.len()
}

fn due(ticked: &Ticked) -> Option<Duration> {
    match ticked {
        Ticked::Done { due, .. } => *due,
        Ticked::Stopped(reason) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn an_engine_is_replaced_two_ticks_after_the_grace_of_its_node() {
    let (fake, mut reconciler) = serving(1).await;
    let old = fake.present(0);
    fail(&fake, 0);
    let ticked = reconciler.tick(&*fake).await;
    assert_eq!(due(&ticked), Some(Duration::from_secs(5)), "the next tick comes with the evidence");
    fake.pass(Duration::from_secs(4));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.present(0), old);
    fake.pass(Duration::from_secs(1));
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    assert_ne!(fake.present(0), old);
    assert_eq!(instances(&fake), 2, "the old pod remains");
    let row = {
        let state = fake.state();
        let rows: Vec<_> =
            state.journal.publications().iter().flat_map(|report| report.engines.iter().cloned()).collect();
        rows.into_iter().rfind(|row| row.name == old).unwrap()
    };
    let shown = "node \"n-0\" has not been ready for 5.0 s; waits for replacement: ";
    assert!(row.reason.as_ref().unwrap().starts_with(shown), "{:?}", row.reason);
    assert_eq!(row.node.as_deref(), Some("n-0"));
}

#[tokio::test]
async fn a_slow_read_after_the_observation_does_not_count_as_time_of_a_node() {
    let (fake, mut reconciler) = serving(1).await;
    let old = fake.present(0);
    fail(&fake, 0);
    reconciler.tick(&*fake).await;
    let passes = Fault::before(|state| state.simulation.advance(Duration::from_secs(5)));
    fake.script("database: snapshot", passes);
    reconciler.tick(&*fake).await;
    assert_eq!(fake.present(0), old, "the node may have returned since it was observed");
    reconciler.tick(&*fake).await;
    reconciler.tick(&*fake).await;
    assert_ne!(fake.present(0), old);
}

#[tokio::test]
async fn a_new_master_measures_the_time_of_a_node_itself() {
    let (fake, mut reconciler) = serving(1).await;
    let old = fake.present(0);
    fail(&fake, 0);
    reconciler.tick(&*fake).await;
    fake.pass(Duration::from_mins(1));
    let mut next = fake.reconciler(1);
    next.tick(&*fake).await;
    fake.pass(Duration::from_secs(9));
    next.tick(&*fake).await;
    assert_eq!(fake.present(0), old, "it does not know for one session timeout which engines are registered");
    fake.pass(Duration::from_secs(1));
    next.tick(&*fake).await;
    assert_ne!(fake.present(0), old);
}

#[tokio::test]
async fn a_node_that_no_longer_exists_has_failed_and_unread_nodes_have_not() {
    let (fake, mut reconciler) = serving(1).await;
    let old = fake.present(0);
    fail(&fake, 0);
    for unread in [None, Some(Vec::new())] {
        let known = std::mem::replace(&mut fake.state().list.nodes, unread);
        for _ in 0..3 {
            fake.pass(Duration::from_secs(9));
            reconciler.tick(&*fake).await;
        }
        assert_eq!(fake.present(0), old);
        fake.state().list.nodes = known;
    }
    fake.state().list.nodes = Some(vec![node("n-1")]);
    reconciler.tick(&*fake).await;
    fake.pass(Duration::from_secs(5));
    reconciler.tick(&*fake).await;
    assert_ne!(fake.present(0), old);
}

#[tokio::test]
async fn the_master_reports_that_most_nodes_have_failed_and_replaces_nothing() {
    let (fake, mut reconciler) = serving(4).await;
    let before: Vec<EngineName> = (0..4).map(|ordinal| fake.present(ordinal)).collect();
    for number in 0..3 {
        fail(&fake, number);
    }
    for _ in 0..3 {
        reconciler.tick(&*fake).await;
        fake.pass(Duration::from_secs(10));
    }
    let now: Vec<EngineName> = (0..4).map(|ordinal| fake.present(ordinal)).collect();
    assert_eq!((&now, instances(&fake)), (&before, 4));
    let waits_for = fake.state().journal.publications().last().unwrap().waits_for.clone();
    let expected = "3 of 4 nodes with engines are not ready: no engine is replaced because of its node";
    assert_eq!(waits_for.as_deref(), Some(expected));
    fake.state().list.nodes.as_mut().unwrap()[0].ready = true;
    reconciler.tick(&*fake).await;
    assert_eq!(fake.present(1), before[1], "the others may return as well: their time starts again");
    fake.pass(Duration::from_secs(5));
    reconciler.tick(&*fake).await;
    assert_eq!(fake.state().journal.publications().last().unwrap().waits_for, None);
    assert_eq!(fake.present(0), before[0]);
    assert!(fake.present(1) != before[1] && fake.present(2) != before[2], "the engines of the others are replaced");
}
