//! Cancel: on a connection of its own, because the session's connection may be in the middle of a call.

use std::time::Duration;

use hs2::tcli::{TCancelOperationReq, TCancelOperationResp, TOperationType};
use hs2::{Handle, status};
use model::error::{ErrorKind, UserError};

use super::operation::OperationState;
use super::reply::{CallError, Reply};
use super::table::Entry;
use crate::gateway::Gateway;
use crate::routes::Route;

/// How long a cancel on a side connection may take.
const CANCEL_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) async fn cancel(gateway: &Gateway, entry: &Entry, named: Handle) -> Result<Reply, CallError> {
    let mut guard = if let Ok(guard) = entry.state.try_lock() {
        guard
    } else {
        // Another call of the session waits for its engine, perhaps for the very statement that is to be cancelled:
        // over HTTP several connections can use one session.
        if let Some((route, handle)) = entry.at_engine(&named) {
            cancel_at_engine(gateway, &route, &entry.owner.user, &handle).await?;
            return Ok(canceled());
        }
        entry.state.lock().await
    };
    let session = &mut *guard;
    let Some(operation) = session.operations.get_mut(&named) else {
        return Err(UserError::new(ErrorKind::WrongState, "operation does not exist").into());
    };
    match &operation.state {
        OperationState::Waiting(_) => {
            let error = UserError::new(ErrorKind::Canceled, "canceling statement due to user request");
            operation.state = OperationState::Failed(error);
        }
        OperationState::Local(_) | OperationState::Failed(_) => {}
        OperationState::AtEngine { binding, handle, .. } => {
            if let Some(engine) = session.engines.get(*binding) {
                cancel_at_engine(gateway, &engine.route, &session.principal.user, handle).await?;
            }
        }
        OperationState::Control(control) => {
            if let Some((client, handle)) = session.channel.agent_of(&control.running) {
                let operation_handle = handle.operation(TOperationType::EXECUTE_STATEMENT, true);
                let request = TCancelOperationReq { operation_handle };
                client.cancel_operation(&request).await.map_err(UserError::from)?;
            }
        }
    }
    Ok(canceled())
}

fn canceled() -> Reply {
    TCancelOperationResp { status: status::success() }.into()
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
