//! The sessions of proxies, and their operations.

use std::sync::Arc;

use hs2::{Context as Call, Handle, HandleMap, HandleTable, Mechanism, Scope};
use model::error::{ErrorKind, UserError};
use parking_lot::Mutex;

use super::operation::Operation;
use super::settings::{MAX_OPERATIONS, MAX_SESSIONS};

pub(super) struct Sessions(Mutex<HandleTable<Session>>);

struct Session {
    user: String,
    /// The connection that it ends with; `None` over HTTP.
    connection: Option<u64>,
    operations: Mutex<HandleMap<Arc<Operation>>>,
}

fn missing(object: &str) -> UserError {
    UserError::new(ErrorKind::WrongState, format!("{object} does not exist"))
        .detail("It was closed, or it belongs to another user.")
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self(Mutex::new(HandleTable::new(MAX_SESSIONS)))
    }

    pub(super) fn open(&self, call: &Call) -> Result<Handle, UserError> {
        let mut table = self.0.lock();
        if table.is_full() {
            return Err(UserError::new(ErrorKind::ProgramLimit, "the metadata agent has too many sessions")
                .detail(format!("{MAX_SESSIONS} sessions are open.")));
        }
        let handle = Handle::random();
        let connection = (call.mechanism != Mechanism::Http).then_some(call.connection);
        let session = Session { user: call.principal.user.clone(), connection, operations: Mutex::default() };
        table.insert(handle, Arc::new(session))?;
        Ok(handle)
    }

    /// Refuses a session that is not the caller's.
    pub(super) fn check(&self, call: &Call, session: &Handle) -> Result<(), UserError> {
        let found = self.0.lock().find(Scope::Session, session).cloned();
        let of_caller = |session: &Arc<Session>| {
            let same_connection = session.connection.is_none_or(|connection| connection == call.connection);
            session.user == call.principal.user && same_connection
        };
        found.filter(of_caller).map(drop).ok_or_else(|| missing("session"))
    }

    pub(super) fn begin(&self, session: &Handle, operation: &Arc<Operation>) -> Result<Handle, UserError> {
        let mut table = self.0.lock();
        let handle = Handle::random();
        {
            let entry = table.find(Scope::Session, session).ok_or_else(|| missing("session"))?;
            let mut operations = entry.operations.lock();
            if operations.len() >= MAX_OPERATIONS {
                return Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
                    .detail(format!("{MAX_OPERATIONS} operations are open."))
                    .hint("Close statements that are not used."));
            }
            operations.insert(handle, Arc::clone(operation));
        }
        table.add_operation(handle, session);
        Ok(handle)
    }

    pub(super) fn operation(&self, call: &Call, handle: &Handle) -> Result<Arc<Operation>, UserError> {
        let session = self.0.lock().find(Scope::Operation, handle).cloned();
        let operation = session.and_then(|session| session.operations.lock().get(handle).cloned());
        operation.filter(|operation| operation.user == call.principal.user).ok_or_else(|| missing("operation"))
    }

    pub(super) fn close_operation(&self, handle: &Handle) {
        let mut table = self.0.lock();
        let operation =
            table.find(Scope::Operation, handle).and_then(|session| session.operations.lock().remove(handle));
        table.remove_operation(handle);
        if let Some(operation) = operation {
            operation.cancelled.cancel();
        }
    }

    /// Closes a session. Its running statements continue: only waits end.
    pub(super) fn close(&self, handle: &Handle) {
        let Some(session) = self.0.lock().remove(handle) else { return };
        for operation in session.operations.lock().values() {
            operation.cancelled.cancel();
        }
    }

    pub(super) fn close_connection(&self, connection: u64) {
        let closed: Vec<Arc<Session>> = {
            let mut table = self.0.lock();
            let of_connection = table.handles_of(|session| session.connection == Some(connection));
            of_connection.iter().filter_map(|handle| table.remove(handle)).collect()
        };
        for session in closed {
            for operation in session.operations.lock().values() {
                operation.cancelled.cancel();
            }
        }
    }
}
