//! Client sessions: opens them, finds the session that a call names, and dispatches the call.

mod cancel;
mod closed;
mod closed_sessions;
pub(crate) mod control;
mod engine;
mod execute;
mod frozen_settings;
mod local;
pub(crate) mod operation;
mod operation_calls;
mod owner;
pub(crate) mod reply;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod time_limit;
pub(crate) mod timeout;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use hs2::scan::Request;
use hs2::tcli::TOpenSessionResp;
use hs2::{Connection, Handle, Limit, Mechanism, Message, Method, Principal, Scope, protocol, status};
use model::error::{ErrorKind, UserError};
use tracing::debug;

use crate::bind::{self, pool};
use crate::gateway::Gateway;
use crate::handshake::Handshake;
use crate::{close, failpoints, impersonate};
use operation::OperationCall;
use owner::Caller;
use reply::{CallError, Disconnect, Reply, malformed, not_supported};
use settings::SessionSettings;
use state::Session;
use table::Entry;
use time_limit::TimeLimit;

/// The number of rows that clients fetch at once by default.
const FETCH_SIZE: &str = "10000";

/// Opens a session. It needs no engine: a user whose tenant has none must be able to run START ENGINE.
pub(crate) async fn open(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    principal: Principal,
    handshake: Handshake,
) -> Result<TOpenSessionResp, UserError> {
    gateway.check_accepts_sessions()?;
    let settings = SessionSettings::read(&handshake.configuration, &gateway.settings.limits, &gateway.budget)?;
    drop(handshake.configuration);
    let principal = impersonate::named_by(gateway, principal, connection.peer().ip(), &settings).await?;
    pool::check(gateway, &principal, &settings).await?;
    let user = principal.user.clone();
    let mut session = Session::new(principal, connection.peer().ip().to_canonical(), settings);
    if session.settings.may_be_refused() {
        tokio::select! {
            checked = bind::bind_if_ready(gateway, &mut session) => checked?,
            () = connection.closed() => {
                return Err(UserError::new(ErrorKind::ConnectionLost, "the client closed its connection"));
            }
        }
    }
    bind::count_session(gateway, &mut session).await?;
    let is_http = connection.mechanism() == Mechanism::Http;
    let (handle, evicted) = gateway.sessions.insert(
        session,
        (!is_http).then(|| connection.id()),
        connection.peer().ip().to_canonical(),
        gateway.clock.boottime(),
    )?;
    if let Some(evicted) = evicted {
        close::close_entry(gateway, evicted);
    }
    gateway.activity.opened.add();
    debug!(user, session = %handle, "session opened");
    model::failpoint!(failpoints::SESSION_OPENED);
    Ok(TOpenSessionResp {
        status: status::success(),
        server_protocol_version: handshake.version,
        session_handle: Some(handle.session()),
        configuration: Some(BTreeMap::from([(protocol::FETCH_SIZE_KEY.to_owned(), FETCH_SIZE.to_owned())])),
    })
}

/// Serves one call of an open session.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    method: Method,
    message: Message,
) -> Result<Reply, CallError> {
    let request = message.request().map_err(|error| malformed(method, &error))?;
    let named = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok());
    let caller = connection.principal().map(|principal| {
        // A caller that names a user to act for may use that user's sessions only.
        let user = principal.via.is_some().then_some(principal.user.as_str());
        Caller { login: principal.login(), user, connection: connection.id() }
    });
    let entry = caller.as_ref().and_then(|caller| gateway.sessions.find(method.scope(), named.as_ref()?, caller));
    let (Some(entry), Some(named)) = (entry, named) else {
        if let Some(limit) = caller.as_ref().and_then(|caller| gateway.sessions.expired_by(named.as_ref()?, caller)) {
            count_refusal(gateway, limit);
            return Err(limit.closed().into());
        }
        let object = if method.scope() == Scope::Operation { "operation" } else { "session" };
        let error = UserError::new(ErrorKind::WrongState, format!("{object} does not exist"))
            .detail("It was closed, or it belongs to another user.")
            .hint("Open a new session.");
        return Err(error.into());
    };
    if method == Method::CloseSession {
        return Ok(close::close(gateway, &entry));
    }
    let now = gateway.clock.boottime();
    if method.scope() == Scope::Session
        && let Some(limit) = gateway.settings.session_age.filter(|limit| entry.age(now) >= *limit)
    {
        // No use of the session, which a client that retries would keep open.
        count_refusal(gateway, TimeLimit::Age(limit));
        return Err(time_limit::too_old(limit).into());
    }
    entry.used(now, method.makes_operation());
    let served = tokio::select! {
        biased;
        served = dispatch(gateway, connection, &entry, named, method, message, &request) => served,
        // The statement is cancelled with the connection to the engine.
        () = entry.closed.wait() => Err(Disconnect::SessionClosed.into()),
    };
    // Idle time begins after a long call, not with it.
    entry.used(gateway.clock.boottime(), false);
    served
}

/// Counts a call that a time limit refuses. Idle times are no limits that refuse anything.
fn count_refusal(gateway: &Gateway, limit: TimeLimit) {
    if let TimeLimit::Age(_) = limit {
        gateway.settings.limits.wire.hits.hit(Limit::SessionAge);
    }
}

/// Everything but the calls that poll and fetch is in a box, so that those need little state.
async fn dispatch(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    method: Method,
    message: Message,
    request: &Request,
) -> Result<Reply, CallError> {
    match (method, method.scope()) {
        (Method::SetClientInfo, _) => Ok(local::set_client_info()),
        (Method::GetInfo, _) => match local::get_info(gateway, entry, &message).await? {
            Some(reply) => Ok(reply),
            None => Box::pin(execute::execute(gateway, connection, entry, message, request)).await,
        },
        (Method::CancelOperation, _) => Box::pin(cancel::cancel(gateway, entry, named)).await,
        (_, Scope::Operation) => {
            let call = OperationCall { method, message, request };
            operation_calls::serve(gateway, connection, entry, named, call).await
        }
        (_, _) if method.makes_operation() => {
            Box::pin(execute::execute(gateway, connection, entry, message, request)).await
        }
        _ => Err(not_supported(method)),
    }
}
