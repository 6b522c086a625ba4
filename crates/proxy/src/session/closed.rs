//! Whether a session is closed: a flag that is set once, and can be waited for.
//!
//! Each session has one. It is smaller than a `CancellationToken`, which has an allocation of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Closed {
    is_set: AtomicBool,
    changed: Notify,
}

impl Closed {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Completes when the session is closed.
    pub(crate) async fn wait(&self) {
        // Created before the flag is read: it notices each notification of all waiters since then.
        let changed = self.changed.notified();
        if !self.is_set() {
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn waits_that_began_before_and_after_the_end_complete() {
        let closed = Closed::default();
        let mut waits = Box::pin(closed.wait());
        assert!((&mut waits).now_or_never().is_none() && !closed.is_set());
        closed.set();
        assert!(waits.now_or_never().is_some() && closed.is_set());
        assert!(closed.wait().now_or_never().is_some());
    }
}
