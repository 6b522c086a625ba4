//! The handle table: the open sessions of a server and the operations that belong to each, by handle.
//!
//! Invariants: the table never has more sessions than its limit; every operation belongs to a session in the table and is
//! removed with it. The table takes no lock and checks no permission: its owner does both.

use std::sync::Arc;

use model::error::{ErrorKind, UserError};

use crate::handle::{Handle, HandleMap};
use crate::method::Scope;

/// Sessions of type `S` and their operations.
#[derive(Debug)]
pub struct HandleTable<S> {
    sessions: HandleMap<Slot<S>>,
    /// The session of each operation.
    operations: HandleMap<Handle>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<S> {
    session: Arc<S>,
    /// Few; a session without any owns no memory for them.
    operations: Vec<Handle>,
}

impl<S> HandleTable<S> {
    /// An empty table for at most `limit` sessions.
    pub fn new(limit: usize) -> Self {
        Self { sessions: HandleMap::default(), operations: HandleMap::default(), limit }
    }

    /// Adds a session; refused, without effect, when the table is full.
    pub fn insert(&mut self, handle: Handle, session: Arc<S>) -> Result<(), UserError> {
        self.check_limit()?;
        self.sessions.insert(handle, Slot { session, operations: Vec::new() });
        Ok(())
    }

    /// Refuses one more session when the table is full.
    pub fn check_limit(&self) -> Result<(), UserError> {
        if !self.is_full() {
            return Ok(());
        }
        Err(UserError::new(ErrorKind::ProgramLimit, "too many sessions")
            .detail(format!("{} sessions are open.", self.limit)))
    }

    /// Removes a session and its operations.
    pub fn remove(&mut self, handle: &Handle) -> Option<Arc<S>> {
        let slot = self.sessions.remove(handle)?;
        for operation in &slot.operations {
            self.operations.remove(operation);
        }
        Some(slot.session)
    }

    /// Adds an operation to a session; `false`, without effect, if there is no such session.
    pub fn add_operation(&mut self, operation: Handle, session: &Handle) -> bool {
        let Some(slot) = self.sessions.get_mut(session) else { return false };
        if self.operations.insert(operation, *session).is_none() {
            slot.operations.push(operation);
        }
        true
    }

    /// Removes an operation from its session.
    pub fn remove_operation(&mut self, operation: &Handle) {
        if let Some(slot) = self.operations.remove(operation).and_then(|session| self.sessions.get_mut(&session)) {
            slot.operations.retain(|other| other != operation);
            if slot.operations.is_empty() {
                slot.operations = Vec::new();
            }
        }
    }

    /// The session that a call of this scope names: by its own handle, or by that of one of its operations.
    pub fn find(&self, scope: Scope, named: &Handle) -> Option<&Arc<S>> {
        let handle = if scope == Scope::Operation { self.operations.get(named)? } else { named };
        self.sessions.get(handle).map(|slot| &slot.session)
    }

    /// All sessions, in no particular order.
    pub fn sessions(&self) -> impl Iterator<Item = &Arc<S>> {
        self.sessions.values().map(|slot| &slot.session)
    }

    /// The handles of the sessions for which the predicate is true.
    pub fn handles_of(&self, predicate: impl Fn(&S) -> bool) -> Vec<Handle> {
        let matching = self.sessions.iter().filter(|(_, slot)| predicate(&slot.session));
        matching.map(|(handle, _)| *handle).collect()
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether the limit is reached.
    pub fn is_full(&self) -> bool {
        self.sessions.len() >= self.limit
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_full_table_refuses_a_session_until_one_is_removed() {
        let mut table = HandleTable::new(2);
        let [a, b, c] = [(); 3].map(|()| Handle::random());
        table.insert(a, Arc::new("a")).unwrap();
        table.insert(b, Arc::new("b")).unwrap();
        assert_eq!(table.insert(c, Arc::new("c")).unwrap_err().sqlstate(), "54000");
        assert_eq!((table.len(), table.is_full()), (2, true));
        assert_eq!(table.remove(&a).as_deref(), Some(&"a"));
        table.insert(c, Arc::new("c")).unwrap();
        assert_eq!(table.find(Scope::Session, &c).map(|session| **session), Some("c"));
    }

    #[test]
    fn operations_belong_to_one_session_and_are_removed_with_it() {
        let mut table = HandleTable::new(2);
        let [a, b, of_a, of_b, other] = [(); 5].map(|()| Handle::random());
        table.insert(a, Arc::new("a")).unwrap();
        table.insert(b, Arc::new("b")).unwrap();
        assert!(table.add_operation(of_a, &a) && table.add_operation(of_b, &b) && !table.add_operation(other, &other));
        let find = |table: &HandleTable<&'static str>, named| table.find(Scope::Operation, named).map(|found| **found);
        assert_eq!((find(&table, &of_a), find(&table, &of_b), find(&table, &a)), (Some("a"), Some("b"), None));
        assert!(table.find(Scope::Session, &of_a).is_none(), "an operation's handle names no session");
        table.remove(&a);
        assert_eq!((find(&table, &of_a), find(&table, &of_b)), (None, Some("b")));
        table.remove_operation(&of_b);
        assert_eq!((find(&table, &of_b), table.operations.len()), (None, 0));
        table.remove(&b);
        assert!(table.is_empty());
    }
}
