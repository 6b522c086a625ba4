//! The execution of a statement for a REST call: at a metadata agent, like one of a session.
//!
//! The statement is sent under the call's request id. If the agent dies, it is sent to another one, also while its result
//! is read: a change returns its first outcome, and a list is read again. Every wait has a deadline. A call that is dropped
//! drops its channel, which ends the waits of the statement at the agent.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use ddl::Statement;
use hs2::tcli::{TFetchOrientation, TFetchResultsReq, TGetResultSetMetadataReq, TOperationHandle, TOperationType};
use hs2::{Client, ClientError, Principal, WireError, protocol, rowset, schema};
use http::request::Parts;
use model::alteration::RequestId;
use model::error::{ErrorKind, UserError};
use model::span;

use super::admission::Admitted;
use super::collect::Collect;
use super::problem::ApiError;
use crate::control::channel::{Caller, Channel, Running};
use crate::control::{self, outcome_unknown};
use crate::gateway::Gateway;
use crate::settings::{CONTROL_DEADLINE, MAX_FETCH_ROWS, MAX_HANDOVERS};

/// The longest WAIT of a statement over REST: most programs and load balancers do not wait longer for a response.
pub(super) const MAX_API_WAIT: Duration = Duration::from_mins(10);
/// The deadline of a call, apart from its WAIT: for its transaction, and for its result.
const CALL_DEADLINE: Duration = CONTROL_DEADLINE.saturating_mul(2);
/// The rows of one fetch.
const FETCH_ROWS: i64 = 500;
/// The prefix of warnings in the log of a statement.
const WARNING: &str = "warning: ";

/// A call of an authenticated client.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) gateway: Arc<Gateway>,
    pub(super) principal: Arc<Principal>,
    /// The address of the client.
    pub(super) client: IpAddr,
    pub(super) id: RequestId,
    /// Whether the client chose the id, by its key.
    pub(super) is_keyed: bool,
    pub(super) admitted: Arc<Admitted>,
}

impl<S: Sync> FromRequestParts<S> for Call {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let call = parts.extensions.get::<Self>().cloned();
        call.ok_or_else(|| UserError::internal("the request has no caller").into())
    }
}

impl Call {
    /// Runs a statement to its end and passes its rows to the collector. Returns the warnings in its log.
    pub(super) async fn run(&self, statement: &Statement, collect: &mut dyn Collect) -> Result<Vec<String>, UserError> {
        let wait = statement.wait().unwrap_or_default();
        if wait > MAX_API_WAIT {
            return Err(UserError::new(ErrorKind::InvalidValue, "the time to wait is too long")
                .detail(format!("It is {}, and the limit is {}.", span::print(wait), span::print(MAX_API_WAIT)))
                .hint("Do not wait, and read the state of the engines until they are ready."));
        }
        self.gateway.activity.statements.add();
        let mut channel = Channel::default();
        let mut running = Running::new(self.id.clone(), statement.to_string(), None);
        let ended = tokio::time::timeout(wait + CALL_DEADLINE, self.finish(&mut channel, &mut running, collect)).await;
        channel.close_in_background();
        let mut warnings = match ended {
            Ok(Ok(warnings)) => warnings,
            Ok(Err(error)) => return Err(error_of_call(error)),
            Err(_) => return Err(error_of_call(outcome_unknown(&self.id, "the metadata agent did not reply in time"))),
        };
        // The agent does not know what this proxy cannot reach.
        warnings.extend(self.gateway.zookeeper.warning().as_deref().and_then(warning_of));
        Ok(warnings)
    }

    async fn finish(
        &self,
        channel: &mut Channel,
        running: &mut Running,
        collect: &mut dyn Collect,
    ) -> Result<Vec<String>, UserError> {
        let gateway = &*self.gateway;
        let caller = Caller { principal: &self.principal, client: self.client, creator: None };
        control::begin(gateway, channel, &caller, running).await?;
        for _ in 0..MAX_HANDOVERS {
            control::await_end(gateway, channel, &caller, running).await?;
            let read = match channel.agent_of(running) {
                Some((client, handle)) => {
                    let handle = handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                    read(client, &handle, collect).await
                }
                None => Err(ReadError::Lost),
            };
            match read {
                Ok(warnings) => return Ok(warnings),
                Err(ReadError::Refused(error)) => return Err(error),
                Err(ReadError::Lost) => control::restart(gateway, channel, &caller, running).await?,
            }
        }
        Err(outcome_unknown(&running.id, "no metadata agent replied"))
    }
}

/// Why a result could not be read.
enum ReadError {
    Refused(UserError),
    /// The agent was lost.
    Lost,
}

impl From<UserError> for ReadError {
    fn from(error: UserError) -> Self {
        Self::Refused(error)
    }
}

impl From<ClientError> for ReadError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(error) => Self::Refused(error),
            _ => Self::Lost,
        }
    }
}

/// Reads the result of a statement that has ended, and the warnings in its log.
async fn read(
    client: &mut Client,
    operation: &TOperationHandle,
    collect: &mut dyn Collect,
) -> Result<Vec<String>, ReadError> {
    let request = TGetResultSetMetadataReq { operation_handle: operation.clone() };
    let described = client.get_result_set_metadata(&request).await?;
    collect.begin(described.schema.as_ref().map(schema::columns).unwrap_or_default())?;
    'rows: loop {
        let batch = fetch(client, operation, FETCH_ROWS, 0).await?;
        if batch.is_empty() {
            break;
        }
        for row in &batch {
            if let ControlFlow::Break(()) = collect.row(row)? {
                break 'rows;
            }
        }
    }
    // An agent keeps at most this many lines.
    let lines = fetch(client, operation, MAX_FETCH_ROWS as i64, protocol::FETCH_LOG).await?;
    Ok(lines.iter().filter_map(|row| warning_of(row.first()?.as_text()?)).collect())
}

async fn fetch(
    client: &mut Client,
    operation: &TOperationHandle,
    max_rows: i64,
    fetch_type: i16,
) -> Result<Vec<Vec<hs2::Value>>, ReadError> {
    let request = TFetchResultsReq {
        operation_handle: operation.clone(),
        orientation: TFetchOrientation::FETCH_NEXT,
        max_rows,
        fetch_type: Some(fetch_type),
    };
    let answer = client.fetch_results(&request).await?;
    let Some(set) = answer.results else { return Ok(Vec::new()) };
    Ok(rowset::rows(&set).map_err(|error| ClientError::from(WireError::from(error)))?)
}

/// The text of a line of the log that is a warning.
fn warning_of(line: &str) -> Option<String> {
    line.strip_prefix(WARNING).map(str::to_owned)
}

/// An error with the hint that fits REST.
fn error_of_call(error: UserError) -> UserError {
    if error.kind != ErrorKind::OutcomeUnknown {
        return error;
    }
    error.hint(
        "Repeat the request with the same Idempotency-Key. Without one, see GET /api/v1/alterations and \
         GET /api/v1/engines for its outcome.",
    )
}
