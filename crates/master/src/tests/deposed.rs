//! Deposed masters: they stop, and change nothing.

use std::sync::Arc;
use std::time::Duration;

use model::Epoch;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault, memory, no_agent, settings};
use crate::candidate::CandidateState;
use crate::ctx::{ControllerCtx, Failure, LeaseState};
use crate::settings::Settings;
use crate::term;
use crate::tick::Ticked;

fn quick() -> Settings {
    Settings { tick: Duration::from_millis(10), ..settings() }
}

#[tokio::test]
async fn a_tick_that_reads_an_epoch_not_its_own_does_nothing() {
    let fake = Fake::with_engines_wanted(2);
    fake.state().master().epoch = Epoch(5);
    assert!(matches!(fake.reconciler(4).tick(&*fake).await, Ticked::Stopped(_)));
    assert!(fake.state().journal.effects().is_empty() && fake.state().journal.publications().is_empty());
}

#[tokio::test]
async fn a_master_that_is_deposed_in_the_middle_of_a_plan_stops_there() {
    let fake = Fake::with_engines_wanted(3);
    fake.settle(&mut fake.reconciler(1)).await;
    fake.commit("a-1", &memory(2));
    fake.state().journal.clear();
    fake.suspend_after(2);
    assert!(matches!(fake.reconciler(1).tick(&*fake).await, Ticked::Stopped(_)));
    assert_eq!(fake.state().journal.effects().len(), 2);
}

#[tokio::test]
async fn a_master_that_is_deposed_in_its_last_effect_reports_nothing() {
    let fake = Fake::with_engines_wanted(1);
    let total = fake.state().simulation.plan().decisions().count();
    fake.suspend_after(total);
    assert!(matches!(fake.reconciler(1).tick(&*fake).await, Ticked::Stopped(_)));
    let state = fake.state();
    assert_eq!((state.journal.effects().len(), state.journal.publications().len()), (total, 0));
}

#[tokio::test]
async fn a_master_suspended_after_reading_an_outcome_aborts_nothing() {
    let fake = Fake::new();
    // The agent's session is gone: the alteration is to be aborted at once.
    fake.create_node("a-1", 99);
    fake.script("database: outcome", Fault::after(|state| state.lease = LeaseState::InDoubt));
    assert!(matches!(fake.reconciler(1).tick(&*fake).await, Ticked::Stopped(_)));
    assert!(fake.state().journal.aborts().is_empty() && fake.state().zookeeper.alter.is_some());
}

#[tokio::test]
async fn nothing_is_sent_while_the_lease_is_in_doubt() {
    let fake = Fake::with_engines_wanted(1);
    fake.state().lease = LeaseState::InDoubt;
    assert!(matches!(fake.reconciler(1).tick(&*fake).await, Ticked::Stopped(_)));
    assert!(fake.state().journal.effects().is_empty());
}

async fn serve(
    fake: &Arc<Fake>,
    until: impl Fn(CandidateState) -> bool + Send + Sync + 'static,
) -> (CandidateState, CancellationToken) {
    let (sender, mut state) = watch::channel(CandidateState::Candidate);
    let stop = CancellationToken::new();
    let ctx: Arc<dyn ControllerCtx> = Arc::clone(fake) as Arc<dyn ControllerCtx>;
    let stopped = stop.clone();
    tokio::spawn(async move { term::serve(ctx, &quick(), &sender, &stopped).await });
    let reached = tokio::time::timeout(Duration::from_secs(10), state.wait_for(|state| until(*state))).await;
    let reached = *reached.unwrap().unwrap();
    (reached, stop)
}

#[tokio::test]
async fn a_term_raises_the_epoch_first_and_converges_without_a_wake_up() {
    let fake = Fake::with_engines_wanted(2);
    let waiting = Arc::clone(&fake);
    let (reached, stop) = serve(&fake, move |_| waiting.state().simulation.observed.instances.len() == 2).await;
    assert!(matches!(reached, CandidateState::Acting { epoch: Epoch(2), .. }), "{reached:?}");
    assert_eq!(fake.state().master().epoch, Epoch(2));
    stop.cancel();
}

#[tokio::test]
async fn a_master_with_the_lock_raises_an_epoch_that_another_raised() {
    let fake = Fake::with_engines_wanted(1);
    let (_, stop) = serve(&fake, |state| matches!(state, CandidateState::Acting { .. })).await;
    fake.state().master().epoch = Epoch(40);
    let waiting = Arc::clone(&fake);
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        while waiting.state().master().epoch < Epoch(41) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    seen.await.unwrap();
    stop.cancel();
}

#[tokio::test]
async fn a_master_that_does_not_hold_the_lock_any_more_steps_down() {
    let fake = Fake::with_engines_wanted(1);
    let (sender, _state) = watch::channel(CandidateState::Candidate);
    let ctx: Arc<dyn ControllerCtx> = Arc::clone(&fake) as Arc<dyn ControllerCtx>;
    let deposing = Arc::clone(&fake);
    let (settings, stop) = (quick(), CancellationToken::new());
    let term = term::serve(ctx, &settings, &sender, &stop);
    let deposed = async {
        while deposing.state().journal.publications().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let lost = Failure::Lost("another candidate has it".to_owned());
        deposing.script("database: raise epoch", Fault::Fails(lost));
        deposing.state().master().epoch = Epoch(9);
    };
    let (reason, ()) =
        tokio::time::timeout(Duration::from_secs(10), futures::future::join(term, deposed)).await.unwrap();
    assert!(reason.contains("deposed"), "{reason}");
    let effects = fake.state().journal.effects().len();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(fake.state().journal.effects().len(), effects);
}

#[tokio::test]
async fn without_a_metadata_agent_a_master_waits_for_its_epoch() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("database:", Fault::Fails(no_agent()));
    let (_, stop) = serve(&fake, |state| state == CandidateState::Elected).await;
    assert!(fake.state().journal.effects().is_empty());
    fake.recover();
    let waiting = Arc::clone(&fake);
    let seen = tokio::time::timeout(Duration::from_secs(10), async {
        while waiting.state().simulation.observed.instances.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    seen.await.unwrap();
    stop.cancel();
}
