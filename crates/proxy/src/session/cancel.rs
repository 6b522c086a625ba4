//! Cancel: on a connection of its own, because the session's connection may be in the middle of a call.

use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{TCancelOperationReq, TCancelOperationResp, TOperationType};
use hs2::{Connection, Handle, Method, status};
use model::error::{ErrorKind, UserError};

use super::operation::OperationState;
use super::reply::{Disconnect, answer, refuse};
use super::table::Entry;
use crate::gateway::Gateway;
use crate::routes::Route;

/// How long a cancel on a side connection may take.
const CANCEL_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) async fn cancel(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    seqid: i32,
) -> Result<(), Disconnect> {
    let mut guard = if let Ok(guard) = entry.state.try_lock() {
        guard
    } else {
        // Another call of the session waits for its engine, perhaps for the very statement that is to be cancelled:
        // over HTTP several connections can use one session.
        if let Some((route, handle)) = entry.at_engine(&named) {
            let outcome = cancel_at_engine(gateway, &route, &entry.user, &handle).await;
            return reply(connection, seqid, outcome).await;
        }
        entry.state.lock().await
    };
    let session = &mut *guard;
    let Some(operation) = session.operations.get_mut(&named) else {
        let error = UserError::new(ErrorKind::WrongState, "operation does not exist");
        return refuse(connection, Method::CancelOperation, seqid, &error).await;
    };
    let outcome = match &operation.state {
        OperationState::Waiting(_) => {
            let error = UserError::new(ErrorKind::Canceled, "canceling statement due to user request");
            operation.state = OperationState::Failed(error);
            Ok(())
        }
        OperationState::Local(_) | OperationState::Failed(_) => Ok(()),
        OperationState::AtEngine { binding, handle } => match session.engines.get(binding) {
            Some(engine) => cancel_at_engine(gateway, &engine.route, &session.user, handle).await,
            None => Ok(()),
        },
        OperationState::Control(control) => match &mut session.control {
            Some(backend) if backend.number == control.backend => {
                let operation_handle = control.handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                let request = TCancelOperationReq { operation_handle };
                backend.client.cancel_operation(&request).await.map(|_| ()).map_err(Into::into)
            }
            _ => Ok(()),
        },
    };
    reply(connection, seqid, outcome).await
}

async fn reply(connection: &mut Connection, seqid: i32, outcome: Result<(), UserError>) -> Result<(), Disconnect> {
    match outcome {
        Ok(()) => {
            let response = TCancelOperationResp { status: status::success() };
            answer(connection, Method::CancelOperation, seqid, &response).await
        }
        Err(error) => refuse(connection, Method::CancelOperation, seqid, &error).await,
    }
}

async fn cancel_at_engine(gateway: &Gateway, route: &Route, user: &str, handle: &Handle) -> Result<(), UserError> {
    let canceling = async {
        let mut client = gateway.routes.connect(route, user).await?;
        let operation_handle = handle.operation(TOperationType::EXECUTE_STATEMENT, true);
        client.cancel_operation(&TCancelOperationReq { operation_handle }).await
    };
    match tokio::time::timeout(CANCEL_DEADLINE, canceling).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.user_error()),
        Err(_) => Err(UserError::new(
            ErrorKind::Timeout,
            format!("engine \"{}\" did not reply to the cancel request in time", route.engine),
        )),
    }
}
