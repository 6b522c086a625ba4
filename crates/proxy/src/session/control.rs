//! Control statements: parsed here, so that a syntax error needs no agent, and executed by a metadata agent.
//!
//! The proxy creates a request id before it sends the statement and sends the same id with every retry: the statement
//! takes effect at most once, whichever process dies. If an agent dies while the statement runs, another agent reports
//! what the first one did.

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_api::overlay::{
    REQUEST_CLIENT, REQUEST_DEADLINE_MS, REQUEST_GROUPS, REQUEST_ID, REQUEST_METHOD, REQUEST_PROXY,
    REQUEST_PROXY_LACKS, REQUEST_VIA, groups_text,
};
use hs2::tcli::{
    TExecuteStatementReq, TExecuteStatementResp, TGetOperationStatusReq, TOpenSessionReq, TOperationState,
    TOperationType,
};
use hs2::{Client, ClientError, Connection, Handle, Method, protocol};
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use tracing::{debug, info};

use super::operation::{ControlOperation, Operation, OperationState};
use super::reply::{self, CallError, Disconnect, Reply};
use super::state::{ControlBackend, Session};
use super::table::Entry;
use super::timeout::{self, Timeout};
use crate::budget::BudgetGuard;
use crate::failpoints;
use crate::gateway::Gateway;
use crate::settings::{CONTROL_DEADLINE, MAX_HANDOVERS, SYNCHRONOUS_DEADLINE};

/// A control statement as it arrived.
pub(crate) struct ControlStatement<'a> {
    pub(crate) text: &'a str,
    /// The client polls for the end.
    pub(crate) run_async: bool,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) budget_guard: BudgetGuard,
}

/// A request to a metadata agent, the same with every retry.
struct ControlRequest<'a> {
    id: &'a RequestId,
    text: &'a str,
    timeout: Option<Timeout>,
}

pub(crate) async fn execute(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    session: &mut Session,
    statement: ControlStatement<'_>,
) -> Result<Reply, CallError> {
    let ControlStatement { text, run_async, timeout, mut budget_guard } = statement;
    // The bytes of the whole message were acquired; fewer always succeed.
    let _ = budget_guard.resize(text.len().min(budget_guard.bytes()));
    ddl::parse(text).map_err(UserError::from)?;
    let id = RequestId::new(uuid::Uuid::new_v4().simple().to_string())?;
    model::failpoint!(failpoints::CONTROL_ID_MADE);
    let (handle, backend) = tokio::select! {
        begun = begin(gateway, session, ControlRequest { id: &id, text, timeout }, false) => begun?,
        () = connection.closed() => return Err(Disconnect::ClientLeft { during: "its statement ran" }.into()),
    };
    let mut operation =
        ControlOperation { handle, backend, fetched: false, id, text: text.to_owned(), timeout, budget_guard };
    if !run_async {
        tokio::select! {
            ended = await_end(gateway, session, &mut operation) => ended?,
            () = connection.closed() => return Err(Disconnect::ClientLeft { during: "its statement ran" }.into()),
        }
    }
    let mut operation = Operation::new(OperationState::Control(Box::new(operation)));
    // The agent does not know what this proxy cannot reach.
    if let Some(warning) = gateway.zookeeper.warning() {
        operation.log(warning);
    }
    let handle = gateway.sessions.keep_operation(entry, session, operation);
    Ok(reply::accepted(&handle, true).into())
}

/// Sends the statement to a metadata agent; to another, under the same id, until one replies. Returns the agent's handle
/// and the number of the backend.
async fn begin(
    gateway: &Arc<Gateway>,
    session: &mut Session,
    ControlRequest { id, text, timeout }: ControlRequest<'_>,
    may_have_begun: bool,
) -> Result<(Handle, u64), UserError> {
    let since = gateway.clock.boottime();
    let mut sent = may_have_begun;
    let caller = match caller_overlay(gateway, session).await {
        Ok(caller) => caller,
        Err(error) if sent => return Err(outcome_unknown(id, &error.message)),
        Err(error) => return Err(error),
    };
    for _ in 0..MAX_HANDOVERS {
        let backend = match session.control.take() {
            Some(backend) if !backend.client.is_broken() => backend,
            _ => match open(gateway, session).await {
                Ok(backend) => backend,
                Err(error) if sent => return Err(outcome_unknown(id, &error.message)),
                Err(error) => return Err(with_age(gateway, error)),
            },
        };
        let backend = session.control.insert(backend);
        // Connecting to an agent counts.
        let left = CONTROL_DEADLINE.saturating_sub(gateway.clock.boottime().saturating_sub(since));
        if left.is_zero() {
            break;
        }
        let mut overlay = caller.clone();
        overlay.insert(REQUEST_ID.to_owned(), id.to_string());
        overlay.insert(REQUEST_DEADLINE_MS.to_owned(), left.as_millis().to_string());
        overlay.extend(gateway.zookeeper.staleness().map(|text| (REQUEST_PROXY_LACKS.to_owned(), text)));
        let request = TExecuteStatementReq {
            session_handle: backend.session.session(),
            statement: text.to_owned(),
            conf_overlay: Some(overlay),
            run_async: Some(true),
            query_timeout: timeout.map(|timeout| timeout::seconds(timeout.left(gateway.clock.boottime()))),
        };
        match send(&mut backend.client, &request).await {
            Ok(answer) => {
                let handle = answer.operation_handle.as_ref().map(Handle::try_from);
                let Some(Ok(handle)) = handle else {
                    return Err(UserError::internal("the metadata agent replied without an operation"));
                };
                return Ok((handle, backend.number));
            }
            Err(ClientError::Refused(error)) => return Err(error),
            Err(error) => {
                info!(%error, %id, "metadata agent lost; sending the statement to another under the same id");
                // Over a broken connection nothing was sent.
                sent |= !matches!(error, ClientError::Broken);
                session.control = None;
            }
        }
    }
    if sent {
        Err(outcome_unknown(id, "no metadata agent replied"))
    } else {
        Err(with_age(gateway, gateway.agents.none_reachable()))
    }
}

/// The entries about the caller, the same for each agent.
async fn caller_overlay(gateway: &Gateway, session: &Session) -> Result<BTreeMap<String, String>, UserError> {
    let principal = &session.principal;
    let groups = gateway.groups(principal).await?;
    let groups = (!groups.is_empty()).then(|| (REQUEST_GROUPS, groups_text(&groups)));
    let via = principal.via.clone().map(|via| (REQUEST_VIA, via));
    let entries = [
        (REQUEST_METHOD, principal.method.to_owned()),
        (REQUEST_PROXY, gateway.address.clone()),
        (REQUEST_CLIENT, session.client.to_string()),
    ];
    Ok(entries.into_iter().chain(groups).chain(via).map(|(key, value)| (key.to_owned(), value)).collect())
}

async fn send(client: &mut Client, request: &TExecuteStatementReq) -> Result<TExecuteStatementResp, ClientError> {
    let sent = client.send_call(Method::ExecuteStatement.name(), request, client.call_deadline()).await?;
    model::failpoint!(failpoints::CONTROL_SENT);
    let answer: TExecuteStatementResp = client.answer_to(sent).await?;
    hs2::status::check(&answer.status).map_err(ClientError::Refused)?;
    Ok(answer)
}

fn outcome_unknown(id: &RequestId, reason: &str) -> UserError {
    UserError::new(ErrorKind::OutcomeUnknown, "outcome of the statement is unknown")
        .detail(format!("Request {id}: {reason}."))
        .hint("See SHOW ALTERATIONS and SHOW ENGINES for its outcome.")
}

/// Adds what else this proxy cannot reach, and the age of the catalog that it uses meanwhile.
fn with_age(gateway: &Gateway, error: UserError) -> UserError {
    let age = gateway.catalog.age();
    let age = age.map(|age| format!("The proxy uses the catalog that it read {} s ago.", age.as_secs()));
    let staleness = gateway.zookeeper.staleness_detail();
    let details: Vec<String> = error.detail.clone().into_iter().chain(staleness).chain(age).collect();
    if details.is_empty() { error } else { error.detail(details.join(" ")) }
}

/// Opens a session at a metadata agent, or at another if agents are lost. Nothing of the statement is sent.
async fn open(gateway: &Arc<Gateway>, session: &mut Session) -> Result<ControlBackend, UserError> {
    for _ in 0..MAX_HANDOVERS {
        let mut client = gateway.agents.connect(&session.principal.user).await?;
        let request = TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(session.principal.user.clone()),
            password: None,
            configuration: None,
        };
        let opened = match client.open_session(&request).await {
            Ok(opened) => opened,
            Err(ClientError::Refused(error)) => return Err(error),
            Err(error) => {
                debug!(%error, "metadata agent lost before the statement was sent");
                gateway.agents.give_up_preferred();
                continue;
            }
        };
        let handle = opened.session_handle.as_ref().map(Handle::try_from);
        let Some(Ok(handle)) = handle else {
            return Err(UserError::internal("the metadata agent opened a session without a handle"));
        };
        let number = session.new_number();
        return Ok(ControlBackend { client, session: handle, number });
    }
    Err(gateway.agents.none_reachable())
}

/// Starts the statement again, under its id, at another agent.
pub(crate) async fn restart(
    gateway: &Arc<Gateway>,
    session: &mut Session,
    operation: &mut ControlOperation,
) -> Result<(), UserError> {
    if operation.fetched {
        return Err(UserError::new(ErrorKind::ConnectionLost, "metadata agent was lost while its result was read")
            .hint("Retry the statement if it only reads."));
    }
    if session.control.as_ref().is_some_and(|backend| backend.client.is_broken()) {
        session.control = None;
    }
    let request = ControlRequest { id: &operation.id, text: &operation.text, timeout: operation.timeout };
    (operation.handle, operation.backend) = begin(gateway, session, request, true).await?;
    Ok(())
}

/// Polls until the statement has ended, at whichever agent executes it.
pub(crate) async fn await_end(
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
                // The agent holds its reply for a while before it reports that the statement runs.
                _ => tokio::task::yield_now().await,
            },
            Err(ClientError::Refused(error)) => return Err(error),
            Err(_) => restart(gateway, session, operation).await?,
        }
    }
    Err(UserError::new(ErrorKind::Timeout, "the statement did not end in time"))
}
