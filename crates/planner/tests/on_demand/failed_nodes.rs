//! Engines on demand whose node fails: their sessions may wait for another engine before the node counts as failed.

use std::collections::BTreeMap;
use std::time::Duration;

use model::demand::ScalingGroup;
use model::engine_name::EngineName;
use planner::{Action, UnreadyNode};

use super::cluster::Cluster;
use super::cluster::pools::tick;
use super::{changes, on_demand, register, settle, slots, wait};

/// A cluster whose only engine has lost its node. Its four sessions have noticed that at once and wait for another engine, which
/// exists and is about to register. Returns both.
fn noticed_early() -> (Cluster, EngineName, EngineName) {
    let mut cluster = on_demand(&[("sessions", "4")]);
    wait(&mut cluster, "t_a", 4);
    settle(&mut cluster);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    settle(&mut cluster);
    let lost = slots(&cluster)[0].engine();
    let observed = &mut cluster.simulation.observed;
    observed.instances.iter_mut().for_each(|instance| instance.node = Some("n-1".to_owned()));
    observed.registrations.clear();
    observed.loads.clear();
    wait(&mut cluster, "t_a", 4);
    assert_eq!(changes(&tick(&mut cluster)), (1, 0, 0), "what is not registered counts as full");
    settle(&mut cluster);
    let coming = slots(&cluster)[1].engine();
    assert!(cluster.simulation.about_to_register().contains(&coming));
    // So many sessions wait as ever did in the last while.
    let group = ScalingGroup::of(&slots(&cluster)[0]);
    cluster.simulation.observed.scaling.recent_demand = Some(BTreeMap::from([(group, 4)]));
    (cluster, lost, coming)
}

fn fail_node(cluster: &mut Cluster) {
    let unready = UnreadyNode { lasted: Duration::from_mins(1), is_absent: false };
    cluster.simulation.observed.unready.insert("n-1".to_owned(), unready);
}

#[test]
fn the_engine_on_its_way_stays_and_the_slot_of_the_failed_node_goes() {
    let (mut cluster, lost, coming) = noticed_early();
    fail_node(&mut cluster);
    let plan = tick(&mut cluster);
    let draws = plan.decisions().filter(|decision| matches!(decision.action, Action::DrawIncarnation { .. }));
    assert_eq!(draws.count(), 1, "slot 0 is given another engine than {lost}");
    assert_eq!(changes(&plan), (0, 0, 0), "{coming} is about to register");
    // The successor is not needed, and is never created.
    let plan = tick(&mut cluster);
    assert_eq!(changes(&plan), (0, 1, 0));
    assert!(!plan.decisions().any(|decision| matches!(decision.action, Action::CreateEngine(_))));
    assert_eq!(slots(&cluster).iter().map(|slot| slot.engine()).collect::<Vec<_>>(), [coming]);
    register(&mut cluster, 4);
    wait(&mut cluster, "t_a", 0);
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
}

#[test]
fn both_stay_while_sessions_need_both() {
    let (mut cluster, _, coming) = noticed_early();
    wait(&mut cluster, "t_a", 5);
    fail_node(&mut cluster);
    assert_eq!(changes(&tick(&mut cluster)), (0, 0, 0));
    assert_eq!(changes(&settle(&mut cluster)), (0, 0, 0));
    assert_eq!((slots(&cluster).len(), slots(&cluster)[1].engine()), (2, coming));
    let created = cluster.simulation.about_to_register();
    assert!(created.contains(&slots(&cluster)[0].engine()), "the successor, too: {created:?}");
}
