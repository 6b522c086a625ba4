//! The sessions of proxies, and their operations.

use std::collections::HashMap;
use std::sync::Arc;

use hs2::{Context as Call, Handle, Mechanism};
use model::error::{ErrorKind, UserError};
use parking_lot::{Mutex, MutexGuard};

use super::operation::Operation;
use super::settings::{MAX_OPERATIONS, MAX_SESSIONS};

#[derive(Default)]
pub(super) struct Sessions(Mutex<Table>);

#[derive(Default)]
struct Table {
    sessions: HashMap<Handle, Session>,
    operations: HashMap<Handle, (Handle, Arc<Operation>)>,
}

struct Session {
    user: String,
    connection: Option<u64>,
    operations: usize,
}

fn gone(what: &str) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("the {what} does not exist"))
        .detail("it was closed, or it belongs to somebody else")
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    pub(super) fn open(&self, call: &Call) -> Result<Handle, UserError> {
        let mut table = self.table();
        if table.sessions.len() >= MAX_SESSIONS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the metadata agent has too many sessions")
                .detail(format!("{MAX_SESSIONS} are open")));
        }
        let handle = Handle::random();
        let connection = (call.mechanism != Mechanism::HttpBasic).then_some(call.connection);
        let session = Session { user: call.principal.user.clone(), connection, operations: 0 };
        table.sessions.insert(handle, session);
        Ok(handle)
    }

    /// Refuses a session that is not the caller's.
    pub(super) fn check(&self, call: &Call, session: &Handle) -> Result<(), UserError> {
        let table = self.table();
        let found = table.sessions.get(session).ok_or_else(|| gone("session"))?;
        let same_connection = found.connection.is_none_or(|it| it == call.connection);
        if found.user == call.principal.user && same_connection { Ok(()) } else { Err(gone("session")) }
    }

    pub(super) fn begin(&self, session: &Handle, operation: &Arc<Operation>) -> Result<Handle, UserError> {
        let mut table = self.table();
        let of = table.sessions.get_mut(session).ok_or_else(|| gone("session"))?;
        if of.operations >= MAX_OPERATIONS {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
                .detail(format!("{MAX_OPERATIONS} are open"))
                .hint("close statements that are not used"));
        }
        of.operations += 1;
        let handle = Handle::random();
        table.operations.insert(handle, (*session, Arc::clone(operation)));
        Ok(handle)
    }

    pub(super) fn operation(&self, call: &Call, handle: &Handle) -> Result<Arc<Operation>, UserError> {
        let table = self.table();
        let (_, operation) = table.operations.get(handle).ok_or_else(|| gone("operation"))?;
        if operation.user == call.principal.user { Ok(Arc::clone(operation)) } else { Err(gone("operation")) }
    }

    pub(super) fn close_operation(&self, handle: &Handle) {
        let mut table = self.table();
        if let Some((session, operation)) = table.operations.remove(handle) {
            operation.cancelled.cancel();
            if let Some(session) = table.sessions.get_mut(&session) {
                session.operations -= 1;
            }
        }
    }

    /// Closes a session. What its statements have begun goes on: only waits end.
    pub(super) fn close(&self, handle: &Handle) {
        let mut table = self.table();
        table.sessions.remove(handle);
        table.operations.retain(|_, (session, operation)| {
            let stays = session != handle;
            if !stays {
                operation.cancelled.cancel();
            }
            stays
        });
    }

    pub(super) fn close_connection(&self, connection: u64) {
        let left: Vec<Handle> = {
            let table = self.table();
            table
                .sessions
                .iter()
                .filter(|(_, it)| it.connection == Some(connection))
                .map(|(handle, _)| *handle)
                .collect()
        };
        for handle in left {
            self.close(&handle);
        }
    }
}
