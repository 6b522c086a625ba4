//! The drain of an engine: never revoked; it ends when no work is left or the grace has passed.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::info;

use super::sessions::Sessions;
use super::settings::{POLL_INTERVAL, RESULTS_POLLED_EACH};

/// How often the deadline is checked while statements run.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Whether the engine drains, shared by all connections.
#[derive(Clone)]
pub(super) struct Drain {
    clock: SharedClock,
    state: Arc<Mutex<DrainState>>,
    begun: watch::Sender<bool>,
}

#[derive(Default)]
struct DrainState {
    draining: bool,
    /// The end of the grace, by the clock that counts suspension; `None`: the orchestrator has the deadline.
    until: Option<Duration>,
}

impl Drain {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, state: Arc::default(), begun: watch::Sender::new(false) }
    }

    /// Begins the drain. The grace starts now; a later call can only shorten it.
    pub(super) fn begin(&self, grace: Option<Duration>) {
        let mut state = self.state.lock();
        let until = grace.map(|grace| self.clock.boottime() + grace);
        state.until = match (state.until, until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        if !state.draining {
            info!(grace = grace.map(model::span::print), "draining");
        }
        state.draining = true;
        self.begun.send_replace(true);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.state.lock().draining
    }

    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.until.is_some_and(|until| self.clock.boottime() >= until)
    }

    /// Waits until no work is left or the grace has passed. Call it only after [`Drain::begin`].
    pub(super) async fn finished(&self, sessions: &Sessions) {
        let mut changes = sessions.changes();
        let polling = async {
            for round in (0..RESULTS_POLLED_EACH).cycle() {
                tokio::time::sleep(POLL_INTERVAL).await;
                sessions.poll_unfinished(round == 0).await;
            }
        };
        tokio::pin!(polling);
        loop {
            changes.mark_unchanged();
            if sessions.nothing_left() {
                info!("drained");
                return;
            }
            if self.is_over() {
                info!(sessions = sessions.count(), running = sessions.running(), "drain grace is over");
                return;
            }
            tokio::select! {
                _ = tokio::time::timeout(CHECK_INTERVAL, changes.changed()) => {}
                () = &mut polling => {}
            }
        }
    }
}
