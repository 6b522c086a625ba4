//! Detection of an engine that is stopped (SIGSTOP, a debugger) while its agent runs.
//!
//! Its silence looks like a long statement, and the agent still replies, so the engine would stay registered for ever.
//! After [`STOPPED_CHECKS`] consecutive checks that find the engine stopped, the agent therefore closes its session with
//! ZooKeeper, which removes the registration, and refuses status calls. Masters and proxies then have the two pieces of
//! evidence that they need: the slot gets another engine, and clients that wait receive 08S01. When the engine continues,
//! the agent registers again, if its permit still exists.

use std::sync::Arc;

use parking_lot::Mutex;

use super::runtime::EngineRuntime;
use super::settings::{STOPPED_CHECK_INTERVAL, STOPPED_CHECKS};

/// Why the engine does not respond, if it does not; shared by all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct Silence(Arc<Mutex<Option<String>>>);

impl Silence {
    pub(super) fn set(&self, reason: Option<String>) {
        *self.0.lock() = reason;
    }

    pub(super) fn reason(&self) -> Option<String> {
        self.0.lock().clone()
    }
}

/// Returns with the reason when [`STOPPED_CHECKS`] consecutive checks have found the engine stopped.
pub(super) async fn begins(runtime: &dyn EngineRuntime) -> String {
    let mut checks = 0;
    loop {
        tokio::time::sleep(STOPPED_CHECK_INTERVAL).await;
        match runtime.stopped() {
            None => checks = 0,
            Some(reason) => {
                checks += 1;
                if checks >= STOPPED_CHECKS {
                    return reason;
                }
            }
        }
    }
}

/// Returns when the engine runs again.
pub(super) async fn ends(runtime: &dyn EngineRuntime) {
    while runtime.stopped().is_some() {
        tokio::time::sleep(STOPPED_CHECK_INTERVAL).await;
    }
}
