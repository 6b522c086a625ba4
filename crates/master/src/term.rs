//! A term: raises the epoch after the lock is won, then ticks until the lease is lost.

use std::sync::Arc;
use std::time::Duration;

use model::log_throttle::LogThrottle;
use model::number::Epoch;
use model::pace::Pace;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::candidate::CandidateState;
use crate::ctx::{ControllerCtx, Failure, LeaseState};
use crate::failpoints;
use crate::settings::Settings;
use crate::tick::{Reconciler, Ticked};
use crate::wait_log::WaitLog;

/// The least time from the beginning of a tick to that of the next one, of many: all events in between are one wake-up. The ticks that
/// a single event causes follow without it.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// After a tick the master rests for at least one part in so many of the tick's time: a busy master leaves that to what else runs in
/// this process and in the database, such as the statements of clients.
const REST_PART: u32 = 10;
/// The pause before another attempt to raise the epoch, and between two checks of a lease in doubt.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long the current call may take after a shutdown request. The successor must not wait for a server that does not
/// answer: a cancelled effect is rejected where it takes effect, or observed by the next tick.
const SHUTDOWN_PATIENCE: Duration = Duration::from_millis(100);

/// Acts as master until the lease is lost or `shutdown` is cancelled. Returns why it ended.
pub(crate) async fn serve(
    ctx: Arc<dyn ControllerCtx>,
    settings: &Settings,
    state: &watch::Sender<CandidateState>,
    shutdown: &CancellationToken,
) -> String {
    model::failpoint!(failpoints::LOCK_WON);
    let _ = state.send(CandidateState::Elected);
    let patience = async {
        shutdown.cancelled().await;
        sleep(SHUTDOWN_PATIENCE).await;
    };
    tokio::select! {
        biased;
        reason = act(&*ctx, settings, state, shutdown) => reason,
        () = patience => "shutting down; the current call was cancelled".to_owned(),
    }
}

async fn act(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    state: &watch::Sender<CandidateState>,
    shutdown: &CancellationToken,
) -> String {
    let Some(epoch) = raise(ctx, settings, shutdown).await else { return "the lock is lost".to_owned() };
    tracing::info!(epoch = epoch.get(), "epoch raised");
    let mut reconciler = Reconciler::new(settings.clone(), epoch, ctx.clock(), shutdown.clone());
    let mut ticks = 0_u64;
    let mut pace = Pace::new(MIN_INTERVAL);
    let (mut stopped, mut raised_again) = (LogThrottle::default(), LogThrottle::default());
    loop {
        if shutdown.is_cancelled() {
            return "shutting down".to_owned();
        }
        match ctx.lease().state() {
            LeaseState::Valid => {}
            LeaseState::Expired => return "the session has expired".to_owned(),
            LeaseState::InDoubt => {
                sleep(RETRY_PAUSE).await;
                reconciler.distrust_registry(ctx.clock());
                continue;
            }
        }
        let begun = ctx.clock();
        match reconciler.tick(ctx).await {
            Ticked::Done { progress, due } => {
                ticks += 1;
                if let Some(times) = stopped.clear().filter(|times| *times > 1) {
                    tracing::info!(epoch = reconciler.epoch().get(), times, "ticks complete again");
                }
                raised_again.clear();
                let _ = state.send(CandidateState::Acting { epoch: reconciler.epoch(), ticks });
                tokio::select! {
                    () = pause(ctx, settings, (&mut pace, begun), progress, due) => {}
                    () = shutdown.cancelled() => {}
                }
            }
            Ticked::Stopped(reason) => {
                if let Some(times) = stopped.hit(ctx.clock()) {
                    tracing::info!(epoch = reconciler.epoch().get(), reason, times, "tick stopped");
                }
                // A master that is rejected repeatedly must not retry at full speed.
                sleep(RETRY_PAUSE).await;
                if ctx.lease().state().is_valid() && !shutdown.is_cancelled() {
                    let Some(epoch) = raise(ctx, settings, shutdown).await else { return reason };
                    // Four times each second until it is accepted, if the database is behind the orchestrator.
                    if let Some(times) = raised_again.hit(ctx.clock()) {
                        tracing::info!(epoch = epoch.get(), times, "epoch raised again");
                    }
                    reconciler.set_epoch(epoch);
                }
            }
        }
    }
}

/// Waits for the next tick after one that began at `begun`: a wake-up, the timer, or the next due decision.
async fn pause(
    ctx: &dyn ControllerCtx,
    settings: &Settings,
    (pace, begun): (&mut Pace, Duration),
    progress: bool,
    due: Option<Duration>,
) {
    sleep(rest(pace, begun, ctx.clock())).await;
    if progress {
        return;
    }
    let time = due.map_or(settings.tick, |due| due.min(settings.tick));
    let _ = timeout(time, ctx.wait()).await;
}

/// The time from `now` until the next tick may begin after one that began at `begun`.
fn rest(pace: &mut Pace, begun: Duration, now: Duration) -> Duration {
    pace.wait(begun, now).max(now.saturating_sub(begun) / REST_PART)
}

/// Raises the epoch in the database, which a master does before anything else. Retries until it succeeds or the lock is
/// lost.
async fn raise(ctx: &dyn ControllerCtx, settings: &Settings, shutdown: &CancellationToken) -> Option<Epoch> {
    let mut wait_log = WaitLog::default();
    loop {
        let lease = ctx.lease();
        if lease.state() == LeaseState::Expired || shutdown.is_cancelled() {
            return None;
        }
        if lease.state().is_valid() {
            match timeout(settings.effect_deadline, lease.raise_epoch()).await {
                Ok(Ok(master)) => {
                    model::failpoint!(failpoints::EPOCH_RAISED);
                    wait_log.clear(ctx.clock());
                    return Some(master.epoch);
                }
                Ok(Err(Failure::Lost(_))) => return None,
                // Another master has raised it: the next attempt checks the lock first.
                Ok(Err(Failure::Deposed(_))) => {}
                Ok(Err(failure)) => wait_log.hit(ctx.clock(), &failure.to_string()),
                Err(_) => wait_log.hit(ctx.clock(), "an answer about the epoch"),
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_many_begin_at_intervals_and_long_ones_are_followed_by_a_part_of_their_time() {
        let mut pace = Pace::new(MIN_INTERVAL);
        let mut begun = Duration::from_secs(10);
        let mut rest_after = |took_ms: u64| {
            let now = begun + Duration::from_millis(took_ms);
            let rest = rest(&mut pace, begun, now);
            begun = now + rest;
            rest.as_millis()
        };
        assert_eq!(
            [10; 5].map(&mut rest_after),
            [1, 1, 40, 40, 40],
            "those that a single event causes have no interval"
        );
        assert_eq!([45, 200].map(rest_after), [5, 20]);
    }
}
