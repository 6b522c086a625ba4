//! A cache of the issuer's keys, which one task refreshes: after the refresh interval and, at most every ten seconds, for a token whose
//! key is not known.
//!
//! Invariants: at most one reading runs at a time, and it is no login's, so that a client that leaves does not end it; a login with a
//! known key never waits. Keys are used for a day while they cannot be read again. A stale caller uses a key that the issuer withdrew
//! since the last reading.

use std::sync::Arc;
use std::time::Duration;

use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::fetch::{self, DEADLINE};
use super::key_set::{Key, KeySet};
use super::settings::KeyLocation;
use super::token::{Header, Rejection};

/// The least time between two readings.
const PAUSE: Duration = Duration::from_secs(10);
/// How long keys are used that cannot be read again.
const MAX_AGE: Duration = Duration::from_hours(24);
/// How long a login waits for a reading: one may have just begun.
const PATIENCE: Duration = DEADLINE.saturating_add(Duration::from_secs(1));

/// The keys as they were read last.
pub(super) struct KeySource {
    state: watch::Receiver<State>,
    /// Notified by a login whose key is not known.
    missed: Arc<Notify>,
    clock: SharedClock,
    _task: AbortOnDropHandle<()>,
}

/// Times are those since boot.
#[derive(Debug, Default)]
struct State {
    keys: KeySet,
    /// When they were read.
    read_at: Option<Duration>,
    /// The end of the last reading, failed ones included.
    tried_at: Option<Duration>,
    /// Whether the last reading failed.
    has_failed: bool,
}

impl KeySource {
    pub fn new(location: KeyLocation, refresh: Duration, clock: SharedClock) -> Self {
        let (sender, state) = watch::channel(State::default());
        let missed = Arc::new(Notify::new());
        let task = tokio::spawn(keep_reading(location, refresh, sender, Arc::clone(&missed), clock.clone()));
        Self { state, missed, clock, _task: AbortOnDropHandle::new(task) }
    }

    /// The key that a token needs. Waits for another reading if there is none.
    pub async fn key(&self, header: &Header) -> Result<Key, Rejection> {
        let mut state = self.state.clone();
        let may_be_read = {
            let seen = state.borrow_and_update();
            if let Some(key) = self.find(&seen, header) {
                return Ok(key);
            }
            seen.may_be_read_at(self.clock.boottime())
        };
        if may_be_read {
            self.missed.notify_one();
            // On a time-out the last reading decides.
            let _ = timeout(PATIENCE, state.changed()).await;
        }
        let current = self.state.borrow();
        match self.find(&current, header) {
            Some(key) => Ok(key),
            None if current.has_failed || current.read_at.is_none() => Err(Rejection::NoKeys),
            None => Err(Rejection::UnknownKey),
        }
    }

    fn find(&self, state: &State, header: &Header) -> Option<Key> {
        let now = self.clock.boottime();
        state.read_at.filter(|at| now.saturating_sub(*at) < MAX_AGE)?;
        state.keys.find(header.key_id.as_deref(), header.algorithm).cloned()
    }
}

impl State {
    fn may_be_read_at(&self, now: Duration) -> bool {
        self.tried_at.is_none_or(|at| now.saturating_sub(at) >= PAUSE)
    }
}

/// Reads the keys until the task is aborted.
async fn keep_reading(
    location: KeyLocation,
    refresh: Duration,
    state: watch::Sender<State>,
    missed: Arc<Notify>,
    clock: SharedClock,
) {
    let mut log = LogThrottle::default();
    loop {
        let read = fetch::read(&location).await;
        let now = clock.boottime();
        match &read {
            Ok(_) => {
                if let Some(times) = log.clear() {
                    tracing::info!(times, "the keys of the issuer can be read again");
                }
            }
            Err(error) => {
                if let Some(times) = log.hit(now) {
                    tracing::warn!(%error, times, "could not read the keys of the issuer");
                }
            }
        }
        state.send_modify(|state| {
            (state.tried_at, state.has_failed) = (Some(now), read.is_err());
            if let Ok(keys) = read {
                (state.keys, state.read_at) = (keys, Some(now));
            }
        });
        let mut due = std::pin::pin!(sleep(refresh.max(PAUSE)));
        loop {
            tokio::select! {
                () = &mut due => break,
                () = missed.notified() => {}
            }
            // A permit may be older than the last reading.
            if state.borrow().may_be_read_at(clock.boottime()) {
                break;
            }
        }
    }
}
