//! Sessions: passwords and deadlines.
//!
//! A session's deadline is its last request plus its timeout, whether it has a connection or not. Ids start from the
//! wall clock, so none is issued twice, not even by a restarted server.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use sha1::{Digest, Sha1};

use super::watches::ConnectionId;
use crate::clock::Now;
use crate::proto::connect::{Granted, PASSWORD_LEN, Password};

/// The most sessions at a time; further clients are disconnected without an answer and retry.
pub(crate) const SESSIONS_MAX: usize = 10_000;
/// How many bits the wall clock's milliseconds are shifted to form ids: 2^20 ids per millisecond.
pub(crate) const ID_BITS: u32 = 20;

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) timeout: Duration,
    pub(crate) connection: Option<ConnectionId>,
    /// On the clock of [`Now::mono`].
    deadline: Duration,
}

/// All sessions by id.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: BTreeMap<i64, Session>,
    last_id: i64,
    /// The key from which passwords are derived.
    secret: Password,
    /// The timeouts that are granted.
    timeouts: RangeInclusive<Duration>,
}

impl Sessions {
    pub(crate) fn new(now: Now, secret: Password, timeouts: RangeInclusive<Duration>) -> Self {
        Self { by_id: BTreeMap::new(), last_id: now.wall_ms << ID_BITS, secret, timeouts }
    }

    /// Opens a session; `None` if there are too many.
    pub(crate) fn open(&mut self, now: Now, connection: ConnectionId, requested: Duration) -> Option<Granted> {
        if self.by_id.len() >= SESSIONS_MAX {
            return None;
        }
        self.last_id += 1;
        Some(self.attach(now, self.last_id, connection, requested))
    }

    /// Resumes a session; `None` if it is unknown or the password is wrong. Also returns the connection that had it
    /// until now.
    pub(crate) fn resume(
        &mut self,
        now: Now,
        id: i64,
        password: &[u8],
        connection: ConnectionId,
        requested: Duration,
    ) -> Option<(Granted, Option<ConnectionId>)> {
        let before = self.by_id.get(&id).filter(|_| self.password(id) == password)?.connection;
        Some((self.attach(now, id, connection, requested), before))
    }

    fn attach(&mut self, now: Now, id: i64, connection: ConnectionId, requested: Duration) -> Granted {
        let timeout = requested.clamp(*self.timeouts.start(), *self.timeouts.end());
        let session = Session { timeout, connection: Some(connection), deadline: now.mono + timeout };
        self.by_id.insert(id, session);
        Granted { session: id, timeout, password: self.password(id) }
    }

    /// Renews the deadline; `false` if there is no such session.
    pub(crate) fn touch(&mut self, now: Now, id: i64) -> bool {
        let Some(session) = self.by_id.get_mut(&id) else { return false };
        session.deadline = now.mono + session.timeout;
        true
    }

    /// Detaches a closed connection, unless the session has another one by now.
    pub(crate) fn detach(&mut self, id: i64, connection: ConnectionId) {
        if let Some(session) = self.by_id.get_mut(&id).filter(|session| session.connection == Some(connection)) {
            session.connection = None;
        }
    }

    /// Removes a session.
    pub(crate) fn close(&mut self, id: i64) -> Option<Session> {
        self.by_id.remove(&id)
    }

    /// The sessions whose deadline has passed.
    pub(crate) fn overdue(&self, now: Now) -> Vec<i64> {
        let overdue = self.by_id.iter().filter(|(_, session)| session.deadline <= now.mono);
        overdue.map(|(id, _)| *id).collect()
    }

    /// Extends every deadline: while the server was paused, it could not receive its clients' requests.
    pub(crate) fn extend_deadlines(&mut self, by: Duration) {
        for session in self.by_id.values_mut() {
            session.deadline += by;
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.by_id.get(&id)
    }

    fn password(&self, id: i64) -> Password {
        let hash = Sha1::new().chain_update(self.secret).chain_update(id.to_be_bytes()).chain_update(self.secret);
        let hash = hash.finalize();
        let mut password = [0; PASSWORD_LEN];
        password.copy_from_slice(&hash[..PASSWORD_LEN]);
        password
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(mono_ms: u64) -> Now {
        Now { wall_ms: 1_000_000, mono: ms(mono_ms) }
    }

    fn sessions() -> Sessions {
        Sessions::new(at(0), [3; PASSWORD_LEN], ms(100)..=ms(1_000))
    }

    #[test]
    fn a_requested_timeout_is_granted_within_the_limits() {
        for (requested, granted) in [(0, 100), (500, 500), (5_000, 1_000)] {
            assert_eq!(sessions().open(at(0), 1, ms(requested)).unwrap().timeout, ms(granted));
        }
    }

    #[test]
    fn a_session_ends_one_timeout_after_its_last_sign_of_life() {
        let mut sessions = sessions();
        let id = sessions.open(at(0), 1, ms(200)).unwrap().session;
        assert!(sessions.overdue(at(199)).is_empty());
        assert!(sessions.touch(at(199), id));
        assert!(sessions.overdue(at(398)).is_empty());
        assert_eq!(sessions.overdue(at(399)), [id]);
        sessions.extend_deadlines(ms(50));
        assert!(sessions.overdue(at(448)).is_empty());
        sessions.close(id);
        assert!(!sessions.touch(at(449), id));
    }

    #[test]
    fn a_session_is_resumed_only_with_its_password() {
        let mut sessions = sessions();
        let granted = sessions.open(at(0), 1, ms(200)).unwrap();
        assert!(sessions.resume(at(1), granted.session, &[0; PASSWORD_LEN], 2, ms(200)).is_none());
        assert!(sessions.resume(at(1), granted.session + 1, &granted.password, 2, ms(200)).is_none());
        let (again, before) = sessions.resume(at(1), granted.session, &granted.password, 2, ms(300)).unwrap();
        assert_eq!((again.session, again.timeout, before), (granted.session, ms(300), Some(1)));
        sessions.detach(granted.session, 1);
        assert_eq!(sessions.get(granted.session).unwrap().connection, Some(2));
    }

    #[test]
    fn a_server_started_later_gives_out_higher_ids() {
        let earlier = sessions().open(at(0), 1, ms(0)).unwrap().session;
        let later = Now { wall_ms: 1_000_001, mono: ms(0) };
        let mut restarted = Sessions::new(later, [4; PASSWORD_LEN], ms(100)..=ms(1_000));
        assert!(restarted.open(later, 1, ms(0)).unwrap().session > earlier);
    }

    #[test]
    fn there_are_only_so_many_sessions() {
        let mut sessions = sessions();
        for connection in 0..SESSIONS_MAX {
            sessions.open(at(0), connection as u64, ms(0)).unwrap();
        }
        assert!(sessions.open(at(0), 0, ms(0)).is_none());
    }
}
