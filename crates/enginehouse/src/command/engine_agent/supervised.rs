//! An engine that the agent runs itself, and that a task watches: how the task says why the engine ended, how it is told to stop,
//! and who waits for it.
//!
//! An end that was wanted is told to nobody.

use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// One engine; told to stop at most once.
pub struct Supervised {
    stop: CancellationToken,
    ended: watch::Sender<Option<String>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What its task has of it.
pub struct Supervisor {
    /// Cancelled when the engine is to stop.
    pub stop: CancellationToken,
    ended: watch::Sender<Option<String>>,
}

impl Supervisor {
    /// Says that the engine has ended by itself, and how.
    pub fn ended(&self, reason: String) {
        self.ended.send_replace(Some(reason));
    }
}

impl Supervised {
    pub fn new() -> Self {
        Self { stop: CancellationToken::new(), ended: watch::Sender::new(None), task: Mutex::default() }
    }

    /// What the task is given.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor { stop: self.stop.clone(), ended: self.ended.clone() }
    }

    /// Keeps the task that watches.
    pub async fn set_task(&self, task: JoinHandle<()>) {
        *self.task.lock().await = Some(task);
    }

    /// Why it has ended by itself; never returns while it has not.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        let reason = ended.wait_for(Option::is_some).await.map(|reason| reason.clone().unwrap_or_default());
        match reason {
            Ok(reason) => reason,
            Err(_) => std::future::pending().await,
        }
    }

    /// Tells it to stop and waits until its task is over.
    pub async fn stop(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take()
            && task.await.is_err()
        {
            warn!("engine supervisor task panicked");
        }
    }

    /// Whether somebody was told of an end.
    #[cfg(test)]
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}
