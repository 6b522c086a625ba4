//! The health check of the metadata database, for the log and `/readyz` while no statement runs.
//!
//! An agent without its database stays registered: masters and proxies fail over to other agents, and if all have lost it
//! there is none. The check uses the connections of masters, so it fails when masters' calls fail, and does not queue
//! behind statements.

use std::time::Duration;

use metadata::Store;
use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The pause between two checks.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long a check may take.
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Database {
    state: Mutex<DatabaseState>,
}

#[derive(Debug, Default)]
struct DatabaseState {
    /// Why it does not respond; `None` while it does.
    lost: Option<String>,
    throttle: LogThrottle,
}

impl Database {
    /// Why the database is unavailable; `None` if it is available.
    pub(super) fn lost(&self) -> Option<String> {
        self.state.lock().lost.clone()
    }

    /// Records the result of a check, and logs a failure once a minute and its end.
    fn record(&self, result: Result<(), String>, now: Duration) {
        let mut state = self.state.lock();
        match result {
            Ok(()) => {
                state.lost = None;
                if let Some(failures) = state.throttle.clear() {
                    info!(failures, "metadata database responds again");
                }
            }
            Err(reason) => {
                if let Some(failures) = state.throttle.hit(now) {
                    warn!(reason, failures, "metadata database does not respond");
                }
                state.lost = Some(reason);
            }
        }
    }

    /// Checks until stopped.
    pub(super) async fn watch(&self, store: Store, clock: SharedClock, stop: CancellationToken) {
        let store = store.for_masters();
        loop {
            let answer = tokio::select! {
                () = stop.cancelled() => return,
                answer = tokio::time::timeout(DEADLINE, store.master()) => answer,
            };
            let answer = match answer {
                Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no reply within {} s", DEADLINE.as_secs())),
            };
            self.record(answer, clock.boottime());
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successful_check_ends_the_outage() {
        let database = Database::default();
        assert_eq!(database.lost(), None);
        for at in 1..4 {
            database.record(Err("away".to_owned()), Duration::from_secs(at));
            assert_eq!(database.lost().as_deref(), Some("away"));
        }
        database.record(Ok(()), Duration::from_secs(5));
        assert_eq!(database.lost(), None);
    }
}
