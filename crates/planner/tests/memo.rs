//! What holds for many engines at once: when it changes, a plan that starts from the last one looks at all of them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::collections::BTreeSet;

use planner::{Memo, Plan};
use play::Play;

fn prepared() -> Play {
    let mut play = Play::new();
    for change in [
        Play::unit("uc_1", &[("min", "3")].into()),
        Play::pool("rp_1", &[("units", "uc_1"), ("labels", "zone:a")].into()),
        Play::tenant("t_1", &[("pools", "rp_1")].into()),
    ] {
        play.settle(|_, _| {});
        play.commit(&play.change_to(change)).unwrap();
    }
    play.settle(|_, _| {});
    let observed = &mut play.world.observed;
    for pod in &mut observed.pods {
        pod.node = Some("node-1".to_owned());
    }
    observed.nodes = [("node-1".to_owned(), [("zone".to_owned(), "a".to_owned())].into())].into();
    play
}

/// The plan by what was kept, which is the plan.
fn planned(memo: &mut Memo, play: &Play) -> Plan {
    let mut compared = memo.compare(play.world.desired.clone(), play.world.observed.clone());
    let plan = memo.plan(&mut compared);
    memo.keep(compared);
    assert_eq!(plan, planner::plan(&play.world.desired, &play.world.observed));
    plan
}

#[test]
fn nothing_is_decided_about_what_is_as_it_was_and_its_row_is_the_same_one() {
    let (play, mut memo) = (prepared(), Memo::default());
    let first = planned(&mut memo, &play);
    let second = planned(&mut memo, &play);
    assert_eq!((first.chains.len(), first.report.len()), (0, 3));
    let same = first.report.iter().zip(&second.report).all(|(one, other)| std::sync::Arc::ptr_eq(one, other));
    assert!(same, "nobody has to compare their texts");
}

#[test]
fn a_node_that_got_another_label_is_left_by_all_engines_that_are_on_it() {
    let (mut play, mut memo) = (prepared(), Memo::default());
    assert!(planned(&mut memo, &play).chains.is_empty());
    play.world.observed.nodes.get_mut("node-1").unwrap().insert("zone".to_owned(), "b".to_owned());
    assert_eq!(planned(&mut memo, &play).chains.len(), 3);
}

#[test]
fn an_altered_unit_reaches_all_of_its_engines() {
    let (mut play, mut memo) = (prepared(), Memo::default());
    assert!(planned(&mut memo, &play).chains.is_empty());
    play.commit(&play.change_to(Play::unit("uc_1", &[("memory", "2G")].into()))).unwrap();
    let plan = planned(&mut memo, &play);
    let waiting: BTreeSet<_> = plan.waits.iter().filter_map(|wait| wait.slot.clone()).collect();
    assert_eq!(waiting.len(), 3, "one slot's turn, and two that wait for theirs");
}
