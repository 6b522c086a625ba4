//! The drain: begun once, never taken back; over when nothing is left or the grace has passed.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::info;

use super::sessions::Sessions;
use super::settings::{ASK_INTERVAL, RESULTS_ASKED_EACH};

/// How often the deadline is looked at while statements still run.
const LOOK: Duration = Duration::from_millis(200);

/// Whether the engine drains, shared by all connections.
#[derive(Clone)]
pub(super) struct Drain {
    clock: SharedClock,
    state: Arc<Mutex<State>>,
    begun: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    draining: bool,
    /// When the grace is over, by the clock that counts suspension; `None`: somebody else has the deadline.
    until: Option<Duration>,
}

impl Drain {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self { clock, state: Arc::default(), begun: watch::Sender::new(false) }
    }

    /// Begins the drain. The grace counts from now; a later, shorter one shortens it.
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

    /// Whether it was begun.
    pub(super) fn is_draining(&self) -> bool {
        self.state.lock().draining
    }

    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.until.is_some_and(|until| self.clock.boottime() >= until)
    }

    /// Waits until nothing is left, or the grace has passed. Call it only after [`Drain::begin`].
    pub(super) async fn finished(&self, sessions: &Sessions) {
        let mut changes = sessions.changes();
        let asking = async {
            for round in (0..RESULTS_ASKED_EACH).cycle() {
                tokio::time::sleep(ASK_INTERVAL).await;
                sessions.ask_what_is_left(round == 0).await;
            }
        };
        tokio::pin!(asking);
        loop {
            changes.mark_unchanged();
            if sessions.nothing_left() {
                info!("nothing is left to finish");
                return;
            }
            if self.is_over() {
                info!(sessions = sessions.count(), running = sessions.running(), "the grace is over");
                return;
            }
            tokio::select! {
                _ = tokio::time::timeout(LOOK, changes.changed()) => {}
                () = &mut asking => {}
            }
        }
    }
}
