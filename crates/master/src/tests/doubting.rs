//! What a tick does when the list has what is not there.

use std::time::Duration;

use super::fake::Fake;
use crate::tick::Ticked;

fn done(ticked: &Ticked) -> bool {
    match ticked {
        Ticked::Done { progress, .. } => *progress,
        Ticked::Stopped(reason) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn an_engine_that_is_gone_without_any_news_of_it_is_asked_for_and_replaced() {
    let fake = Fake::with_engines_wanted(1);
    let mut driver = fake.driver(1);
    fake.settle(&mut driver).await;
    let engine = fake.present(0);
    {
        let mut state = fake.state();
        state.ghosts = std::mem::take(&mut state.world.observed.pods);
        state.world.observed.lives.clear();
        state.effects.clear();
        state.asked = 0;
    }
    assert!(!done(&driver.tick(&*fake).await));
    assert_eq!(fake.state().asked, 0, "a moment without a registration is nothing");
    fake.pass(Duration::from_mins(1));
    assert!(done(&driver.tick(&*fake).await));
    assert_eq!(fake.state().asked, 1);
    assert_eq!(fake.state().effects[0], format!("record end {engine}"));
    fake.settle(&mut driver).await;
    assert_ne!(fake.present(0), engine);
    assert_eq!(fake.state().world.observed.lives.len(), 1);
}

#[tokio::test]
async fn an_engine_that_only_lost_its_registration_is_asked_for_and_stays() {
    let fake = Fake::with_engines_wanted(1);
    let mut driver = fake.driver(1);
    fake.settle(&mut driver).await;
    let engine = fake.present(0);
    fake.state().world.observed.lives.clear();
    fake.state().effects.clear();
    fake.state().asked = 0;
    for _ in 0..3 {
        assert!(!done(&driver.tick(&*fake).await));
        fake.pass(Duration::from_mins(1));
    }
    let state = fake.state();
    assert!(state.effects.is_empty(), "{:?}", state.effects);
    assert_eq!(state.asked, 2);
    drop(state);
    assert_eq!(fake.present(0), engine);
}

#[tokio::test]
async fn a_pod_on_its_way_out_whose_end_nobody_told_is_asked_for_and_cleared_away() {
    let fake = Fake::with_engines_wanted(1);
    let mut driver = fake.driver(1);
    fake.settle(&mut driver).await;
    let engine = fake.present(0);
    {
        let mut state = fake.state();
        state.ghosts = std::mem::take(&mut state.world.observed.pods);
        state.ghosts[0].phase = model::engine_state::Phase::Terminating;
        state.world.observed.lives.clear();
    }
    fake.settle(&mut driver).await;
    assert!(fake.state().ghosts.is_empty(), "it was asked for");
    assert_ne!(fake.present(0), engine);
}
