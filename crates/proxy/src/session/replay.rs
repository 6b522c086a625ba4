//! The statements of the replay log, run again when a session is bound: USE and SET.

use hs2::tcli::{TCloseOperationReq, TExecuteStatementReq};
use hs2::{Client, ClientError};
use model::error::{ErrorKind, UserError};

/// How much of an earlier statement an error shows.
const MAX_SHOWN_CHARS: usize = 200;

/// Whether the engine refuses the statement itself, and would again.
pub(super) fn is_about_statement(error: &UserError) -> bool {
    use ErrorKind as Kind;
    let transient = matches!(
        error.kind,
        Kind::EngineDraining
            | Kind::EngineSessionLost
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

/// The error of an earlier statement, returned by the statement that bound.
pub(super) fn issued_before(error: UserError, text: &str) -> UserError {
    let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    let issued = format!("issued before in this session: {shown}{more}");
    let detail = error.detail.clone().map_or_else(|| issued.clone(), |detail| format!("{detail}; {issued}"));
    error.detail(detail)
}

/// Runs a statement of the replay log at an engine.
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
