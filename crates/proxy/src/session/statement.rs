//! `ExecuteStatement` and the metadata calls: ours, answered here, or the engine's.
//!
//! What is not ours goes on byte for byte: only the session's handle is patched in its place.

use std::ops::Range;
use std::sync::Arc;

use ddl::SessionStatement;
use hs2::scan::Request;
use hs2::tcli::{TExecuteStatementResp, TOperationType};
use hs2::{Connection, Handle, Message, Method, status};
use model::error::{ErrorKind, UserError};

use super::binding::{self, NotBound, Sent};
use super::no_engine;
use super::operation::{Operation, Place};
use super::timeout::Timeout;
use super::waiting::Waiting;
use super::{Entry, Gone, Session, answer, close, control, hold, local, pool, refuse, send};
use crate::Gateway;
use crate::budget::Held;
use crate::settings::{CALL_DEADLINE, MAX_HANDOVERS, MAX_OPERATIONS, POLL_STEP, SYNCHRONOUS_DEADLINE};

/// A call that an engine answers with an operation.
pub(super) struct EngineCall {
    pub(super) message: Message,
    /// Where the statement is in it, if the call is one and is UTF-8.
    statement: Option<Range<usize>>,
    /// The client polls for the end.
    pub(super) run_async: bool,
    /// When the client and its session want it to have ended.
    pub(super) timeout: Option<Timeout>,
    /// The message's bytes, of the byte budget.
    pub(super) held: Held,
}

impl EngineCall {
    fn method(&self) -> Method {
        self.message.method().unwrap_or(Method::ExecuteStatement)
    }

    /// Whether it is a statement, and not a metadata call.
    pub(super) fn is_statement(&self) -> bool {
        self.method() == Method::ExecuteStatement
    }

    /// The statement, if the call is one and is UTF-8.
    pub(super) fn text(&self) -> Option<&str> {
        let bytes = self.message.bytes().get(self.statement.clone()?)?;
        std::str::from_utf8(bytes).ok()
    }

    /// How long the engine has to answer the call itself.
    pub(super) fn deadline(&self) -> std::time::Duration {
        if self.run_async { CALL_DEADLINE } else { SYNCHRONOUS_DEADLINE }
    }
}

pub(super) async fn execute(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
    request: &Request,
) -> Result<(), Gone> {
    let seqid = message.seqid();
    let mut session = entry.state.lock().await;
    gateway.activity.statements.add();
    let room = room_for_operation(&session).and_then(|()| hold(gateway, &session, message.bytes().len()));
    let mut held = match room {
        Ok(held) => held,
        Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
    };
    let timeout = Timeout::of(request, session.settings.statement_timeout, gateway.clock.boottime());
    let bytes = request.statement_in(message.bytes()).unwrap_or_default();
    let text = std::str::from_utf8(bytes).ok();
    if let Some(text) = text {
        if ddl::sniff(text).is_some() {
            let statement = control::ControlStatement { text, run_async: request.run_async, timeout, held };
            let served = control::execute(gateway, connection, entry, &mut session, statement, seqid).await;
            // One that was refused left no operation whose close would do it.
            close::release_control(&mut session);
            return served;
        }
        if let Some(issued) = ddl::session_statement(text) {
            if let Err(error) = pool::check_set(gateway, &session, &issued).await {
                return refuse(connection, Method::ExecuteStatement, seqid, &error).await;
            }
            if session.is_unbound() && local::is_for_ready_engine(&issued) {
                let bound = tokio::select! {
                    bound = binding::bind_if_ready(gateway, &mut session) => bound,
                    () = connection.closed() => return Err(Gone::Client("hung up while a session was bound".to_owned())),
                };
                if let Err(error) = bound {
                    return refuse(connection, Method::ExecuteStatement, seqid, &error).await;
                }
            }
            match local::answer_here(&mut session, text, &issued, &mut held) {
                Ok(Some(local)) => {
                    let local = local.holding(held);
                    let has_result = local.has_result();
                    let handle = keep(gateway, entry, &mut session, Operation::new(Place::Local(local)));
                    return accepted(connection, seqid, handle, has_result).await;
                }
                Ok(None) => {}
                Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
            }
        }
    }
    let statement = text.and_then(|_| request.statement.clone());
    let call = EngineCall { message, statement, run_async: request.run_async, timeout, held };
    run(gateway, connection, entry, &mut session, call).await
}

fn room_for_operation(session: &Session) -> Result<(), UserError> {
    if session.operations.len() < MAX_OPERATIONS {
        return Ok(());
    }
    Err(UserError::new(ErrorKind::ProgramLimit, "the session has too many open operations")
        .detail(format!("{MAX_OPERATIONS} are open"))
        .hint("close statements that are not used"))
}

/// A metadata call (`GetTables` and its like), or `GetInfo` of a bound session: engine work, relayed.
pub(super) async fn metadata_call(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
) -> Result<(), Gone> {
    let mut session = entry.state.lock().await;
    let Some(method) = message.method() else { return Ok(()) };
    let room = room_for_operation(&session).and_then(|()| hold(gateway, &session, message.bytes().len()));
    let held = match room {
        Ok(held) => held,
        Err(error) => return refuse(connection, method, message.seqid(), &error).await,
    };
    let call = EngineCall { message, statement: None, run_async: false, timeout: None, held };
    run(gateway, connection, entry, &mut session, call).await
}

/// Binds an engine if none is bound, and sends the call. An engine that drains refuses before anything was executed:
/// that error, and no other, permits to send the call to another one.
async fn run(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    session: &mut Session,
    call: EngineCall,
) -> Result<(), Gone> {
    let (method, seqid) = (call.method(), call.message.seqid());
    let since = gateway.clock.boottime();
    let mut handovers = 0;
    let mut changes = gateway.routes.changes();
    loop {
        let bound = tokio::select! {
            bound = binding::bind(gateway, session) => bound,
            // An engine's session that was being opened is cut with its connection.
            () = connection.closed() => return Err(Gone::Client("hung up while its session was bound".to_owned())),
        };
        match bound {
            Ok(()) => {}
            Err(NotBound::Refused(error)) => {
                let error = with_near_miss(error, call.text());
                return refuse(connection, method, seqid, &error).await;
            }
            Err(NotBound::Wait(reason)) if call.run_async => {
                let handle = Waiting::begin(gateway, entry, session, call, since, reason);
                return accepted(connection, seqid, handle, true).await;
            }
            Err(NotBound::Wait(reason)) => {
                let waited = gateway.clock.boottime().saturating_sub(since);
                if waited >= gateway.settings.bind_deadline {
                    return refuse(connection, method, seqid, &no_engine::waited_too_long(waited, &reason)).await;
                }
                let now = gateway.clock.boottime();
                let step = match call.timeout {
                    Some(timeout) if timeout.left(now).is_zero() => {
                        return refuse(connection, method, seqid, &timeout.error_waiting_for(&reason)).await;
                    }
                    Some(timeout) => timeout.left(now).min(POLL_STEP),
                    None => POLL_STEP,
                };
                tokio::select! {
                    _ = tokio::time::timeout(step, changes.changed()) => {}
                    () = connection.closed() => return Err(Gone::Client("hung up while it waited for an engine".to_owned())),
                }
                continue;
            }
        }
        let sent = tokio::select! {
            sent = binding::send(gateway, session, &call) => sent,
            () = connection.closed() => {
                session.drop_present("its client hung up while a statement ran there");
                return Err(Gone::Client("hung up while its statement ran".to_owned()));
            }
        };
        match sent {
            Sent::Accepted { mut reply, handle_at, binding, handle } => {
                let ours = keep(gateway, entry, session, Operation::new(Place::Engine { binding, handle }));
                entry.note_at_engine(ours, session.route_of(binding), handle);
                if let Err(error) = handle_at.patch(&mut reply, &ours) {
                    let error = UserError::internal(format!("the engine's answer can't be relayed: {error}"));
                    return refuse(connection, method, seqid, &error).await;
                }
                return send(connection, &reply).await;
            }
            Sent::Answered(reply) => return send(connection, &reply).await,
            Sent::Draining(_) if handovers < MAX_HANDOVERS => handovers += 1,
            Sent::Draining(error) | Sent::Lost(error) | Sent::TimedOut(error) => {
                return refuse(connection, method, seqid, &error).await;
            }
        }
    }
}

/// A statement that was perhaps meant for us says so when no engine can take it.
fn with_near_miss(error: UserError, text: Option<&str>) -> UserError {
    match text.and_then(ddl::near_miss) {
        Some(meant) => {
            let hint = error.hint.clone().map_or_else(|| meant.clone(), |hint| format!("{meant} Or: {hint}"));
            error.hint(hint)
        }
        None => error,
    }
}

/// Keeps an operation under a handle of the proxy's own.
pub(super) fn keep(gateway: &Gateway, entry: &Entry, session: &mut Session, operation: Operation) -> Handle {
    let handle = Handle::random();
    session.operations.insert(handle, operation);
    gateway.sessions.name_operation(handle, entry.handle);
    handle
}

/// Answers an `ExecuteStatement` with the proxy's own handle.
pub(super) async fn accepted(
    connection: &mut Connection,
    seqid: i32,
    handle: Handle,
    has_result: bool,
) -> Result<(), Gone> {
    let operation_handle = Some(handle.operation(TOperationType::EXECUTE_STATEMENT, has_result));
    let response = TExecuteStatementResp { status: status::success(), operation_handle };
    answer(connection, Method::ExecuteStatement, seqid, &response).await
}

/// What an engine's acceptance of a statement means for the session: state of its own begins, or there is something
/// more to replay. `pending`: the engine still works on it, under this handle.
pub(super) fn note_accepted(session: &mut Session, text: &str, pending: Option<Handle>) {
    if let Some(issued) = ddl::session_statement(text) {
        if local::remember(session, text, &issued, pending).is_err() {
            session.pin_to_engine();
        }
        if pending.is_none() {
            show_setting(session, &issued);
        }
    } else if ddl::sets_session(text) {
        // SET TIME ZONE and its like, which only engines understand: replayed as it was issued.
        if session.settings.remember(text.to_owned(), text.to_owned(), pending).is_err() {
            session.pin_to_engine();
        }
    } else if ddl::pins_session(text) || (session.has_own_tables() && ddl::changes_tables(text)) {
        session.pin_to_engine();
    }
}

/// The engine has reported how a statement ended. Only one that succeeded is replayed to another engine.
pub(super) fn note_ended(session: &mut Session, handle: &Handle, succeeded: bool) {
    if let Some(text) = session.settings.settle(handle, succeeded)
        && let Some(issued) = ddl::session_statement(&text)
    {
        show_setting(session, &issued);
    }
}

fn show_setting(session: &mut Session, issued: &SessionStatement<'_>) {
    if let SessionStatement::Set { key, value } = issued {
        session.settings.show(key, value);
    }
}
