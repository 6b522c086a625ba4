//! Serves one call of a proxy: opens sessions at the engine, relays everything else, and refuses statements while the
//! engine drains before anything is executed.

use std::sync::Arc;

use hs2::answer::encode_refusal;
use hs2::message::{decode_reply, encode_reply};
use hs2::relay::{self, Decision, Outcome, RelayError};
use hs2::scan::{self, Reply, Request};
use hs2::tcli::{
    TCancelOperationReq, TCancelOperationResp, TCloseSessionResp, TFetchResultsResp, TOpenSessionReq, TOpenSessionResp,
    TOperationState, TOperationType,
};
use hs2::{Connection, Handle, Message, Method, Scope, WireError, rowset, status};
use model::error::{ErrorKind, UserError};
use model::table_catalog::TableCatalog;

use super::context::AgentContext;
use super::entry::{EngineSession, Entry};
use super::extension;
use super::failpoints;
use super::operation::Operation;
use super::settings::{CALL_DEADLINE, STATEMENT_DEADLINE};

/// A reply to a fetch of at most this length is decoded: it may be the empty batch that ends a result. Replies of this
/// length are held whole.
const SMALL_BATCH_BYTES: usize = relay::WHOLE_REPLY_BYTES;
/// SQLSTATE *connection does not exist*: the reply of a DataFusion engine for a session that it has closed.
const NO_SESSION_STATE: &[u8] = b"08003";
/// The beginning of the same error of Hive's service.
const NO_SESSION_TEXT: &[u8] = b"Invalid SessionHandle";
/// `fetchType` of a fetch that asks for rows.
const FETCH_ROWS: i16 = 0;

/// Why a proxy connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    /// The engine's session is unusable. The caller has the error; the end of its connection ends the session.
    #[error("{}", .0.text())]
    EngineLost(UserError),
    #[error("the reply could not be sent")]
    Send(#[from] WireError),
    #[error("the reply of the engine could not be relayed")]
    Relay(#[source] RelayError),
}

pub(super) async fn serve(
    agent: &Arc<AgentContext>,
    connection: &mut Connection,
    mut message: Message,
) -> Result<(), Disconnect> {
    let Some(method) = message.method() else {
        let reply = extension::reply(agent, connection.principal(), &message);
        return send(connection, &reply).await;
    };
    match served(agent, connection, method, &mut message).await {
        Ok(()) => Ok(()),
        Err(Failure::Refused(error)) => send(connection, &encode_refusal(method, message.seqid(), &error)).await,
        Err(Failure::Lost(error)) => {
            send(connection, &encode_refusal(method, message.seqid(), &error)).await?;
            Err(Disconnect::EngineLost(error))
        }
        Err(Failure::Disconnect(disconnect)) => Err(disconnect),
    }
}

enum Failure {
    Refused(UserError),
    /// The engine, or the connection to it, was lost.
    Lost(UserError),
    Disconnect(Disconnect),
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

impl From<Disconnect> for Failure {
    fn from(disconnect: Disconnect) -> Self {
        Self::Disconnect(disconnect)
    }
}

async fn send(connection: &mut Connection, reply: &[u8]) -> Result<(), Disconnect> {
    Ok(connection.send(reply).await?)
}

async fn served(
    agent: &Arc<AgentContext>,
    connection: &mut Connection,
    method: Method,
    message: &mut Message,
) -> Result<(), Failure> {
    let Some(principal) =
        connection.principal().filter(|principal| principal.service.as_deref() == Some(agent_api::SERVICE_PROXY))
    else {
        return Err(
            UserError::new(ErrorKind::InsufficientPrivilege, "only proxies may open sessions at an engine").into()
        );
    };
    let user = principal.user.clone();
    if method == Method::OpenSession {
        let response = Box::pin(open(agent, connection.id(), user, message)).await?;
        return Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?);
    }
    let request = message.request().map_err(|error| {
        UserError::new(ErrorKind::Syntax, format!("malformed {} request", method.name())).detail(format!("{error}."))
    })?;
    let named = request.handle.as_ref().and_then(|at| at.read(message.bytes()).ok());
    let found = named.and_then(|named| {
        let entry = agent.sessions.find(method.scope(), &named)?;
        // Cancel and close may arrive on another connection of the same user, other calls only on the session's own.
        let on_any = matches!(method, Method::CancelOperation | Method::CloseSession);
        (entry.user == user && (on_any || entry.connection == connection.id())).then_some((entry, named))
    });
    let Some((entry, named)) = found else {
        return Err(UserError::new(ErrorKind::WrongState, "session or operation does not exist").into());
    };
    match method {
        Method::CloseSession => {
            agent.sessions.close(&named);
            let response = TCloseSessionResp { status: status::success() };
            Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?)
        }
        Method::CancelOperation => {
            Box::pin(cancel(agent, &entry, &named)).await?;
            let response = TCancelOperationResp { status: status::success() };
            Ok(send(connection, &encode_reply(method.name(), message.seqid(), &response)).await?)
        }
        _ if method.scope() == Scope::Operation => {
            let Some(operation) = entry.operation(&named) else {
                return Err(UserError::new(ErrorKind::WrongState, "operation does not exist").into());
            };
            on_operation(agent, connection, method, message, &request, &entry, named, operation).await
        }
        _ => on_session(agent, connection, method, message, &request, &entry).await,
    }
}

fn draining(agent: &AgentContext) -> UserError {
    UserError::new(ErrorKind::EngineDraining, format!("engine \"{}\" is draining", agent.settings.engine))
        .detail("Nothing of the statement was executed.")
        .hint("Retry; the statement will run on another engine.")
}

async fn open(
    agent: &Arc<AgentContext>,
    connection: u64,
    user: String,
    message: &Message,
) -> Result<TOpenSessionResp, UserError> {
    if agent.drain.is_draining() {
        return Err(draining(agent));
    }
    let mut request: TOpenSessionReq = message.call().decode().map_err(|error| error.user_error("the proxy"))?;
    let sharer = request.configuration.as_mut().and_then(|settings| agent_api::take_sharer(settings, &user));
    let opening = agent.sessions.begin_open(sharer.as_ref())?;
    request.username = Some(user.clone());
    request.password = None;
    let mut client = agent.sessions.connect(&user).await?;
    let mut response = client.open_session(&request).await?;
    let handle = response.session_handle.as_ref().map(Handle::try_from);
    let Some(Ok(handle)) = handle else {
        return Err(UserError::internal("the engine opened a session without a handle"));
    };
    model::failpoint!(failpoints::SESSION_OPENED);
    let ours = agent.sessions.insert(opening, user, connection, EngineSession { client, handle })?;
    response.session_handle = Some(ours.session());
    Ok(response)
}

/// Cancels on a side connection: the session's own may be in the middle of a call.
async fn cancel(agent: &Arc<AgentContext>, entry: &Entry, named: &Handle) -> Result<(), UserError> {
    let Some(operation) = entry.operation(named) else { return Ok(()) };
    let mut side_connection = agent.sessions.connect(&entry.user).await?;
    side_connection.cancel_operation(&TCancelOperationReq { operation_handle: operation.at_engine() }).await?;
    entry.update(named, Operation::end);
    Ok(())
}

/// Relays a call that names a session: a statement, a metadata call, `GetInfo`.
async fn on_session(
    agent: &Arc<AgentContext>,
    connection: &mut Connection,
    method: Method,
    message: &mut Message,
    request: &Request,
    entry: &Arc<Entry>,
) -> Result<(), Failure> {
    if method.makes_operation() {
        // The call was counted before this check, so a drain that begins now waits for it.
        if agent.drain.is_draining() && !entry.is_pinned() {
            return Err(draining(agent).into());
        }
        entry.check_operation_limit()?;
        let text = request.statement_in(message.bytes()).and_then(|bytes| std::str::from_utf8(bytes).ok());
        // Before the statement is sent: one that fails may have left state.
        let has_own_tables = agent.settings.catalog == TableCatalog::Own;
        let pins = |text| ddl::pins_session(text) || (has_own_tables && ddl::changes_tables(text));
        if method == Method::ExecuteStatement && text.is_none_or(pins) {
            entry.pin_to_engine();
        }
    }
    let mut session = entry.state.lock().await;
    let backend = session.handle;
    address(message, request, &backend)?;
    let deadline =
        if method == Method::ExecuteStatement && request.run_async { CALL_DEADLINE } else { STATEMENT_DEADLINE };
    let runs_on = method == Method::ExecuteStatement && request.run_async;
    let executing = (method.makes_operation() && !runs_on).then(|| entry.executing());
    let outcome = relay::exchange(connection, message, &mut session.client, deadline, |reply, bytes| {
        if has_no_session(reply, bytes) || claims_agent_error(reply) {
            return Decision::Buffer;
        }
        let Some(backend) = reply.handle.filter(|_| reply.succeeded()).and_then(|at| at.read(bytes).ok()) else {
            return Decision::Forward;
        };
        let result_waits = reply.has_result_set.unwrap_or(true);
        let kind = reply.operation_type.map_or(TOperationType::EXECUTE_STATEMENT, TOperationType);
        let ours = entry.keep(Operation { backend, kind, running: runs_on, result_waits });
        agent.sessions.add_operation(ours, &entry.handle);
        model::failpoint!(failpoints::STATEMENT_ACCEPTED);
        Decision::ForwardAs(ours)
    })
    .await;
    drop(executing);
    match outcome {
        // The connection was found broken before the call was sent: a new session, here or at another engine, can run it.
        Err(RelayError::Broken) if method.makes_operation() => {
            Err(Failure::Lost(session_lost(agent, entry, "Its connection to the engine was closed")))
        }
        Ok(Outcome::Buffered(reply)) => Err(replacement_of(agent, entry, &reply)),
        outcome => outcome.map(|_| ()).map_err(|error| relay_failure(agent, error)),
    }
}

/// The error of a call that found no session at the engine. Nothing of it was executed, but state of a pinned session is
/// lost.
fn session_lost(agent: &AgentContext, entry: &Entry, why: &str) -> UserError {
    let engine = &agent.settings.engine;
    if entry.is_pinned() {
        return UserError::new(ErrorKind::ConnectionLost, format!("the session at engine \"{engine}\" was lost"))
            .detail(format!("{why}; temporary views, variables and the like were lost with it."))
            .hint("Open a new session.");
    }
    UserError::new(ErrorKind::EngineSessionLost, format!("the session at engine \"{engine}\" was lost"))
        .detail(format!("{why}; nothing of the statement was executed."))
        .hint("Retry the statement.")
}

/// The error that replaces a reply of the engine that must not reach the proxy.
fn replacement_of(agent: &AgentContext, entry: &Entry, bytes: &[u8]) -> Failure {
    match scan::reply(bytes) {
        Ok(reply) if has_no_session(&reply, bytes) => {
            Failure::Lost(session_lost(agent, entry, "The engine has closed it, because it was idle for long"))
        }
        _ => Failure::Refused(
            UserError::internal(format!("engine \"{}\" replied with an error code of agents", agent.settings.engine))
                .detail("Its error code is reserved for engine agents."),
        ),
    }
}

/// Whether the engine reports that it has no such session: DataFusion by SQLSTATE, Hive's service (Spark) by text.
fn has_no_session(reply: &Reply, bytes: &[u8]) -> bool {
    let part = |range: &Option<std::ops::Range<usize>>| range.clone().and_then(|range| bytes.get(range)).unwrap_or(b"");
    !reply.succeeded()
        && reply.status.is_some()
        && (part(&reply.sql_state) == NO_SESSION_STATE || part(&reply.error_message).starts_with(NO_SESSION_TEXT))
}

/// Whether the engine uses an error code that only its agent may: nothing was executed, another engine may run the call.
fn claims_agent_error(reply: &Reply) -> bool {
    let of_agents = [status::ENGINE_DRAINING, status::ENGINE_SESSION_LOST, status::ENGINE_FULL, status::ENGINE_OWNED];
    reply.error_code.is_some_and(|code| of_agents.contains(&code))
}

/// Relays a call that names an operation, and records the operation's end if the reply reports it.
#[expect(clippy::too_many_arguments, reason = "all of it is one call's context")]
async fn on_operation(
    agent: &Arc<AgentContext>,
    connection: &mut Connection,
    method: Method,
    message: &mut Message,
    request: &Request,
    entry: &Arc<Entry>,
    named: Handle,
    operation: Operation,
) -> Result<(), Failure> {
    let mut session = entry.state.lock().await;
    address(message, request, &operation.backend)?;
    let fetches_rows = method == Method::FetchResults && request.fetch_type == FETCH_ROWS;
    let deadline = if fetches_rows { STATEMENT_DEADLINE } else { CALL_DEADLINE };
    let outcome = relay::exchange(connection, message, &mut session.client, deadline, |reply, bytes| {
        record_end(entry, &named, method, fetches_rows, reply, bytes);
        Decision::Forward
    })
    .await;
    if method == Method::CloseOperation {
        agent.sessions.remove_operation(entry, &named);
    }
    outcome.map(|_| ()).map_err(|error| relay_failure(agent, error))
}

fn record_end(entry: &Entry, named: &Handle, method: Method, fetches_rows: bool, reply: &Reply, bytes: &[u8]) {
    if method == Method::GetOperationStatus {
        let state = reply.operation_state.map(TOperationState);
        if let Some(state) = state {
            entry.update(named, |operation| operation.set_state(state, reply.has_result_set));
        }
    }
    if fetches_rows && (!reply.succeeded() || is_empty_batch(bytes)) {
        entry.update(named, Operation::end);
    }
}

/// Whether the bytes are a whole reply without rows: that is how a result ends.
fn is_empty_batch(bytes: &[u8]) -> bool {
    if bytes.len() > SMALL_BATCH_BYTES {
        return false;
    }
    let decoded: Result<TFetchResultsResp, _> = decode_reply(bytes);
    decoded.is_ok_and(|reply| reply.results.is_none_or(|rows| rowset::row_count(&rows).is_ok_and(|count| count == 0)))
}

/// Puts the engine's handle in place of ours.
fn address(message: &mut Message, request: &Request, handle: &Handle) -> Result<(), UserError> {
    let Some(at) = &request.handle else { return Ok(()) };
    let patched = at.patch(message.bytes_mut(), handle);
    patched.map_err(|error| UserError::internal(format!("the call could not be relayed: {error}")))
}

fn relay_failure(agent: &AgentContext, error: RelayError) -> Failure {
    if let RelayError::Backend { error: WireError::TooLong { bytes, limit }, partly: false } = &error {
        return Failure::Lost(
            UserError::new(
                ErrorKind::ProgramLimit,
                format!("reply of engine \"{}\" is too long", agent.settings.engine),
            )
            .detail(format!("It has {bytes} bytes, and the limit is {limit}."))
            .hint("Fetch fewer rows at a time, or select parts of long values."),
        );
    }
    if error.client_is_usable() {
        return Failure::Lost(
            UserError::new(ErrorKind::ConnectionLost, format!("engine \"{}\" was lost", agent.settings.engine))
                .detail(format!("Reason: {error}."))
                .hint("The statement is not retried because it may have taken effect; check before retrying."),
        );
    }
    Failure::Disconnect(Disconnect::Relay(error))
}
