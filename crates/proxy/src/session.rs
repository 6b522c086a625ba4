//! Client sessions: opens them, finds the session that a call names, and takes each call to its reply.
//!
//! A statement is classified, then answered here, executed by a metadata agent, or bound to an engine and relayed.

mod cancel;
pub(crate) mod control;
mod local;
pub(crate) mod operation;
mod operation_calls;
pub(crate) mod reply;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod timeout;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use hs2::scan::Request;
use hs2::tcli::TOpenSessionResp;
use hs2::{Connection, Handle, Mechanism, Message, Method, Scope, protocol, status};
use model::error::{ErrorKind, UserError};
use tracing::debug;

use crate::bind::{self, NotBound, no_engine, pool};
use crate::budget::Held;
use crate::classify::{self, Statement, classify};
use crate::gateway::Gateway;
use crate::handshake::Handshake;
use crate::relay::{self, Deliver, Relayed};
use crate::settings::{MAX_HANDOVERS, POLL_STEP};
use crate::{close, failpoints};
use operation::{EngineCall, Operation, OperationState};
use reply::{Disconnect, not_supported, refuse};
use settings::SessionSettings;
use state::Session;
use table::{Caller, Entry};
use timeout::Timeout;

/// The number of rows that clients fetch at once by default.
const FETCH_SIZE: &str = "10000";

/// Opens a session. It needs no engine: a user whose tenant has none must be able to run START ENGINE.
pub(crate) async fn open(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    user: String,
    handshake: Handshake,
) -> Result<TOpenSessionResp, UserError> {
    gateway.check_accepts_sessions()?;
    let settings = SessionSettings::read(&handshake.configuration, &gateway.settings.limits, &gateway.budget)?;
    drop(handshake.configuration);
    pool::check(gateway, &user, &settings).await?;
    let mut session = Session::new(user.clone(), settings);
    if session.settings.may_be_refused() {
        tokio::select! {
            checked = bind::bind_if_ready(gateway, &mut session) => checked?,
            () = connection.closed() => {
                return Err(UserError::new(ErrorKind::ConnectionLost, "the client closed its connection"));
            }
        }
    }
    let is_http = connection.mechanism() == Mechanism::HttpBasic;
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
) -> Result<(), Disconnect> {
    let seqid = message.seqid();
    let request = match message.request() {
        Ok(request) => request,
        Err(error) => {
            let error = UserError::new(ErrorKind::Syntax, format!("malformed {} request", method.name()))
                .detail(format!("{error}."));
            return refuse(connection, method, seqid, &error).await;
        }
    };
    let named = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok());
    let entry = connection.principal().and_then(|principal| {
        let caller = Caller { user: &principal.user, connection: connection.id() };
        gateway.sessions.find(method.scope(), named.as_ref()?, &caller)
    });
    let (Some(entry), Some(named)) = (entry, named) else {
        let object = if method.scope() == Scope::Operation { "operation" } else { "session" };
        let error = UserError::new(ErrorKind::WrongState, format!("{object} does not exist"))
            .detail("It was closed, or it belongs to another user.")
            .hint("Open a new session.");
        return refuse(connection, method, seqid, &error).await;
    };
    entry.used(gateway.clock.boottime(), method.makes_operation());
    if method == Method::CloseSession {
        return close::close(gateway, connection, &entry, seqid).await;
    }
    let closed = entry.closed.clone();
    tokio::select! {
        served = dispatch(gateway, connection, &entry, named, method, message, &request) => served,
        // The statement is cancelled with the connection to the engine.
        () = closed.cancelled() => Err(Disconnect::because("another connection closed the session")),
    }
}

async fn dispatch(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    method: Method,
    message: Message,
    request: &Request,
) -> Result<(), Disconnect> {
    let seqid = message.seqid();
    match (method, method.scope()) {
        (Method::SetClientInfo, _) => local::set_client_info(connection, seqid).await,
        (Method::GetInfo, _) => match local::get_info(gateway, connection, entry, message).await? {
            Some(message) => execute_metadata_call(gateway, connection, entry, message).await,
            None => Ok(()),
        },
        (Method::ExecuteStatement, _) => execute_statement(gateway, connection, entry, message, request).await,
        (Method::CancelOperation, _) => cancel::cancel(gateway, connection, entry, named, seqid).await,
        (_, Scope::Operation) => operation_calls::serve(gateway, connection, entry, named, message, request).await,
        (_, _) if method.makes_operation() => execute_metadata_call(gateway, connection, entry, message).await,
        _ => not_supported(connection, method, seqid).await,
    }
}

/// The bytes that a call makes the proxy keep, if the session may have one more operation.
fn admit(gateway: &Gateway, session: &Session, message: &Message) -> Result<Held, UserError> {
    session.check_operation_limit()?;
    session.hold(&gateway.budget, gateway.settings.limits.session_statement_bytes, message.bytes().len())
}

/// `ExecuteStatement`.
async fn execute_statement(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
    request: &Request,
) -> Result<(), Disconnect> {
    let seqid = message.seqid();
    let mut session = entry.state.lock().await;
    gateway.activity.statements.add();
    let mut held = match admit(gateway, &session, &message) {
        Ok(held) => held,
        Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
    };
    let timeout = Timeout::new(request, session.settings.statement_timeout, gateway.clock.boottime());
    match classify(request.statement_in(message.bytes()).unwrap_or_default()) {
        Statement::Control(text) => {
            let statement = control::ControlStatement { text, run_async: request.run_async, timeout, held };
            let served = control::execute(gateway, connection, entry, &mut session, statement, seqid).await;
            // A refused statement has left no operation whose close would release the backend.
            session.release_control();
            return served;
        }
        Statement::Session(text, statement) => {
            if let Err(error) = pool::check_set(gateway, &session, &statement).await {
                return refuse(connection, Method::ExecuteStatement, seqid, &error).await;
            }
            if session.is_unbound() && classify::prefers_engine(&statement) {
                let bound = tokio::select! {
                    bound = bind::bind_if_ready(gateway, &mut session) => bound,
                    () = connection.closed() => return Err(Disconnect::client_left("its session was bound")),
                };
                if let Err(error) = bound {
                    return refuse(connection, Method::ExecuteStatement, seqid, &error).await;
                }
            }
            match local::execute(&mut session, text, &statement, &mut held) {
                Ok(Some(result)) => {
                    let has_result = result.has_result();
                    let operation = Operation::new(OperationState::Local(result.holding(held)));
                    let handle = gateway.sessions.keep_operation(entry, &mut session, operation);
                    return reply::accepted(connection, seqid, handle, has_result).await;
                }
                Ok(None) => {}
                Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
            }
        }
        Statement::Engine => {}
    }
    let call =
        EngineCall { message, statement: request.statement.clone(), run_async: request.run_async, timeout, held };
    execute_at_engine(gateway, connection, entry, &mut session, call).await
}

/// A metadata call (`GetTables` and its like), or `GetInfo` of a bound session: the engine answers it.
async fn execute_metadata_call(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
) -> Result<(), Disconnect> {
    let mut session = entry.state.lock().await;
    let Some(method) = message.method() else { return Ok(()) };
    let held = match admit(gateway, &session, &message) {
        Ok(held) => held,
        Err(error) => return refuse(connection, method, message.seqid(), &error).await,
    };
    let call = EngineCall { message, statement: None, run_async: false, timeout: None, held };
    execute_at_engine(gateway, connection, entry, &mut session, call).await
}

/// Binds the session and relays the call; to another engine as long as engines refuse because they drain.
async fn execute_at_engine(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    session: &mut Session,
    call: EngineCall,
) -> Result<(), Disconnect> {
    let (method, seqid) = (call.method(), call.message.seqid());
    let since = gateway.clock.boottime();
    let mut handovers = 0;
    let mut changes = gateway.routes.changes();
    loop {
        let bound = tokio::select! {
            bound = bind::bind(gateway, session) => bound,
            // An engine session that is being opened is cut with its connection.
            () = connection.closed() => return Err(Disconnect::client_left("its session was bound")),
        };
        match bound {
            Ok(()) => {}
            Err(NotBound::Refused(error)) => {
                let error = classify::with_near_miss(error, call.text());
                return refuse(connection, method, seqid, &error).await;
            }
            Err(NotBound::Wait(reason)) if call.run_async => {
                let handle = waiting::begin(gateway, entry, session, call, since, reason);
                return reply::accepted(connection, seqid, handle, true).await;
            }
            Err(NotBound::Wait(reason)) => {
                let now = gateway.clock.boottime();
                let waited = now.saturating_sub(since);
                if waited >= gateway.settings.bind_deadline {
                    return refuse(connection, method, seqid, &no_engine::waited_too_long(waited, &reason)).await;
                }
                let pause = match call.timeout {
                    Some(timeout) if timeout.left(now).is_zero() => {
                        return refuse(connection, method, seqid, &timeout.error_waiting_for(&reason)).await;
                    }
                    Some(timeout) => timeout.left(now).min(POLL_STEP),
                    None => POLL_STEP,
                };
                tokio::select! {
                    _ = tokio::time::timeout(pause, changes.changed()) => {}
                    () = connection.closed() => return Err(Disconnect::client_left("it waited for an engine")),
                }
                continue;
            }
        }
        match relay::relay(gateway, connection, entry, session, &call, Deliver::ToClient).await? {
            Relayed::Delivered => return Ok(()),
            Relayed::Draining(_) if handovers < MAX_HANDOVERS => handovers += 1,
            Relayed::Draining(error) | Relayed::Lost(error) | Relayed::TimedOut(error) | Relayed::Refused(error) => {
                return refuse(connection, method, seqid, &error).await;
            }
            Relayed::Running { .. } => {
                let error = UserError::internal("the reply of the engine was not delivered");
                return refuse(connection, method, seqid, &error).await;
            }
        }
    }
}
