//! Control statements of sessions: parsed here, so that a syntax error needs no agent, and executed by a metadata agent
//! through [`crate::control`].

use std::sync::Arc;

use hs2::Connection;
use model::error::{ErrorKind, UserError};

use super::operation::{ControlOperation, Operation, OperationState};
use super::reply::{self, CallError, Disconnect, Reply};
use super::state::Session;
use super::table::Entry;
use super::timeout::Timeout;
use crate::budget::BudgetGuard;
use crate::control::{self, channel::Running};
use crate::failpoints;
use crate::gateway::Gateway;

/// A control statement as it arrived.
pub(crate) struct ControlStatement<'a> {
    pub(crate) text: &'a str,
    /// The client polls for the end.
    pub(crate) run_async: bool,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) budget_guard: BudgetGuard,
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
    let id = control::new_id()?;
    model::failpoint!(failpoints::CONTROL_ID_MADE);
    let mut running = Running::new(id, text.to_owned(), timeout);
    let (channel, caller) = session.control();
    tokio::select! {
        begun = control::begin(gateway, channel, &caller, &mut running) => begun?,
        () = connection.closed() => return Err(Disconnect::ClientLeft { during: "its statement ran" }.into()),
    };
    let mut operation = ControlOperation { running, fetched: false, budget_guard };
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

/// Starts the statement again, under its id, at another agent.
pub(crate) async fn restart(
    gateway: &Gateway,
    session: &mut Session,
    operation: &mut ControlOperation,
) -> Result<(), UserError> {
    if operation.fetched {
        return Err(UserError::new(ErrorKind::ConnectionLost, "metadata agent was lost while its result was read")
            .hint("Retry the statement if it only reads."));
    }
    let (channel, caller) = session.control();
    control::restart(gateway, channel, &caller, &mut operation.running).await
}

/// Polls until the statement has ended, at whichever agent executes it.
pub(crate) async fn await_end(
    gateway: &Gateway,
    session: &mut Session,
    operation: &mut ControlOperation,
) -> Result<(), UserError> {
    let (channel, caller) = session.control();
    control::await_end(gateway, channel, &caller, &mut operation.running).await
}
