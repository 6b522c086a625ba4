//! Faults on command, for tests. Each is one that a real ensemble shows too, at a moment that the test chooses.

use std::sync::Arc;
use std::time::Duration;

use super::core::Shared;
use super::event_filter::EventFilter;

/// A session, as [`Faults::sessions`] tells it. Stale as soon as it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The number that clients know it by.
    pub id: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// Whether it has a connection now.
    pub connected: bool,
    /// Paths of its ephemeral nodes, sorted.
    pub ephemerals: Vec<String>,
}

/// The handle by which tests make a running server misbehave. Outlives the server harmlessly.
#[derive(Clone, Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

impl Faults {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> Vec<SessionView> {
        let sessions = self.shared.core().state.sessions();
        let view = |session: crate::state::SessionState| SessionView {
            id: session.id,
            timeout: Duration::from_millis(session.timeout_ms),
            connected: session.connection.is_some(),
            ephemerals: session.ephemerals,
        };
        sessions.into_iter().map(view).collect()
    }

    /// Ends a session as if its timeout had passed: when this returns, its ephemeral nodes are gone and the events
    /// are on their way; its connection is closed, and coming back it is told that it has expired. `false` if there
    /// is no such session.
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.core().expire(id)
    }

    /// Cuts a session's connection, replies on their way included. The session lives on. `false` if it has none.
    pub fn cut_connection(&self, session: i64) -> bool {
        self.shared.core().cut(session)
    }

    /// Drops events from now on: one-shot watches are used up, and nobody hears of it.
    pub fn drop_events(&self, filter: EventFilter) {
        self.shared.core().filter = filter;
    }

    /// Sends events that much later from now on, rounded up to the tick. Replies are not held back, so a client can
    /// see a change before it hears of it. Zero sends what is held at once.
    pub fn delay_events(&self, delay: Duration) {
        self.shared.core().delay_events(delay);
    }

    /// While `true`, the server answers like a follower that is cut off from its leader: reads and pings, and nothing that
    /// the leader takes part in, such as writes and `sync`, nor what the same connection asks after that.
    pub fn cut_off_from_leader(&self, cut_off: bool) {
        self.shared.core().set_leaderless(cut_off);
    }

    /// While `true`, every connection is cut and new ones are closed at once; sessions go on ageing.
    pub fn outage(&self, outage: bool) {
        let mut core = self.shared.core();
        core.outage = outage;
        if outage {
            core.cut_all();
        }
    }
}
