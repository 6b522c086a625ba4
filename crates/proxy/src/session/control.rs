//! A control statement: parsed here, so that a syntax error needs no agent; executed by a metadata agent.
//!
//! The proxy makes the request id before it sends the statement and sends the same id with every retry, so that a
//! statement takes effect once whoever dies on the way. An agent that dies while the statement runs is replaced by
//! another, which answers what the first one did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{
    TCloseSessionReq, TExecuteStatementReq, TExecuteStatementResp, TGetOperationStatusReq, TOpenSessionReq,
    TOperationState, TOperationType,
};
use hs2::{Client, ClientError, Connection, Handle, Method, protocol};
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use tracing::{debug, info};

use super::operation::{Operation, Place};
use super::statement::{accepted, keep};
use super::timeout::{self, Timeout};
use super::{Entry, Gone, Session, refuse};
use crate::budget::Held;
use crate::settings::{CONTROL_DEADLINE, MAX_HANDOVERS, SYNCHRONOUS_DEADLINE};
use crate::{Gateway, failpoints};

/// The overlay entry that carries the request's id.
pub const REQUEST_ID: &str = "enginehouse.request.id";
/// The overlay entry that carries the remaining time, in milliseconds, before the transaction has to begin.
pub const REQUEST_DEADLINE_MS: &str = "enginehouse.request.deadline_ms";
/// The overlay entry that carries what this proxy can't reach: the agent says it of the engines that it shows.
pub const REQUEST_PROXY_LACKS: &str = "enginehouse.request.proxy_lacks";

/// A metadata agent's session that belongs to one client session.
pub(crate) struct ControlBackend {
    pub(crate) client: Client,
    session: Handle,
    /// Tells the operations of this backend from those of one that is gone.
    pub(crate) number: u64,
}

/// A control statement at a metadata agent.
pub(crate) struct ControlOperation {
    /// The agent's handle.
    pub(crate) handle: Handle,
    /// Which backend it belongs to.
    pub(crate) backend: u64,
    /// Whether rows of its result have been fetched: then it can't be begun again.
    pub(crate) fetched: bool,
    id: RequestId,
    text: String,
    timeout: Option<Timeout>,
    /// The bytes of its text, of the byte budget.
    pub(super) held: Held,
}

/// A control statement as it arrived.
pub(super) struct ControlStatement<'a> {
    pub(super) text: &'a str,
    /// The client polls for the end.
    pub(super) run_async: bool,
    pub(super) timeout: Option<Timeout>,
    pub(super) held: Held,
}

/// What an agent is sent, the same with every retry.
struct Sending<'a> {
    id: &'a RequestId,
    text: &'a str,
    timeout: Option<Timeout>,
}

impl ControlBackend {
    pub(super) async fn close(mut self, deadline: Duration) {
        if !self.client.is_broken() {
            self.client.set_call_deadline(deadline);
            let closed = self.client.close_session(&TCloseSessionReq { session_handle: self.session.session() }).await;
            if let Err(error) = closed {
                debug!(%error, "a metadata agent's session was cut");
            }
        }
    }
}

pub(super) async fn execute(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    session: &mut Session,
    statement: ControlStatement<'_>,
    seqid: i32,
) -> Result<(), Gone> {
    let ControlStatement { text, run_async, timeout, mut held } = statement;
    // It was the whole message until now: less always fits.
    let _ = held.resize(text.len().min(held.bytes()));
    if let Err(error) = ddl::parse(text) {
        return refuse(connection, Method::ExecuteStatement, seqid, &UserError::from(error)).await;
    }
    let id = match RequestId::new(uuid::Uuid::new_v4().simple().to_string()) {
        Ok(id) => id,
        Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
    };
    model::failpoint!(failpoints::CONTROL_ID_MADE);
    let begun = tokio::select! {
        begun = begin(gateway, session, Sending { id: &id, text, timeout }, false) => begun,
        () = connection.closed() => return Err(Gone::Client("hung up while its statement ran".to_owned())),
    };
    let mut operation = match begun {
        Ok((handle, backend)) => {
            ControlOperation { handle, backend, fetched: false, id, text: text.to_owned(), timeout, held }
        }
        Err(error) => return refuse(connection, Method::ExecuteStatement, seqid, &error).await,
    };
    if !run_async {
        let ended = tokio::select! {
            ended = await_end(gateway, session, &mut operation) => ended,
            () = connection.closed() => return Err(Gone::Client("hung up while its statement ran".to_owned())),
        };
        if let Err(error) = ended {
            return refuse(connection, Method::ExecuteStatement, seqid, &error).await;
        }
    }
    let mut operation = Operation::new(Place::Control(Box::new(operation)));
    // The agent that answers knows nothing of what this proxy lacks.
    if let Some(warning) = gateway.zookeeper.warning() {
        operation.log(warning);
    }
    let handle = keep(gateway, entry, session, operation);
    accepted(connection, seqid, handle, true).await
}

/// Sends the statement to a metadata agent; to another, under the same id, as long as none has answered. The agent's
/// handle, and which backend it belongs to.
async fn begin(
    gateway: &Arc<Gateway>,
    session: &mut Session,
    Sending { id, text, timeout }: Sending<'_>,
    may_have_begun: bool,
) -> Result<(Handle, u64), UserError> {
    let since = gateway.clock.boottime();
    let mut sent = may_have_begun;
    for _ in 0..MAX_HANDOVERS {
        let backend = match session.control.take() {
            Some(backend) if !backend.client.is_broken() => backend,
            _ => match open(gateway, session).await {
                Ok(backend) => backend,
                Err(error) if sent => return Err(not_known(id, &error.message)),
                Err(error) => return Err(with_age(gateway, error)),
            },
        };
        let backend = session.control.insert(backend);
        // Looking for an agent took its time too.
        let left = CONTROL_DEADLINE.saturating_sub(gateway.clock.boottime().saturating_sub(since));
        if left.is_zero() {
            break;
        }
        let mut overlay = BTreeMap::from([
            (REQUEST_ID.to_owned(), id.to_string()),
            (REQUEST_DEADLINE_MS.to_owned(), left.as_millis().to_string()),
        ]);
        overlay.extend(gateway.zookeeper.staleness().map(|lacks| (REQUEST_PROXY_LACKS.to_owned(), lacks)));
        let request = TExecuteStatementReq {
            session_handle: backend.session.session(),
            statement: text.to_owned(),
            conf_overlay: Some(overlay),
            run_async: Some(true),
            query_timeout: timeout.map(|it| timeout::seconds(it.left(gateway.clock.boottime()))),
        };
        match send(&mut backend.client, &request).await {
            Ok(answer) => {
                let handle = answer.operation_handle.as_ref().map(Handle::try_from);
                let Some(Ok(handle)) = handle else {
                    return Err(UserError::internal("the metadata agent answered without an operation"));
                };
                return Ok((handle, backend.number));
            }
            Err(ClientError::Refused(error)) => return Err(error),
            Err(error) => {
                info!(%error, %id, "a metadata agent was lost, the statement is sent to another under the same id");
                // A connection that had been closed before was found so, and nothing was sent over it.
                sent |= !matches!(error, ClientError::Broken);
                session.control = None;
            }
        }
    }
    if sent {
        Err(not_known(id, "no metadata agent answered"))
    } else {
        Err(with_age(gateway, gateway.agents.none_reachable()))
    }
}

async fn send(client: &mut Client, request: &TExecuteStatementReq) -> Result<TExecuteStatementResp, ClientError> {
    let sent = client.send_call(Method::ExecuteStatement.name(), request, client.call_deadline()).await?;
    model::failpoint!(failpoints::CONTROL_SENT);
    let answer: TExecuteStatementResp = client.answer_to(sent).await?;
    hs2::status::check(&answer.status).map_err(ClientError::Refused)?;
    Ok(answer)
}

fn not_known(id: &RequestId, reason: &str) -> UserError {
    UserError::new(ErrorKind::OutcomeUnknown, "it is not known whether the statement took effect")
        .detail(format!("{reason}, request {id}"))
        .hint("SHOW ALTERATIONS and SHOW ENGINES tell what became of it")
}

/// Tells what else is missing, and what the proxy goes on with while no metadata agent answers.
fn with_age(gateway: &Gateway, error: UserError) -> UserError {
    let age = gateway.catalog.age();
    let age = age.map(|age| format!("the proxy goes on with the catalog that it read {} s ago", age.as_secs()));
    let details: Vec<String> =
        error.detail.clone().into_iter().chain(gateway.zookeeper.staleness()).chain(age).collect();
    if details.is_empty() { error } else { error.detail(details.join("; ")) }
}

/// Opens a session at a metadata agent; at another, as long as agents are lost meanwhile. Nothing of a statement was sent.
async fn open(gateway: &Arc<Gateway>, session: &mut Session) -> Result<ControlBackend, UserError> {
    for _ in 0..MAX_HANDOVERS {
        let mut client = gateway.agents.connect(&session.user).await?;
        let request = TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(session.user.clone()),
            password: None,
            configuration: None,
        };
        let opened = match client.open_session(&request).await {
            Ok(opened) => opened,
            Err(ClientError::Refused(error)) => return Err(error),
            Err(error) => {
                debug!(%error, "a metadata agent was lost before anything was said to it");
                gateway.agents.give_up_preferred();
                continue;
            }
        };
        let handle = opened.session_handle.as_ref().map(Handle::try_from);
        let Some(Ok(handle)) = handle else {
            return Err(UserError::internal("the metadata agent opened a session without a handle"));
        };
        let number = session.next_binding;
        session.next_binding += 1;
        return Ok(ControlBackend { client, session: handle, number });
    }
    Err(gateway.agents.none_reachable())
}

/// Begins the statement again, under its id, at another agent.
pub(super) async fn again(
    gateway: &Arc<Gateway>,
    session: &mut Session,
    operation: &mut ControlOperation,
) -> Result<(), UserError> {
    if operation.fetched {
        return Err(UserError::new(ErrorKind::ConnectionLost, "the metadata agent was lost while its answer was read")
            .hint("say the statement again if it only shows something"));
    }
    if session.control.as_ref().is_some_and(|backend| backend.client.is_broken()) {
        session.control = None;
    }
    let sending = Sending { id: &operation.id, text: &operation.text, timeout: operation.timeout };
    (operation.handle, operation.backend) = begin(gateway, session, sending, true).await?;
    Ok(())
}

/// Polls until the statement has ended, whoever executes it.
pub(super) async fn await_end(
    gateway: &Arc<Gateway>,
    session: &mut Session,
    operation: &mut ControlOperation,
) -> Result<(), UserError> {
    let since = gateway.clock.boottime();
    while gateway.clock.boottime().saturating_sub(since) < SYNCHRONOUS_DEADLINE {
        let polled = match &mut session.control {
            Some(backend) if backend.number == operation.backend => {
                let operation_handle = operation.handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
                backend.client.get_operation_status(&request).await
            }
            _ => Err(ClientError::Broken),
        };
        match polled {
            Ok(answer) => match answer.operation_state {
                Some(TOperationState::FINISHED_STATE) => return Ok(()),
                Some(
                    TOperationState::ERROR_STATE | TOperationState::CANCELED_STATE | TOperationState::CLOSED_STATE,
                ) => {
                    return Err(hs2::status::error_of(
                        answer.sql_state.as_deref(),
                        answer.error_code,
                        answer.error_message.as_deref(),
                    ));
                }
                // The agent blocks a while before it says that the statement still runs.
                _ => tokio::task::yield_now().await,
            },
            Err(ClientError::Refused(error)) => return Err(error),
            Err(_) => again(gateway, session, operation).await?,
        }
    }
    Err(UserError::new(ErrorKind::Timeout, "the statement did not end in time"))
}
