//! The sweep of idle sessions: one task that unbinds sessions from engines that they do not use, and closes abandoned ones.
//!
//! An unbound session loses nothing: its next statement binds it again and replays its USE and SET. A session whose state
//! cannot be replayed, that has an operation at its engine, or whose engine is its own is never unbound. A session in the middle of a call is skipped
//! until the next sweep. Engines' sessions are closed in the background, a limited number at the same time; the rest waits for
//! the next sweep.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::close;
use crate::gateway::Gateway;
use crate::session::table::Entry;
use crate::settings::{IdleLimits, MAX_SWEPT_AT_ONCE, MIN_SWEEP_INTERVAL, SWEEPS_PER_LIMIT};

impl IdleLimits {
    /// The time between two sweeps; `None` without a limit.
    fn sweep_interval(&self, longest: Duration) -> Option<Duration> {
        let shortest = [self.unbind_after, self.session, self.http_session].into_iter().flatten().min()?;
        Some((shortest / SWEEPS_PER_LIMIT).max(MIN_SWEEP_INTERVAL).min(longest))
    }

    /// How long a session may be idle; `None`: for ever.
    fn of(&self, entry: &Entry) -> Option<Duration> {
        if entry.connection.is_none() { self.http_session } else { self.session }
    }
}

/// Sweeps until stopped.
pub(crate) async fn sweep(gateway: Arc<Gateway>, stop: CancellationToken) {
    let settings = &gateway.settings;
    let Some(interval) = settings.idle.sweep_interval(settings.limits.sweep_interval) else { return };
    let closings = Arc::new(Semaphore::new(MAX_SWEPT_AT_ONCE));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        for entry in gateway.sessions.all() {
            // What is left waits for the next sweep.
            let Ok(closing) = Arc::clone(&closings).try_acquire_owned() else { break };
            sweep_session(&gateway, &entry, closing);
        }
    }
}

/// Closes or unbinds one session, if it is idle. `closing` is kept while its engine's session is being closed.
fn sweep_session(gateway: &Arc<Gateway>, entry: &Arc<Entry>, closing: OwnedSemaphorePermit) {
    // In use.
    let Ok(mut session) = entry.state.try_lock() else { return };
    let (limits, now) = (&gateway.settings.idle, gateway.clock.boottime());
    if limits.of(entry).is_some_and(|limit| entry.idle(now) >= limit) {
        drop(session);
        debug!(session = %entry.handle, "closing an idle session");
        close::close_idle(gateway, &entry.handle, closing);
        return;
    }
    let Some(engine) = limits.unbind_after.and_then(|limit| session.release_unused_engine(now, limit)) else { return };
    drop(session);
    gateway.activity.unbound.add();
    debug!(session = %entry.handle, engine = %engine.route.engine, "idle session unbound");
    tokio::spawn(async move {
        engine.close().await;
        drop(closing);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_as_frequent_as_the_shortest_limit_needs() {
        let (second, longest) = (Duration::from_secs(1), Duration::from_secs(10));
        let interval = |unbind_after, session, http_session| {
            IdleLimits { unbind_after, session, http_session }.sweep_interval(longest)
        };
        assert_eq!(IdleLimits::default().sweep_interval(longest), Some(longest));
        assert_eq!(interval(None, Some(second * 1_000), Some(second * 20)), Some(second * 2));
        assert_eq!(interval(Some(Duration::from_millis(1)), None, None), Some(MIN_SWEEP_INTERVAL));
        assert_eq!(interval(None, None, None), None);
    }
}
