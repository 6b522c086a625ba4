//! Replays one statement of the replay log (USE and SET) when a session is bound.

use hs2::tcli::{TCloseOperationReq, TExecuteStatementReq};
use hs2::{Client, ClientError};
use model::error::{ErrorKind, UserError};

/// The most characters of a replayed statement that an error shows.
const MAX_SHOWN_CHARS: usize = 200;

/// Whether the engine rejects the statement itself and would reject it again.
pub(super) fn is_about_statement(error: &UserError) -> bool {
    use ErrorKind as Kind;
    let transient = matches!(
        error.kind,
        Kind::EngineDraining
            | Kind::EngineSessionLost
            | Kind::EngineFull
            | Kind::EngineOwned
            | Kind::ConnectionLost
            | Kind::Unavailable
            | Kind::Timeout
            | Kind::OutcomeUnknown
            | Kind::ProgramLimit
            | Kind::OutOfMemory
            | Kind::DiskFull
            | Kind::Io
    );
    !transient
}

/// The error of a replayed statement, returned by the statement that caused the binding.
pub(super) fn replay_error(error: UserError, text: &str) -> UserError {
    let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    let replayed = format!("The statement was issued before in this session: {shown}{more}");
    let detail = error.detail.clone().map_or_else(|| replayed.clone(), |detail| format!("{detail} {replayed}"));
    error.detail(detail)
}

pub(super) async fn replay(
    client: &mut Client,
    session: &hs2::tcli::TSessionHandle,
    text: &str,
) -> Result<(), ClientError> {
    let request = TExecuteStatementReq {
        session_handle: session.clone(),
        statement: text.to_owned(),
        conf_overlay: None,
        run_async: Some(false),
        query_timeout: None,
    };
    let answer = client.execute_statement(&request).await?;
    if let Some(operation_handle) = answer.operation_handle {
        client.close_operation(&TCloseOperationReq { operation_handle }).await?;
    }
    Ok(())
}
