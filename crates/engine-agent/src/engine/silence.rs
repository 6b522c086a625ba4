//! An engine that is stopped (SIGSTOP, a debugger) behind an agent that runs.
//!
//! Its silence looks like a long statement, and the agent answers in its place: it would stay registered for ever. So an
//! agent that has found its engine stopped for [`STOPPED_LOOKS`] looks closes its session with ZooKeeper, which takes its
//! registration away, and refuses status calls. Masters and proxies then have the two pieces of evidence that they need of
//! a silent engine: the slot gets another one, and clients that wait receive 08S01. When the engine goes on, the agent
//! registers again, if its permit is still there.

use std::sync::Arc;

use parking_lot::Mutex;

use super::runtime::EngineRuntime;
use super::settings::{STOPPED_LOOK, STOPPED_LOOKS};

/// Why the engine does not answer, while it does not; shared by all connections.
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

/// Returns when the engine has been stopped for [`STOPPED_LOOKS`] looks in a row, with the reason.
pub(super) async fn begins(runtime: &dyn EngineRuntime) -> String {
    let mut looks = 0;
    loop {
        tokio::time::sleep(STOPPED_LOOK).await;
        match runtime.stopped() {
            None => looks = 0,
            Some(reason) => {
                looks += 1;
                if looks >= STOPPED_LOOKS {
                    return reason;
                }
            }
        }
    }
}

/// Returns when the engine goes on.
pub(super) async fn ends(runtime: &dyn EngineRuntime) {
    while runtime.stopped().is_some() {
        tokio::time::sleep(STOPPED_LOOK).await;
    }
}
