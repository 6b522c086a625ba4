//! Checks at an interval whether the database answers, so that the agent's log and `/readyz` report it even while no
//! statement is issued.
//!
//! An agent without its database stays registered: masters and proxies go elsewhere by themselves, and where all agents
//! have lost it there is nowhere to go. The question is a reading with the connections of masters, so it fails for what
//! fails masters' calls and does not wait behind statements.

use std::time::Duration;

use metadata::Store;
use model::clock::SharedClock;
use model::log_throttle::LogThrottle;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long between two questions.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// What is known of the database.
#[derive(Debug, Default)]
pub(super) struct Database {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why it does not answer; `None` while it does.
    lost: Option<String>,
    throttle: LogThrottle,
}

impl Database {
    /// Why the agent has no use of its database now.
    pub(super) fn lost(&self) -> Option<String> {
        self.state.lock().lost.clone()
    }

    /// Takes an answer, and logs what begins, goes on for another minute, or is over.
    fn answered(&self, answer: Result<(), String>, now: Duration) {
        let mut state = self.state.lock();
        match answer {
            Ok(()) => {
                state.lost = None;
                if let Some(failures) = state.throttle.clear() {
                    info!(failures, "metadata database answers again");
                }
            }
            Err(reason) => {
                if let Some(failures) = state.throttle.hit(now) {
                    warn!(reason, failures, "metadata database does not answer");
                }
                state.lost = Some(reason);
            }
        }
    }

    /// Asks until it is stopped.
    pub(super) async fn watch(&self, store: Store, clock: SharedClock, stop: CancellationToken) {
        let store = store.for_masters();
        loop {
            let answer = tokio::select! {
                () = stop.cancelled() => return,
                answer = tokio::time::timeout(DEADLINE, store.master()) => answer,
            };
            let answer = match answer {
                Ok(answer) => answer.map(drop).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
            };
            self.answered(answer, clock.boottime());
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
    fn a_database_that_answers_again_is_lost_no_more() {
        let database = Database::default();
        assert_eq!(database.lost(), None);
        for at in 1..4 {
            database.answered(Err("away".to_owned()), Duration::from_secs(at));
            assert_eq!(database.lost().as_deref(), Some("away"));
        }
        database.answered(Ok(()), Duration::from_secs(5));
        assert_eq!(database.lost(), None);
    }
}
