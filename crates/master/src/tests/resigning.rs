//! Shutdown of a master: its successor does not wait for its calls in progress.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Fault, no_agent, settings};
use crate::candidate::CandidateState;
use crate::ctx::ControllerCtx;
use crate::settings::Settings;
use crate::term;

/// Far longer than a test may take: a test that waits for it fails.
const NEVER: Duration = Duration::from_mins(10);
const WITHIN: Duration = Duration::from_secs(10);

/// Serves until `arrived`, receives the order to end, and returns why the term ended.
async fn resigned(fake: &Arc<Fake>, arrived: impl Fn(&Fake) -> bool) -> String {
    let settings = Settings { effect_deadline: NEVER, ..settings() };
    let (sender, _state) = watch::channel(CandidateState::Candidate);
    let stop = CancellationToken::new();
    let ctx: Arc<dyn ControllerCtx> = Arc::clone(fake) as Arc<dyn ControllerCtx>;
    let term = term::serve(ctx, &settings, &sender, &stop);
    let ending = async {
        while !arrived(fake) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    timeout(WITHIN, futures::future::join(term, ending)).await.unwrap().0
}

#[tokio::test]
async fn an_effect_that_never_answers_does_not_keep_the_lock() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("create engine", Fault::Hangs);
    let begun = |fake: &Fake| fake.state().journal.effects().iter().any(|effect| effect.contains("create permit"));
    let reason = resigned(&fake, begun).await;
    assert!(reason.contains("cancelled"), "{reason}");
}

#[tokio::test]
async fn a_master_that_waits_for_a_metadata_agent_ends_at_once() {
    let fake = Fake::with_engines_wanted(1);
    fake.script("database:", Fault::Fails(no_agent()));
    let reason = resigned(&fake, |_| true).await;
    assert!(fake.state().journal.effects().is_empty(), "{reason}");
}
