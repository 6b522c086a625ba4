//! Calls that create an operation: statements, and metadata calls (`GetTables` and its like).
//!
//! A statement is classified, then executed here, by a metadata agent, or by an engine. An engine executes all metadata calls.

use std::sync::Arc;

use hs2::scan::Request;
use hs2::{Connection, Limit, Message, Method};
use model::error::UserError;

use super::control::{self, ControlStatement};
use super::operation::{EngineCall, Operation, OperationState};
use super::reply::{self, CallError, Disconnect, Reply};
use super::state::Session;
use super::table::Entry;
use super::timeout::Timeout;
use super::{engine, frozen_settings, local};
use crate::bind::{self, pool};
use crate::budget::BudgetGuard;
use crate::classify::{self, Statement, classify};
use crate::gateway::Gateway;

/// Checks the session's limits, and acquires the bytes that the call makes the proxy keep.
fn admit(gateway: &Gateway, session: &Session, message: &Message) -> Result<BudgetGuard, UserError> {
    session.check_operation_limit().inspect_err(|_| gateway.budget.limit_reached(Limit::SessionOperations))?;
    session.acquire_budget(&gateway.budget, gateway.settings.limits.session_statement_bytes, message.bytes().len())
}

/// Executes a call that creates an operation, or a `GetInfo` that only the bound engine can answer.
pub(crate) async fn execute(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    message: Message,
    request: &Request,
) -> Result<Reply, CallError> {
    let is_statement = request.method == Some(Method::ExecuteStatement);
    let mut session = entry.state.lock().await;
    if let Some(caller) = connection.principal() {
        session.used_by(caller);
    }
    if is_statement {
        gateway.activity.statements.add();
    }
    frozen_settings::check_overlay(gateway, &session, &message, request)?;
    if let Some(statement) = request.statement_in(message.bytes()) {
        frozen_settings::check_statement(gateway, &session, statement)?;
    }
    let mut budget_guard = admit(gateway, &session, &message)?;
    let timeout = if is_statement {
        Timeout::new(request, session.settings.statement_timeout, gateway.clock.boottime())
    } else {
        None
    };
    match request.statement_in(message.bytes()).map(classify) {
        Some(Statement::Control(text)) => {
            let statement = ControlStatement { text, run_async: request.run_async, timeout, budget_guard };
            let executed = control::execute(gateway, connection, entry, &mut session, statement).await;
            // A refused statement has left no operation whose close would release the backend.
            session.release_control();
            return executed;
        }
        Some(Statement::Session(text, statement)) => {
            pool::check_set(gateway, &session, &statement).await?;
            if session.is_unbound() && classify::prefers_engine(&statement) {
                tokio::select! {
                    bound = bind::bind_if_ready(gateway, &mut session) => bound?,
                    () = connection.closed() => return Err(Disconnect::ClientLeft { during: "its session was bound" }.into()),
                }
            }
            if let Some(result) = local::execute(&mut session, text, &statement, &mut budget_guard)? {
                let has_result = result.has_result();
                let operation = Operation::new(OperationState::Local(result.with_budget_guard(budget_guard)));
                let handle = gateway.sessions.keep_operation(entry, &mut session, operation);
                return Ok(reply::accepted(&handle, has_result).into());
            }
        }
        // A metadata call has no statement.
        Some(Statement::Engine) | None => {}
    }
    let call = EngineCall {
        message,
        statement: request.statement.clone(),
        run_async: request.run_async,
        timeout,
        budget_guard,
        running: if is_statement { Some(bind::admit_statement(gateway, &session).await?) } else { None },
    };
    engine::bind_and_relay(gateway, connection, entry, &mut session, call).await
}
