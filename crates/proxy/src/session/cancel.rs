//! Cancel: on a connection of its own, because the session's may be in the middle of a call.

use std::sync::Arc;
use std::time::Duration;

use hs2::tcli::{TCancelOperationReq, TCancelOperationResp, TOperationType};
use hs2::{Connection, Handle, Method, status};
use model::error::{ErrorKind, UserError};

use super::operation::Place;
use super::{Entry, Gone, answer, refuse};
use crate::Gateway;

/// How long a cancel on a side connection may take.
const CANCEL_DEADLINE: Duration = Duration::from_secs(2);

/// Cancels on a connection of its own: the session's may be in the middle of a poll.
pub(super) async fn cancel(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    entry: &Arc<Entry>,
    named: Handle,
    seqid: i32,
) -> Result<(), Gone> {
    let mut guard = if let Ok(guard) = entry.state.try_lock() {
        guard
    } else {
        // Another call of the session waits for its engine, perhaps for the very statement that is to be cancelled:
        // over HTTP calls come side by side.
        if let Some((route, handle)) = entry.at_engine(&named) {
            let outcome = cancel_aside(gateway, &route, &entry.user, &handle).await;
            return canceled_or_not(connection, seqid, outcome).await;
        }
        entry.state.lock().await
    };
    let session = &mut *guard;
    let canceled = UserError::new(ErrorKind::Canceled, "the statement was cancelled");
    let Some(operation) = session.operations.get_mut(&named) else {
        let error = UserError::new(ErrorKind::WrongState, "the operation does not exist");
        return refuse(connection, Method::CancelOperation, seqid, &error).await;
    };
    let outcome = match &operation.place {
        Place::Waiting(_) => {
            operation.place = Place::Failed(canceled);
            Ok(())
        }
        Place::Local(_) | Place::Failed(_) => Ok(()),
        Place::Engine { binding, handle } => match session.engines.get(binding) {
            Some(bound) => cancel_aside(gateway, &bound.route, &session.user, handle).await,
            None => Ok(()),
        },
        Place::Control(control) => match &mut session.control {
            Some(backend) if backend.number == control.backend => {
                let operation_handle = control.handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                let request = TCancelOperationReq { operation_handle };
                backend.client.cancel_operation(&request).await.map(|_| ()).map_err(Into::into)
            }
            _ => Ok(()),
        },
    };
    canceled_or_not(connection, seqid, outcome).await
}

async fn canceled_or_not(connection: &mut Connection, seqid: i32, outcome: Result<(), UserError>) -> Result<(), Gone> {
    match outcome {
        Ok(()) => {
            let response = TCancelOperationResp { status: status::success() };
            answer(connection, Method::CancelOperation, seqid, &response).await
        }
        Err(error) => refuse(connection, Method::CancelOperation, seqid, &error).await,
    }
}

async fn cancel_aside(
    gateway: &Arc<Gateway>,
    route: &crate::routes::Route,
    user: &str,
    handle: &Handle,
) -> Result<(), UserError> {
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
            format!("engine \"{}\" did not answer the cancel in time", route.engine),
        )),
    }
}
