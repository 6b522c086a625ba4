//! One call of a proxy: sessions opened at the engine, everything else relayed, the drain refused before anything is
//! executed.

use std::sync::Arc;

use agent_api::EngineStatus;
use hs2::message::{ExceptionKind, decode_reply, encode_exception, encode_refusal, encode_reply};
use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::{self, Reply, Request};
use hs2::tcli::{
    TCancelOperationReq, TCancelOperationResp, TCloseSessionResp, TFetchResultsResp, TOpenSessionReq, TOpenSessionResp,
    TOperationState, TOperationType,
};
use hs2::{Connection, Handle, Message, Method, Scope, WireError, rowset, status};
use model::error::{ErrorKind, UserError};
use model::table_catalog::TableCatalog;

use super::failpoints;
use super::listener::Relay;
use super::sessions::{EngineSession, Entry, Operation};
use super::settings::{CALL_DEADLINE, STATEMENT_DEADLINE};

/// A reply to a fetch that is at most this long is looked into: it may be the empty batch that ends a result. It is
/// there as a whole then.
const SMALL_BATCH_BYTES: usize = relay::WHOLE_REPLY_BYTES;
/// SQLSTATE *connection does not exist*: what a DataFusion engine answers about a session that it has closed.
const NO_SESSION_STATE: &[u8] = b"08003";
/// How Hive's service begins the same answer.
const NO_SESSION_TEXT: &[u8] = b"Invalid SessionHandle";
/// `fetchType` of a fetch that asks for rows.
const FETCH_ROWS: i16 = 0;

/// Why a connection can't be used any longer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Gone(String);

pub(super) async fn serve(relay: &Arc<Relay>, connection: &mut Connection, message: Message) -> Result<(), Gone> {
    let Some(method) = message.method() else { return extension(relay, connection, &message).await };
    match served(relay, connection, method, &message).await {
        Ok(()) => Ok(()),
        Err(Failed::Refused(error)) => send(connection, &encode_refusal(method, message.seqid(), &error)).await,
        // The engine's session is of no use any longer. Whoever waits for this call is told why, and the end of the
        // connection says that the session is over.
        Err(Failed::Lost(error)) => {
            send(connection, &encode_refusal(method, message.seqid(), &error)).await?;
            Err(Gone(error.text()))
        }
        Err(Failed::Gone(gone)) => Err(gone),
    }
}

enum Failed {
    Refused(UserError),
    /// The engine, or the connection to it, is gone.
    Lost(UserError),
    Gone(Gone),
}

impl From<UserError> for Failed {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

impl From<Gone> for Failed {
    fn from(gone: Gone) -> Self {
        Self::Gone(gone)
    }
}

async fn send(connection: &mut Connection, reply: &[u8]) -> Result<(), Gone> {
    connection.send(reply).await.map_err(|error| Gone(format!("the proxy went away: {error}")))
}

/// The status call, of proxies and masters; nothing else beside `HiveServer2` is spoken here. Over plain Thrift nobody
/// has said who he is, so nobody is answered.
async fn extension(relay: &Arc<Relay>, connection: &mut Connection, message: &Message) -> Result<(), Gone> {
    let reply = if connection.principal().is_none() {
        let text = "only proxies and masters are answered here";
        encode_exception(message.name(), message.seqid(), ExceptionKind::InternalError, text)
    } else if let Some(reason) = relay.silence.reason().filter(|_| message.name() == agent_api::ENGINE_STATUS) {
        let text = format!("engine \"{}\" does not answer: {reason}", relay.settings.engine);
        encode_exception(message.name(), message.seqid(), ExceptionKind::InternalError, &text)
    } else if message.name() == agent_api::ENGINE_STATUS {
        let status = EngineStatus {
            engine: relay.settings.engine.to_string(),
            uid: relay.settings.uid.clone(),
            sessions: relay.sessions.count(),
            running: relay.sessions.running(),
            draining: relay.drain.is_draining(),
        };
        agent_api::answer_engine_status(&message.call(), &status)
    } else {
        let text = format!("unknown method {}", message.name());
        encode_exception(message.name(), message.seqid(), ExceptionKind::UnknownMethod, &text)
    };
    send(connection, &reply).await
}

async fn served(
    relay: &Arc<Relay>,
    connection: &mut Connection,
    method: Method,
    message: &Message,
) -> Result<(), Failed> {
    let Some(principal) = connection.principal().filter(|it| it.service.as_deref() == Some(agent_api::SERVICE_PROXY))
    else {
        return Err(UserError::new(ErrorKind::InsufficientPrivilege, "only a proxy opens sessions here").into());
    };
    let user = principal.user.clone();
    if method == Method::OpenSession {
        let response = open(relay, connection.id(), user, message).await?;
        return Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?);
    }
    let request = message
        .request()
        .map_err(|error| UserError::new(ErrorKind::Syntax, "the call can't be read").detail(error.to_string()))?;
    let named = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok());
    let found = named.and_then(|named| {
        let entry = match method.scope() {
            Scope::Operation => relay.sessions.of_operation(&named),
            _ => relay.sessions.session(&named),
        };
        // Cancel and close may come on another connection of the same user; everything else on its own only.
        let anywhere = matches!(method, Method::CancelOperation | Method::CloseSession);
        entry.filter(|it| it.user == user && (anywhere || it.connection == connection.id())).map(|it| (it, named))
    });
    let Some((entry, named)) = found else {
        return Err(UserError::new(ErrorKind::WrongState, "the session or operation does not exist").into());
    };
    match method {
        Method::CloseSession => {
            relay.sessions.end(&named);
            let response = TCloseSessionResp { status: status::success() };
            Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?)
        }
        Method::CancelOperation => {
            cancel(relay, &entry, &named).await?;
            let response = TCancelOperationResp { status: status::success() };
            Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?)
        }
        _ if method.scope() == Scope::Operation => {
            let Some(operation) = entry.operation(&named) else {
                return Err(UserError::new(ErrorKind::WrongState, "the operation does not exist").into());
            };
            on_operation(relay, connection, method, message, &request, &entry, named, operation).await
        }
        _ => on_session(relay, connection, method, message, &request, &entry).await,
    }
}

fn draining(relay: &Relay) -> UserError {
    UserError::new(ErrorKind::EngineDraining, format!("engine \"{}\" drains", relay.settings.engine))
        .detail("nothing of the statement was executed")
        .hint("say it again: another engine takes it")
}

async fn open(
    relay: &Arc<Relay>,
    connection: u64,
    user: String,
    message: &Message,
) -> Result<TOpenSessionResp, UserError> {
    if relay.drain.is_draining() {
        return Err(draining(relay));
    }
    relay.sessions.room()?;
    let mut request: TOpenSessionReq = message.call().decode().map_err(|error| error.user_error("the proxy"))?;
    request.username = Some(user.clone());
    request.password = None;
    let mut client = relay.sessions.connect(&user).await?;
    let mut response = client.open_session(&request).await?;
    let handle = response.session_handle.as_ref().map(Handle::try_from);
    let Some(Ok(handle)) = handle else {
        return Err(UserError::internal("the engine opened a session without a handle"));
    };
    model::failpoint!(failpoints::SESSION_OPENED);
    let ours = relay.sessions.insert(user, connection, EngineSession { client, handle })?;
    response.session_handle = Some(ours.session());
    Ok(response)
}

/// Cancels on a connection of its own: the session's may be in the middle of a call.
async fn cancel(relay: &Arc<Relay>, entry: &Entry, named: &Handle) -> Result<(), UserError> {
    let Some(operation) = entry.operation(named) else { return Ok(()) };
    let mut aside = relay.sessions.connect(&entry.user).await?;
    aside.cancel_operation(&TCancelOperationReq { operation_handle: operation.at_engine() }).await?;
    entry.update(named, Operation::end);
    Ok(())
}

/// A call that names a session: a statement, a metadata call, information.
async fn on_session(
    relay: &Arc<Relay>,
    connection: &mut Connection,
    method: Method,
    message: &Message,
    request: &Request,
    entry: &Arc<Entry>,
) -> Result<(), Failed> {
    if method.makes_operation() {
        // The count of calls was raised before this look, so a drain that begins now waits for this call.
        if relay.drain.is_draining() && !entry.is_pinned() {
            return Err(draining(relay).into());
        }
        entry.room_for_operation()?;
        let text = request.statement_in(message.bytes()).and_then(|bytes| std::str::from_utf8(bytes).ok());
        // Before it is sent: what fails half way may have left state behind.
        let has_own_tables = relay.settings.catalog == TableCatalog::Own;
        let pins = |text| ddl::pins_session(text) || (has_own_tables && ddl::changes_tables(text));
        if method == Method::ExecuteStatement && text.is_none_or(pins) {
            entry.pin();
        }
    }
    let mut session = entry.state.lock().await;
    let backend = session.handle;
    let patched = patched(message, request, &backend)?;
    let deadline =
        if method == Method::ExecuteStatement && request.run_async { CALL_DEADLINE } else { STATEMENT_DEADLINE };
    let runs_on = method == Method::ExecuteStatement && request.run_async;
    let executing = (method.makes_operation() && !runs_on).then(|| entry.executing());
    let outcome = relay::exchange(connection, &patched, &mut session.client, deadline, |reply, bytes| {
        if has_no_session(reply, bytes) || is_only_an_agents(reply) {
            return Decision::Hold;
        }
        let Some(backend) = reply.handle.filter(|_| reply.succeeded()).and_then(|at| at.read(bytes).ok()) else {
            return Decision::Forward;
        };
        let result_waits = reply.has_result_set.unwrap_or(true);
        let kind = reply.operation_type.map_or(TOperationType::EXECUTE_STATEMENT, TOperationType);
        let ours = entry.keep(Operation { backend, kind, running: runs_on, result_waits });
        relay.sessions.name_operation(ours, entry.handle);
        model::failpoint!(failpoints::STATEMENT_ACCEPTED);
        Decision::ForwardAs(ours)
    })
    .await;
    drop(executing);
    match outcome {
        // Found dead before anything was sent: a new session, here or at another engine, may have the call.
        Err(RelayError::Broken) if method.makes_operation() => {
            Err(Failed::Lost(session_lost(relay, entry, "Its connection to the engine was closed")))
        }
        Ok(Outcome::Held(reply)) => Err(instead_of(relay, entry, &reply)),
        outcome => outcome.map(|_| ()).map_err(|error| failed(relay, &error)),
    }
}

/// The error for a call that found no session at the engine; nothing of it was executed. State of the session's own is
/// lost with the session.
fn session_lost(relay: &Relay, entry: &Entry, why: &str) -> UserError {
    let engine = &relay.settings.engine;
    if entry.is_pinned() {
        return UserError::new(ErrorKind::ConnectionLost, format!("the session at engine \"{engine}\" was lost"))
            .detail(format!("{why}; temporary views, variables and the like were lost with it."))
            .hint("Open a new session.");
    }
    UserError::new(ErrorKind::EngineSessionLost, format!("the session at engine \"{engine}\" was lost"))
        .detail(format!("{why}; nothing of the statement was executed."))
        .hint("Retry the statement.")
}

/// What is answered instead of a reply of the engine that is not passed on.
fn instead_of(relay: &Relay, entry: &Entry, bytes: &[u8]) -> Failed {
    match scan::reply(bytes) {
        Ok(reply) if has_no_session(&reply, bytes) => {
            Failed::Lost(session_lost(relay, entry, "The engine has closed it, because it was idle for long"))
        }
        _ => Failed::Refused(
            UserError::internal(format!("engine \"{}\" answered with an error of agents", relay.settings.engine))
                .detail("Its error code is reserved for the agents of engines."),
        ),
    }
}

/// Whether the engine answers that it has no such session: ours in SQLSTATE, Hive's service (Spark) in words.
fn has_no_session(reply: &Reply, bytes: &[u8]) -> bool {
    let part = |range: &Option<std::ops::Range<usize>>| range.clone().and_then(|range| bytes.get(range)).unwrap_or(b"");
    !reply.succeeded()
        && reply.status.is_some()
        && (part(&reply.sql_state) == NO_SESSION_STATE || part(&reply.error_message).starts_with(NO_SESSION_TEXT))
}

/// Whether the engine claims what only its agent may: that nothing was executed and another engine may have the call.
fn is_only_an_agents(reply: &Reply) -> bool {
    matches!(reply.error_code, Some(status::ENGINE_DRAINING | status::ENGINE_SESSION_LOST))
}

/// A call that names an operation: what its reply tells of the operation's end is noted on the way.
#[expect(clippy::too_many_arguments, reason = "all of it is one call's context")]
async fn on_operation(
    relay: &Arc<Relay>,
    connection: &mut Connection,
    method: Method,
    message: &Message,
    request: &Request,
    entry: &Arc<Entry>,
    named: Handle,
    operation: Operation,
) -> Result<(), Failed> {
    let mut session = entry.state.lock().await;
    let patched = patched(message, request, &operation.backend)?;
    let asks_for_rows = method == Method::FetchResults && request.fetch_type == FETCH_ROWS;
    let deadline = if asks_for_rows { STATEMENT_DEADLINE } else { CALL_DEADLINE };
    let outcome = relay::exchange(connection, &patched, &mut session.client, deadline, |reply, bytes| {
        note(entry, &named, method, asks_for_rows, reply, bytes);
        Decision::Forward
    })
    .await;
    if method == Method::CloseOperation {
        relay.sessions.forget_operation(entry, &named);
    }
    outcome.map(|_| ()).map_err(|error| failed(relay, &error))
}

fn note(entry: &Entry, named: &Handle, method: Method, asks_for_rows: bool, reply: &Reply, bytes: &[u8]) {
    if method == Method::GetOperationStatus {
        let state = reply.operation_state.map(TOperationState);
        if let Some(state) = state {
            entry.update(named, |it| it.told(state, reply.has_result_set));
        }
    }
    if asks_for_rows && (!reply.succeeded() || is_empty_batch(bytes)) {
        entry.update(named, Operation::end);
    }
}

/// Whether the bytes are a whole reply without rows: that is how a result ends.
fn is_empty_batch(bytes: &[u8]) -> bool {
    if bytes.len() > SMALL_BATCH_BYTES {
        return false;
    }
    let decoded: Result<TFetchResultsResp, _> = decode_reply(bytes);
    decoded.is_ok_and(|it| it.results.is_none_or(|rows| rowset::row_count(&rows).is_ok_and(|count| count == 0)))
}

fn patched(message: &Message, request: &Request, handle: &Handle) -> Result<Message, UserError> {
    let unreadable = |error: scan::ScanError| UserError::internal(format!("the call can't be relayed: {error}"));
    let mut bytes = message.bytes().to_vec();
    if let Some(at) = &request.handle {
        at.patch(&mut bytes, handle).map_err(unreadable)?;
    }
    Message::new(bytes).map_err(unreadable)
}

fn failed(relay: &Relay, error: &RelayError) -> Failed {
    if let RelayError::Backend { error: WireError::TooLong { bytes, limit }, partly: false } = error {
        return Failed::Lost(
            UserError::new(
                ErrorKind::ProgramLimit,
                format!("an answer of engine \"{}\" is too long", relay.settings.engine),
            )
            .detail(format!("it has {bytes} bytes and may have {limit}"))
            .hint("fetch fewer rows at a time, or select parts of long values"),
        );
    }
    if error.client_is_usable() {
        return Failed::Lost(
            UserError::new(ErrorKind::ConnectionLost, format!("engine \"{}\" was lost", relay.settings.engine))
                .detail(error.to_string())
                .hint("the statement is not sent again, because it may have taken effect; look, then say it again"),
        );
    }
    Failed::Gone(Gone(error.to_string()))
}
