//! The end of a session: the client is answered at once, the backends' sessions are closed in the background with a time
//! limit.

use std::sync::Arc;

use hs2::tcli::TCloseSessionResp;
use hs2::{Handle, status};
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use crate::gateway::Gateway;
use crate::session::reply::Reply;
use crate::session::table::Entry;
use crate::session::time_limit::TimeLimit;

/// Serves `CloseSession`.
pub(crate) fn close(gateway: &Arc<Gateway>, entry: &Entry) -> Reply {
    close_session(gateway, &entry.handle);
    TCloseSessionResp { status: status::success() }.into()
}

/// Closes the sessions of a connection that ended; their agents cancel the statements that run.
pub(crate) fn close_sessions_of(gateway: &Arc<Gateway>, connection: u64) {
    for handle in gateway.sessions.of_connection(connection) {
        close_session(gateway, &handle);
    }
}

/// Closes a session that exceeds a time limit, with these operations; `closing` is kept until that is done.
pub(crate) fn close_expired(
    gateway: &Arc<Gateway>,
    handle: &Handle,
    operations: Vec<Handle>,
    limit: TimeLimit,
    closing: OwnedSemaphorePermit,
) {
    if let Some(entry) = gateway.sessions.remove_expired(handle, operations, limit) {
        close_in_background(gateway, entry, Some(closing));
    }
}

fn close_session(gateway: &Arc<Gateway>, handle: &Handle) {
    if let Some(entry) = gateway.sessions.remove(handle) {
        close_entry(gateway, entry);
    }
}

/// Closes a session that was removed from the table.
pub(crate) fn close_entry(gateway: &Arc<Gateway>, entry: Arc<Entry>) {
    close_in_background(gateway, entry, None);
}

fn close_in_background(gateway: &Arc<Gateway>, entry: Arc<Entry>, closing: Option<OwnedSemaphorePermit>) {
    let gateway = Arc::clone(gateway);
    entry.closed.set();
    tokio::spawn(async move {
        let mut session = entry.state.lock().await;
        session.close().await;
        gateway.activity.closed.add();
        debug!(user = session.principal.user, session = %entry.handle, connection = entry.owner.connection, "session closed");
        drop(closing);
    });
}
