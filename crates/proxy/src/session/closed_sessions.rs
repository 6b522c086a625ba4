//! The sessions that a time limit closed lately: a client that names one learns why it is closed.
//!
//! A FIFO of limited length, which holds the handles of sessions and of operations that were open. A caller learns only of a session
//! that it may name; any other is answered as if it had never existed. A session that was evicted here is answered so as well.

use std::collections::VecDeque;
use std::sync::Arc;

use hs2::{Handle, HandleMap};

use super::owner::{Caller, Owner};
use super::time_limit::TimeLimit;

/// The most handles.
const MAX_HANDLES: usize = 4_096;

#[derive(Default)]
pub(crate) struct ClosedSessions {
    by_handle: HandleMap<Arc<(Owner, TimeLimit)>>,
    /// The oldest first.
    order: VecDeque<Handle>,
}

impl ClosedSessions {
    /// Adds a session and the operations that it had.
    pub(crate) fn insert(&mut self, session: Handle, operations: Vec<Handle>, owner: Owner, limit: TimeLimit) {
        let closed = Arc::new((owner, limit));
        // The session last: it is the handle that is named most often.
        for handle in operations.into_iter().chain([session]) {
            if self.order.len() >= MAX_HANDLES
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_handle.remove(&oldest);
            }
            self.by_handle.insert(handle, Arc::clone(&closed));
            self.order.push_back(handle);
        }
    }

    /// The limit that closed the session of this handle, if the caller may name it.
    pub(crate) fn limit_of(&self, named: &Handle, caller: &Caller<'_>) -> Option<TimeLimit> {
        let (owner, limit) = &**self.by_handle.get(named)?;
        owner.permits(caller).then_some(*limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: TimeLimit = TimeLimit::Age(Duration::from_hours(1));

    fn owner(connection: Option<u64>) -> Owner {
        Owner { user: "ann".to_owned(), login: None, connection }
    }

    fn caller(login: &str, connection: u64) -> Caller<'_> {
        Caller { login, user: None, connection }
    }

    #[test]
    fn only_a_caller_that_may_name_the_session_learns_of_its_limit() {
        let mut closed = ClosedSessions::default();
        let [binary, of_binary, http] = [(); 3].map(|()| Handle::random());
        closed.insert(binary, vec![of_binary], owner(Some(1)), LIMIT);
        closed.insert(http, Vec::new(), owner(None), LIMIT);
        for (handle, login, connection, found) in [
            (binary, "ann", 1, true),
            (of_binary, "ann", 1, true),
            (binary, "ann", 2, false),
            (binary, "bob", 1, false),
            (http, "ann", 2, true),
            (http, "bob", 2, false),
            (Handle::random(), "ann", 1, false),
        ] {
            assert_eq!(closed.limit_of(&handle, &caller(login, connection)).is_some(), found, "{login} {connection}");
        }
    }

    #[test]
    fn the_oldest_are_evicted() {
        let mut closed = ClosedSessions::default();
        let handles: Vec<Handle> = (0..MAX_HANDLES + 2).map(|_| Handle::random()).collect();
        for handle in &handles {
            closed.insert(*handle, Vec::new(), owner(None), LIMIT);
        }
        assert_eq!((closed.by_handle.len(), closed.order.len()), (MAX_HANDLES, MAX_HANDLES));
        let known = handles.iter().map(|handle| closed.limit_of(handle, &caller("ann", 1)).is_some());
        assert_eq!(known.collect::<Vec<_>>(), [vec![false; 2], vec![true; MAX_HANDLES]].concat());
    }
}
