//! Fault injection for tests. A real ensemble shows each of these faults too; here the test chooses the moment.

use std::sync::Arc;
use std::time::Duration;

use super::core::Shared;
use super::event_filter::EventFilter;

/// A session as returned by [`Faults::sessions`]: a snapshot, stale as soon as it is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The id that clients use.
    pub id: i64,
    /// The timeout that was granted.
    pub timeout: Duration,
    /// Whether it has a connection now.
    pub connected: bool,
    /// Paths of its ephemeral nodes, sorted.
    pub ephemerals: Vec<String>,
}

/// The fault-injection handle of a running server. It may outlive the server.
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
            timeout: session.timeout,
            connected: session.connection.is_some(),
            ephemerals: session.ephemerals,
        };
        sessions.into_iter().map(view).collect()
    }

    /// Expires a session: when this returns, its ephemeral nodes are deleted and the events are queued. Its
    /// connection is closed, and a client that resumes it learns that it has expired. `false` if there is no such
    /// session.
    pub fn expire_session(&self, id: i64) -> bool {
        self.shared.core().expire(id)
    }

    /// Cuts a session's connection, with the queued replies. The session stays. `false` if it has no connection.
    pub fn cut_connection(&self, session: i64) -> bool {
        self.shared.core().cut(session)
    }

    /// Drops events from now on: one-shot watches are consumed, and no client is notified.
    pub fn drop_events(&self, filter: EventFilter) {
        self.shared.core().filter = filter;
    }

    /// Delays events from now on, rounded up to the tick. Replies are not delayed, so a client can see a change
    /// before its event. Zero sends the delayed events at once.
    pub fn delay_events(&self, delay: Duration) {
        self.shared.core().delay_events(delay);
    }

    /// While `true`, the server answers like a follower that is cut off from its leader: reads and pings, but no
    /// request that needs the leader, such as writes and `sync`, and none that follows such a one on its connection.
    pub fn cut_off_from_leader(&self, cut_off: bool) {
        self.shared.core().set_leaderless(cut_off);
    }

    /// While `true`, every connection is cut and new ones are closed at once; sessions continue to age.
    pub fn outage(&self, outage: bool) {
        let mut core = self.shared.core();
        core.outage = outage;
        if outage {
            core.cut_all();
        }
    }
}
