//! The end of a session: answered at once, the backends' sessions closed in the background with a time limit.

use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{TCloseSessionReq, TCloseSessionResp};
use hs2::{Connection, Method, status};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::binding::Bound;
use super::operation::Place;
use super::{Entry, Gone, Session, answer};
use crate::Gateway;
use crate::settings::{BACKGROUND_CLOSE_DEADLINE, HTTP_SESSION_IDLE, IDLE_INTERVAL};

/// How long a metadata agent has to close a session.
const CONTROL_CLOSE_DEADLINE: Duration = Duration::from_secs(5);

pub(super) async fn close(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    seqid: i32,
) -> Result<(), Gone> {
    end(gateway, &entry.handle);
    answer(connection, Method::CloseSession, seqid, &TCloseSessionResp { status: status::success() }).await
}

/// Ends the sessions that a connection leaves behind; statements that run are cancelled by their agents.
pub(crate) fn abandon(gateway: &Arc<Gateway>, connection: u64) {
    for handle in gateway.sessions.of_connection(connection) {
        end(gateway, &handle);
    }
}

/// Ends sessions over HTTP that nobody has named for long, again and again until told to stop.
pub(crate) async fn end_idle(gateway: Arc<Gateway>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(IDLE_INTERVAL) => {}
        }
        for handle in gateway.sessions.idle_over_http(HTTP_SESSION_IDLE, gateway.clock.boottime()) {
            end(&gateway, &handle);
        }
    }
}

fn end(gateway: &Arc<Gateway>, handle: &hs2::Handle) {
    if let Some(entry) = gateway.sessions.remove(handle) {
        end_entry(gateway, entry);
    }
}

/// Ends a session that was taken from the table.
pub(super) fn end_entry(gateway: &Arc<Gateway>, entry: Arc<Entry>) {
    let gateway = Arc::clone(gateway);
    entry.closed.cancel();
    tokio::spawn(async move {
        let mut session = entry.state.lock().await;
        session.present = None;
        session.operations.clear();
        for (_, bound) in std::mem::take(&mut session.engines) {
            end_engine_session(bound).await;
        }
        if let Some(control) = session.control.take() {
            control.close(CONTROL_CLOSE_DEADLINE).await;
        }
        gateway.activity.closed.add();
        debug!(user = session.user, session = %entry.handle, connection = entry.connection, "session closed");
    });
}

/// Lets go of the metadata agent's session once no statement of the session is there. It holds nothing that the next
/// one could not do without, and sessions are many more than an agent may have connections.
pub(super) fn release_control(session: &mut Session) {
    if session.operations.values().any(|it| matches!(it.place, Place::Control(_))) {
        return;
    }
    if let Some(control) = session.control.take() {
        tokio::spawn(control.close(CONTROL_CLOSE_DEADLINE));
    }
}

/// Closes an engine's session. A connection that is between two messages can only be cut: its agent then ends the
/// session and cancels what runs.
pub(super) async fn end_engine_session(mut bound: Bound) {
    if bound.client.is_broken() {
        return;
    }
    bound.client.set_call_deadline(BACKGROUND_CLOSE_DEADLINE);
    let closed = bound.client.close_session(&TCloseSessionReq { session_handle: bound.session.session() }).await;
    if let Err(error) = closed {
        debug!(engine = %bound.route.engine, %error, "an engine's session was cut");
    }
}
