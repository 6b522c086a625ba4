//! Wake-ups without payload: a level-triggered notification that something may have changed.

use tokio::sync::watch;

/// Wakes its holder after changes. Any number of changes between two waits are one wake-up; a wake-up may be spurious.
#[derive(Debug)]
pub struct WakeUps {
    receiver: watch::Receiver<u64>,
}

impl WakeUps {
    /// Waits for the next change since the last wait (or since the watch began). Once the orchestrator is dropped this never
    /// returns: callers also have a timer, and must not spin.
    pub async fn wait(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Notifier {
    sender: watch::Sender<u64>,
}

impl Notifier {
    pub(crate) fn new() -> Self {
        Self { sender: watch::Sender::new(0) }
    }

    pub(crate) fn notify(&self) {
        self.sender.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self) -> WakeUps {
        WakeUps { receiver: self.sender.subscribe() }
    }
}
