//! Wake-ups without payload: they say *look*, never *what*.

use tokio::sync::watch;

/// Wakes its holder after changes. Any number of changes between two waits are one wake-up; one may come for nothing.
#[derive(Debug)]
pub struct WakeUps {
    receiver: watch::Receiver<u64>,
}

impl WakeUps {
    /// Waits for the next change since the last wait (or since the watch began). When the orchestrator is gone it waits
    /// for ever: whoever waits has a timer besides, and must not spin.
    pub async fn wait(&mut self) {
        if self.receiver.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The other end.
#[derive(Debug)]
pub(crate) struct Ringer {
    sender: watch::Sender<u64>,
}

impl Ringer {
    pub(crate) fn new() -> Self {
        Self { sender: watch::Sender::new(0) }
    }

    pub(crate) fn ring(&self) {
        self.sender.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self) -> WakeUps {
        WakeUps { receiver: self.sender.subscribe() }
    }
}
