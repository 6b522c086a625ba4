//! An engine that the agent runs itself, with the task that supervises it: the task reports why the engine ended, and stops
//! it on request.
//!
//! A requested end is not reported.

use model::cause::Cause;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// One engine, which is stopped at most once.
pub struct Supervised {
    stop: CancellationToken,
    ended: watch::Sender<Option<Cause>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The task's side of a supervised engine.
pub struct Supervisor {
    /// Cancelled to stop the engine.
    pub stop: CancellationToken,
    ended: watch::Sender<Option<Cause>>,
}

impl Supervisor {
    /// Reports that the engine has ended by itself, with the reason.
    pub fn ended(&self, reason: impl Into<Cause>) {
        self.ended.send_replace(Some(reason.into()));
    }
}

impl Supervised {
    pub fn new() -> Self {
        Self { stop: CancellationToken::new(), ended: watch::Sender::new(None), task: Mutex::default() }
    }

    /// The side for the task.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor { stop: self.stop.clone(), ended: self.ended.clone() }
    }

    /// Sets the task, which `stop` waits for.
    pub async fn set_task(&self, task: JoinHandle<()>) {
        *self.task.lock().await = Some(task);
    }

    /// Waits until the engine ends by itself; returns the reason.
    pub async fn ended(&self) -> Cause {
        let mut ended = self.ended.subscribe();
        let reason = ended.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }

    /// Stops the engine and waits for its task.
    pub async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take()
            && task.await.is_err()
        {
            warn!("engine supervisor task panicked");
        }
    }

    /// Whether an end was reported.
    #[cfg(test)]
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}
