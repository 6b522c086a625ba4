//! `TStatus`: success and errors on the wire, and how a client reads them.
//!
//! Our errors have sqlState, errorCode and errorMessage; detail and hint are further lines of the message.
//! infoMessages stays unset, because the Java driver fails on a list that is not in its own format.

use model::error::{ErrorKind, UserError};

pub use model::error::{ENGINE_DRAINING, ENGINE_FULL, ENGINE_OWNED, ENGINE_SESSION_LOST};

use crate::limits::MAX_ERROR_TEXT_BYTES;
use crate::tcli::{TGetOperationStatusResp, TOperationState, TStatus, TStatusCode};

/// The status of a call that succeeded.
pub fn success() -> TStatus {
    TStatus {
        status_code: TStatusCode::SUCCESS_STATUS,
        info_messages: None,
        sql_state: None,
        error_code: None,
        error_message: None,
    }
}

/// The status of a call that was refused or failed.
pub fn refusal(error: &UserError) -> TStatus {
    TStatus {
        status_code: TStatusCode::ERROR_STATUS,
        info_messages: None,
        sql_state: Some(error.sqlstate().to_owned()),
        error_code: Some(error.error_code()),
        error_message: Some(text_of(error)),
    }
}

/// The response of `GetOperationStatus` for an operation in this state, without an error.
pub fn operation(state: TOperationState) -> TGetOperationStatusResp {
    TGetOperationStatusResp::new(success(), state, None, None, None, None, None, None, None, None, None)
}

/// Writes an operation's own error into the response of GetOperationStatus, whose status remains a success.
pub fn operation_error(error: &UserError, answer: &mut TGetOperationStatusResp) {
    answer.operation_state = Some(TOperationState::ERROR_STATE);
    answer.sql_state = Some(error.sqlstate().to_owned());
    answer.error_code = Some(error.error_code());
    answer.error_message = Some(text_of(error));
}

/// The text of an error without Java stack traces, at most [`MAX_ERROR_TEXT_BYTES`] of it.
fn text_of(error: &UserError) -> String {
    let mut text = error.clone().without_stack_trace().text();
    if text.len() > MAX_ERROR_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_ERROR_TEXT_BYTES - CUT.len()));
        text.push_str(CUT);
    }
    text
}

/// The end of a text that was cut.
pub(crate) const CUT: &str = "…";

/// The error that a status holds, if it holds one.
pub fn check(status: &TStatus) -> Result<(), UserError> {
    match status.status_code {
        TStatusCode::SUCCESS_STATUS | TStatusCode::SUCCESS_WITH_INFO_STATUS | TStatusCode::STILL_EXECUTING_STATUS => {
            Ok(())
        }
        TStatusCode::INVALID_HANDLE_STATUS => Err(error_of(
            status.sql_state.as_deref().or(Some(ErrorKind::WrongState.sqlstate())),
            status.error_code,
            Some(status.error_message.as_deref().unwrap_or("the handle is not valid")),
        )),
        _ => Err(error_of(status.sql_state.as_deref(), status.error_code, status.error_message.as_deref())),
    }
}

/// The error with this sqlState, errorCode and errorMessage.
pub fn error_of(sql_state: Option<&str>, error_code: Option<i32>, message: Option<&str>) -> UserError {
    let message = message.unwrap_or("the server gave no reason");
    let (state, code) = (sql_state.unwrap_or_default(), error_code.unwrap_or(0));
    let error = match kind_of(state, code) {
        Some(kind) => UserError::from_text(kind, message),
        // The engine's own state is kept.
        None if state.len() == 5 => UserError::from_text(ErrorKind::Internal, message).with_sqlstate(state),
        None => UserError::from_text(ErrorKind::Internal, message),
    };
    if code == error.error_code() { error } else { error.with_error_code(code) }
}

/// The kinds that their SQLSTATE identifies.
const KINDS: &[ErrorKind] = &[
    ErrorKind::Syntax,
    ErrorKind::InvalidName,
    ErrorKind::InvalidValue,
    ErrorKind::UndefinedObject,
    ErrorKind::UndefinedTable,
    ErrorKind::UndefinedColumn,
    ErrorKind::DuplicateObject,
    ErrorKind::DependentObjects,
    ErrorKind::WrongState,
    ErrorKind::LimitReached,
    ErrorKind::InsufficientResources,
    ErrorKind::ProgramLimit,
    ErrorKind::LockNotAvailable,
    ErrorKind::Conflict,
    ErrorKind::InsufficientPrivilege,
    ErrorKind::InvalidAuthorization,
    ErrorKind::ConnectionLost,
    ErrorKind::Unavailable,
    ErrorKind::OutcomeUnknown,
    ErrorKind::Timeout,
    ErrorKind::Canceled,
    ErrorKind::OutOfMemory,
    ErrorKind::DiskFull,
    ErrorKind::DataException,
    ErrorKind::NotSupported,
    ErrorKind::Io,
    ErrorKind::Internal,
];

fn kind_of(state: &str, error_code: i32) -> Option<ErrorKind> {
    let of_agents =
        [ErrorKind::EngineDraining, ErrorKind::EngineSessionLost, ErrorKind::EngineFull, ErrorKind::EngineOwned];
    if let Some(kind) = of_agents.into_iter().find(|kind| error_code == kind.error_code() && state == kind.sqlstate()) {
        return Some(kind);
    }
    KINDS.iter().copied().find(|kind| kind.sqlstate() == state)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use model::error::KIND_MISMATCH;

    #[test]
    fn a_status_has_the_error_s_own_code() {
        let error = UserError::new(ErrorKind::InvalidValue, "kinds do not combine").with_error_code(KIND_MISMATCH);
        let mut answer = operation(TOperationState::RUNNING_STATE);
        operation_error(&error, &mut answer);
        assert_eq!((refusal(&error).error_code, answer.error_code), (Some(KIND_MISMATCH), Some(KIND_MISMATCH)));
    }

    #[test]
    fn an_error_survives_the_round_trip_with_its_code() {
        for error in [
            UserError::new(ErrorKind::InsufficientResources, "not enough CPU").with_error_code(46_021),
            UserError::new(ErrorKind::InvalidValue, "kinds do not combine")
                .detail("One.")
                .with_error_code(KIND_MISMATCH),
            UserError::new(ErrorKind::EngineDraining, "engine is draining"),
            UserError::new(ErrorKind::EngineFull, "engine has no free seat"),
            UserError::new(ErrorKind::EngineOwned, "engine belongs to another user"),
            UserError::new(ErrorKind::ConnectionLost, "connection lost").with_error_code(7),
            UserError::new(ErrorKind::Internal, "an engine's own").with_sqlstate("HV001").with_error_code(40_000),
        ] {
            assert_eq!(check(&refusal(&error)).unwrap_err(), error);
        }
        assert_eq!(error_of(Some("22023"), None, Some("plain")).code, None);
    }

    #[test]
    fn an_unknown_code_of_a_lost_connection_is_a_lost_connection() {
        // A proxy reads the code of a newer agent in this way, and chooses another engine.
        let error = error_of(Some("08S01"), Some(45_999), Some("a newer reason"));
        assert_eq!((error.kind, error.error_code()), (ErrorKind::ConnectionLost, 45_999));
    }
}
