//! The execution of control statements at metadata agents, for sessions and for REST.
//!
//! A statement is sent under a request id that the proxy chose before, and under the same id with every retry: it takes
//! effect at most once, whichever process dies. If an agent dies while the statement runs, another agent reports what the
//! first one did. A caller that goes away drops its [`Channel`]; a statement that has begun at an agent runs to its end.

pub(crate) mod channel;

use std::collections::BTreeMap;

use agent_api::overlay::{
    REQUEST_CLIENT, REQUEST_CREATOR, REQUEST_DEADLINE_MS, REQUEST_GROUPS, REQUEST_ID, REQUEST_METHOD, REQUEST_PROXY,
    REQUEST_PROXY_LACKS, REQUEST_VIA, groups_text,
};
use hs2::tcli::{
    TExecuteStatementReq, TExecuteStatementResp, TGetOperationStatusReq, TOpenSessionReq, TOperationState,
    TOperationType,
};
use hs2::{Client, ClientError, Handle, Method, protocol};
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use tracing::{debug, info};

use crate::failpoints;
use crate::gateway::Gateway;
use crate::session::timeout;
use crate::settings::{CONTROL_DEADLINE, MAX_HANDOVERS, SYNCHRONOUS_DEADLINE};
use channel::{AgentOperation, Backend, Caller, Channel, Running};

/// A new request id.
pub(crate) fn new_id() -> Result<RequestId, UserError> {
    RequestId::new(uuid::Uuid::new_v4().simple().to_string())
}

/// Sends a statement to a metadata agent; to another, under the same id, until one replies.
pub(crate) async fn begin(
    gateway: &Gateway,
    channel: &mut Channel,
    caller: &Caller<'_>,
    running: &mut Running,
) -> Result<(), UserError> {
    send(gateway, channel, caller, running, false).await
}

/// Starts the statement again, under its id, at another agent.
pub(crate) async fn restart(
    gateway: &Gateway,
    channel: &mut Channel,
    caller: &Caller<'_>,
    running: &mut Running,
) -> Result<(), UserError> {
    send(gateway, channel, caller, running, true).await
}

async fn send(
    gateway: &Gateway,
    channel: &mut Channel,
    caller: &Caller<'_>,
    running: &mut Running,
    may_have_begun: bool,
) -> Result<(), UserError> {
    let since = gateway.clock.boottime();
    let mut sent = may_have_begun;
    let entries = match overlay_of(gateway, caller).await {
        Ok(entries) => entries,
        Err(error) if sent => return Err(outcome_unknown(&running.id, &error.message)),
        Err(error) => return Err(error),
    };
    for _ in 0..MAX_HANDOVERS {
        let backend = match channel.take_usable() {
            Some(backend) => backend,
            None => match open(gateway, channel, &caller.principal.user).await {
                Ok(backend) => Box::new(backend),
                Err(error) if sent => return Err(outcome_unknown(&running.id, &error.message)),
                Err(error) => return Err(with_age(gateway, error)),
            },
        };
        let backend = channel.backend.insert(backend);
        // Connecting to an agent counts.
        let left = CONTROL_DEADLINE.saturating_sub(gateway.clock.boottime().saturating_sub(since));
        if left.is_zero() {
            break;
        }
        let mut overlay = entries.clone();
        overlay.insert(REQUEST_ID.to_owned(), running.id.to_string());
        overlay.insert(REQUEST_DEADLINE_MS.to_owned(), left.as_millis().to_string());
        overlay.extend(gateway.zookeeper.staleness().map(|text| (REQUEST_PROXY_LACKS.to_owned(), text)));
        let request = TExecuteStatementReq {
            session_handle: backend.session.session(),
            statement: running.text.clone(),
            conf_overlay: Some(overlay),
            run_async: Some(true),
            query_timeout: running.timeout.map(|timeout| timeout::seconds(timeout.left(gateway.clock.boottime()))),
        };
        match execute(&mut backend.client, &request).await {
            Ok(answer) => {
                let handle = answer.operation_handle.as_ref().map(Handle::try_from);
                let Some(Ok(handle)) = handle else {
                    return Err(UserError::internal("the metadata agent replied without an operation"));
                };
                running.operation = Some(AgentOperation { handle, backend: backend.number });
                return Ok(());
            }
            Err(ClientError::Refused(error)) => return Err(error),
            Err(error) => {
                let id = &running.id;
                info!(%error, %id, "metadata agent lost; sending the statement to another under the same id");
                // Over a broken connection nothing was sent.
                sent |= !matches!(error, ClientError::Broken);
                channel.backend = None;
            }
        }
    }
    if sent {
        Err(outcome_unknown(&running.id, "no metadata agent replied"))
    } else {
        Err(with_age(gateway, gateway.agents.none_reachable()))
    }
}

/// Opens a session at a metadata agent, or at another if agents are lost. Nothing of the statement is sent.
async fn open(gateway: &Gateway, channel: &mut Channel, user: &str) -> Result<Backend, UserError> {
    for _ in 0..MAX_HANDOVERS {
        let mut client = gateway.agents.connect(user).await?;
        let request = TOpenSessionReq {
            client_protocol: protocol::NEWEST,
            username: Some(user.to_owned()),
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
        let Some(Ok(session)) = handle else {
            return Err(UserError::internal("the metadata agent opened a session without a handle"));
        };
        channel.opened += 1;
        return Ok(Backend { client, session, number: channel.opened });
    }
    Err(gateway.agents.none_reachable())
}

/// Polls until the statement has ended, at whichever agent executes it.
pub(crate) async fn await_end(
    gateway: &Gateway,
    channel: &mut Channel,
    caller: &Caller<'_>,
    running: &mut Running,
) -> Result<(), UserError> {
    let since = gateway.clock.boottime();
    while gateway.clock.boottime().saturating_sub(since) < SYNCHRONOUS_DEADLINE {
        let polled = match channel.agent_of(running) {
            Some((client, handle)) => {
                let operation_handle = handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                let request = TGetOperationStatusReq { operation_handle, get_progress_update: None };
                client.get_operation_status(&request).await
            }
            None => Err(ClientError::Broken),
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
            Err(_) => restart(gateway, channel, caller, running).await?,
        }
    }
    Err(UserError::new(ErrorKind::Timeout, "the statement did not end in time"))
}

/// The entries about the caller, the same for each agent.
async fn overlay_of(
    gateway: &Gateway,
    Caller { principal, client, creator }: &Caller<'_>,
) -> Result<BTreeMap<String, String>, UserError> {
    let groups = gateway.groups(principal).await?;
    let groups = (!groups.is_empty()).then(|| (REQUEST_GROUPS, groups_text(&groups)));
    let via = principal.via.clone().map(|via| (REQUEST_VIA, via));
    let creator = creator.map(|creator| (REQUEST_CREATOR, creator.to_owned()));
    let entries = [
        (REQUEST_METHOD, principal.method.to_owned()),
        (REQUEST_PROXY, gateway.address.clone()),
        (REQUEST_CLIENT, client.to_string()),
    ];
    Ok(entries
        .into_iter()
        .chain(groups)
        .chain(via)
        .chain(creator)
        .map(|(key, value)| (key.to_owned(), value))
        .collect())
}

async fn execute(client: &mut Client, request: &TExecuteStatementReq) -> Result<TExecuteStatementResp, ClientError> {
    let sent = client.send_call(Method::ExecuteStatement.name(), request, client.call_deadline()).await?;
    model::failpoint!(failpoints::CONTROL_SENT);
    let answer: TExecuteStatementResp = client.answer_to(sent).await?;
    hs2::status::check(&answer.status).map_err(ClientError::Refused)?;
    Ok(answer)
}

/// The error of a statement that may have taken effect.
pub(crate) fn outcome_unknown(id: &RequestId, reason: &str) -> UserError {
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
