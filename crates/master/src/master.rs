//! A candidate's life: stand for election, serve a term, stand again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coordination::{Election, ZkErrorKind};
use model::clock::SharedClock;
use model::credential::ClusterSecret;
use model::log_throttle::LogThrottle;
use model::number::Epoch;
use orchestrator::Orchestrator;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::ctx::{ControllerCtx, Deps, Launcher, LiveCtx};
use crate::settings::Settings;
use crate::term;

/// Between two tries to stand for election after one failed.
const ELECTION_PAUSE: Duration = Duration::from_secs(1);

/// What a master acts with.
pub struct Parts {
    /// How to reach ZooKeeper; the identity must be the master's.
    pub coordination: coordination::SessionSettings,
    /// The cluster secret, for the keys of metadata agents and engine agents.
    pub secret: ClusterSecret,
    /// Where engines run.
    pub orchestrator: Arc<dyn Orchestrator>,
    /// How they are launched.
    pub launcher: Arc<dyn Launcher>,
    /// What time it is.
    pub clock: SharedClock,
    /// Who this candidate is, for people.
    pub holder: String,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// The state of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CandidateState {
    /// It does not stand for election, or is shut down.
    Idle,
    /// It waits for the lock.
    Candidate,
    /// It has the lock, and no epoch yet.
    Elected,
    /// It acts as master.
    Acting {
        epoch: Epoch,
        /// The number of completed ticks of this term.
        ticks: u64,
    },
}

/// A candidate. It works in the background until it is shut down or dropped.
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
        let limit = settings.effect_deadline();
        let task = settings.candidate.then(|| tokio::spawn(live(settings, parts, sender, stop.clone())));
        Self { state, stop, task, limit }
    }

    /// What it is just now.
    pub fn state(&self) -> watch::Receiver<CandidateState> {
        self.state.clone()
    }

    /// Gives up the lock and ends. What was being done is broken off: another tick, here or elsewhere, sees how far it
    /// came. Engines live on.
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

async fn live(settings: Settings, parts: Parts, state: watch::Sender<CandidateState>, stop: CancellationToken) {
    let election = Election::new(parts.coordination.clone(), Arc::clone(&parts.clock), parts.holder.clone());
    let clock = Arc::clone(&parts.clock);
    let deps = Arc::new(Deps::new(&settings, &parts));
    // What repeats every second until an operator changes the configuration is logged once a minute.
    let mut not_standing = LogThrottle::default();
    while !stop.is_cancelled() {
        let _ = state.send(CandidateState::Candidate);
        let won = tokio::select! {
            won = election.win() => won,
            () = stop.cancelled() => break,
        };
        match won {
            Ok(lock) => {
                if let Some(times) = not_standing.clear() {
                    tracing::info!(times, "stood for election again");
                }
                let ctx = Arc::new(LiveCtx::new(Arc::clone(&deps), lock));
                let live: Arc<dyn ControllerCtx> = Arc::clone(&ctx) as Arc<dyn ControllerCtx>;
                let reason = term::serve(live, &settings, &state, &stop).await;
                tracing::info!(reason, "term ended");
                ctx.give_up().await;
            }
            Err(error) => {
                if error.kind() == ZkErrorKind::Lost {
                    // Nothing is wrong with that: it takes another place.
                    tracing::info!(%error, "the place in the queue for the lock is lost");
                } else if let Some(times) = not_standing.hit(clock.boottime()) {
                    tracing::warn!(%error, times, "can't stand for election");
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
