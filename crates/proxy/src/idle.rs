//! The sweep of sessions: one task that unbinds sessions from engines that they do not use, and closes abandoned ones and those that
//! are too old.
//!
//! An unbound session loses nothing: its next statement binds it again and replays its USE and SET. A session whose state cannot be
//! replayed, that has an operation at its engine, or whose engine is its own is never unbound. A session in the middle of a call is
//! skipped until the next sweep, and so is one that is too old while a statement of it runs or its client reads a result. Engines'
//! sessions are closed in the background, a limited number at the same time; the rest waits for the next sweep.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::close;
use crate::gateway::Gateway;
use crate::session::state::Session;
use crate::session::table::Entry;
use crate::session::time_limit::TimeLimit;
use crate::settings::{IdleLimits, MAX_SWEPT_AT_ONCE, MIN_SWEEP_INTERVAL, SWEEPS_PER_LIMIT};

impl IdleLimits {
    /// The time between two sweeps, if sessions may have that age; `None` without a limit.
    fn sweep_interval(&self, age: Option<Duration>, longest: Duration) -> Option<Duration> {
        let shortest = [self.unbind_after, self.session, self.http_session, age].into_iter().flatten().min()?;
        Some((shortest / SWEEPS_PER_LIMIT).max(MIN_SWEEP_INTERVAL).min(longest))
    }

    /// The limit that a session exceeds that was idle for so long.
    fn exceeded_by(&self, entry: &Entry, idle: Duration) -> Option<TimeLimit> {
        let limit = match entry.owner.connection {
            Some(_) => self.session.map(TimeLimit::Idle),
            None => self.http_session.map(TimeLimit::HttpIdle),
        };
        limit.filter(|limit| idle >= limit.length())
    }
}

/// Sweeps until stopped.
pub(crate) async fn sweep(gateway: Arc<Gateway>, stop: CancellationToken) {
    let settings = &gateway.settings;
    let longest = settings.limits.sweep_interval;
    let Some(interval) = settings.idle.sweep_interval(settings.session_age, longest) else { return };
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

/// The time limit for which a session that serves no call is closed now.
fn exceeded_limit(gateway: &Gateway, entry: &Entry, session: &Session) -> Option<TimeLimit> {
    let (settings, now) = (&gateway.settings, gateway.clock.boottime());
    let idle = entry.idle(now);
    let is_too_old = |limit: &Duration| entry.age(now) >= *limit && session.is_at_rest(idle);
    let of_age = || settings.session_age.filter(is_too_old).map(TimeLimit::Age);
    settings.idle.exceeded_by(entry, idle).or_else(of_age)
}

/// Closes or unbinds one session, if it exceeds a limit. `closing` is kept while its engine's session is being closed.
fn sweep_session(gateway: &Arc<Gateway>, entry: &Arc<Entry>, closing: OwnedSemaphorePermit) {
    // In use.
    let Ok(mut session) = entry.state.try_lock() else { return };
    if let Some(limit) = exceeded_limit(gateway, entry, &session) {
        let operations = session.operations.keys().copied().collect();
        drop(session);
        debug!(session = %entry.handle, limit = limit.key(), "closing a session that exceeds a time limit");
        close::close_expired(gateway, &entry.handle, operations, limit, closing);
        return;
    }
    let (limits, now) = (&gateway.settings.idle, gateway.clock.boottime());
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
            IdleLimits { unbind_after, session, http_session }.sweep_interval(None, longest)
        };
        assert_eq!(IdleLimits::default().sweep_interval(None, longest), Some(longest));
        assert_eq!(IdleLimits::default().sweep_interval(Some(second * 20), longest), Some(second * 2));
        assert_eq!(interval(None, Some(second * 1_000), Some(second * 20)), Some(second * 2));
        assert_eq!(interval(Some(Duration::from_millis(1)), None, None), Some(MIN_SWEEP_INTERVAL));
        assert_eq!(interval(None, None, None), None);
    }
}
