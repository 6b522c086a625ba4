//! A candidate: stands for election, serves a term, and stands again.

use std::sync::Arc;
use std::time::Duration;

use coordination::{Election, ZkErrorKind};
use model::log_throttle::LogThrottle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::candidate::{CandidateState, Parts};
use crate::ctx::{ControllerCtx, Deps, LiveCtx};
use crate::settings::Settings;
use crate::term;

/// The pause after a failed attempt to stand for election.
const ELECTION_PAUSE: Duration = Duration::from_secs(1);

/// A candidate, which runs in the background until it is shut down or dropped.
#[derive(Debug)]
pub struct Master {
    state: watch::Receiver<CandidateState>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
    limit: Duration,
}

impl Master {
    /// Stands for election, if the settings say so. Returns at once.
    pub fn start(settings: Settings, parts: Parts) -> Self {
        let (sender, state) = watch::channel(CandidateState::Idle);
        let stop = CancellationToken::new();
        let limit = settings.effect_deadline;
        let task = settings.candidate.then(|| tokio::spawn(run(settings, parts, sender, stop.clone())));
        Self { state, stop, task, limit }
    }

    pub fn state(&self) -> watch::Receiver<CandidateState> {
        self.state.clone()
    }

    /// Gives up the lock and ends. The current call is cancelled; the next tick, here or elsewhere, observes its effect.
    /// Engines keep running.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        if let Some(mut task) = self.task.take()
            && timeout(self.limit, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

async fn run(settings: Settings, parts: Parts, state: watch::Sender<CandidateState>, stop: CancellationToken) {
    let election = Election::new(parts.coordination.clone(), Arc::clone(&parts.clock), parts.holder.clone());
    let clock = Arc::clone(&parts.clock);
    let deps = Arc::new(Deps::new(&settings, &parts));
    let mut failed_attempts = LogThrottle::default();
    while !stop.is_cancelled() {
        let _ = state.send(CandidateState::Candidate);
        let won = tokio::select! {
            won = election.win() => won,
            () = stop.cancelled() => break,
        };
        match won {
            Ok(lock) => {
                if let Some(times) = failed_attempts.clear() {
                    tracing::info!(times, "stood for election again");
                }
                let ctx = Arc::new(LiveCtx::new(Arc::clone(&deps), lock));
                let boundary = Arc::clone(&ctx) as Arc<dyn ControllerCtx>;
                let reason = term::serve(boundary, &settings, &state, &stop).await;
                tracing::info!(reason, "term ended");
                ctx.give_up().await;
            }
            Err(error) => {
                if error.kind() == ZkErrorKind::Lost {
                    // Normal: the candidate joins the queue again.
                    tracing::info!(%error, "lost the position in the queue for the lock");
                } else if let Some(times) = failed_attempts.hit(clock.boottime()) {
                    tracing::warn!(%error, times, "could not stand for election");
                }
                tokio::select! {
                    () = sleep(ELECTION_PAUSE) => {}
                    () = stop.cancelled() => break,
                }
            }
        }
    }
    let _ = state.send(CandidateState::Idle);
}
