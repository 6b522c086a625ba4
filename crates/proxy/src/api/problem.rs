//! Errors of REST: problem details (RFC 9457) with SQLSTATE, detail and hint.

use agent_api::ReservationRefused;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use hs2::http_api::problem_with;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use model::error::{ErrorKind, UserError};
use model::ledger::LedgerError;

/// The media type of a problem, which hs2 writes.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// An error with the HTTP status that reports it.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: UserError,
    /// What the ledger adds.
    ledger: Option<Box<LedgerError>>,
}

impl ApiError {
    /// An error whose status does not follow from its kind.
    pub(super) const fn with_status(status: StatusCode, error: UserError) -> Self {
        Self { status, error, ledger: None }
    }

    /// The refusal of a call about a reservation.
    pub(super) fn of_ledger(refused: ReservationRefused) -> Self {
        let ReservationRefused { error, ledger } = refused;
        Self { status: status_of(error.kind), error, ledger: ledger.map(Box::new) }
    }
}

impl From<UserError> for ApiError {
    fn from(error: UserError) -> Self {
        let ledger = LedgerError::of(&error).map(Box::new);
        Self { status: status_of(error.kind), error, ledger }
    }
}

/// The HTTP status of a kind of error.
pub(super) const fn status_of(kind: ErrorKind) -> StatusCode {
    match kind {
        ErrorKind::Syntax | ErrorKind::InvalidName => StatusCode::BAD_REQUEST,
        ErrorKind::InvalidValue | ErrorKind::DataException | ErrorKind::NotSupported => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        ErrorKind::InsufficientPrivilege | ErrorKind::InvalidAuthorization => StatusCode::FORBIDDEN,
        ErrorKind::UndefinedObject | ErrorKind::UndefinedTable | ErrorKind::UndefinedColumn => StatusCode::NOT_FOUND,
        ErrorKind::DuplicateObject
        | ErrorKind::DependentObjects
        | ErrorKind::WrongState
        | ErrorKind::LimitReached
        | ErrorKind::InsufficientResources
        | ErrorKind::LockNotAvailable
        | ErrorKind::Conflict
        | ErrorKind::Canceled => StatusCode::CONFLICT,
        ErrorKind::ProgramLimit => StatusCode::TOO_MANY_REQUESTS,
        ErrorKind::ConnectionLost
        | ErrorKind::EngineDraining
        | ErrorKind::EngineSessionLost
        | ErrorKind::EngineFull
        | ErrorKind::EngineOwned
        | ErrorKind::Unavailable
        | ErrorKind::OutOfMemory
        | ErrorKind::DiskFull => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::OutcomeUnknown | ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorKind::Io | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The seconds after which a request with this status may be repeated.
fn retry_after(status: StatusCode) -> Option<HeaderValue> {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(HeaderValue::from_static("1")),
        StatusCode::SERVICE_UNAVAILABLE => Some(HeaderValue::from_static("5")),
        _ => None,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response =
            problem_with(self.status, &self.error.without_stack_trace(), self.ledger.as_deref()).map(Body::from);
        if let Some(seconds) = retry_after(self.status) {
            response.headers_mut().insert(RETRY_AFTER, seconds);
        }
        response
    }
}

/// The response to a path that no route has.
pub(super) async fn unknown_path() -> ApiError {
    UserError::new(ErrorKind::UndefinedObject, "no resource has this path")
        .hint("GET /api/v1/openapi.json describes the resources.")
        .into()
}

/// The response to a method that the path does not have. The router adds `Allow`.
pub(super) async fn other_method() -> ApiError {
    let error = UserError::new(ErrorKind::NotSupported, "the resource does not support this method")
        .hint("GET /api/v1/openapi.json describes the resources.");
    ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_page_has_the_status_of_each_sqlstate() {
        use ErrorKind as E;
        let kinds = [
            E::Syntax,
            E::InvalidName,
            E::InsufficientPrivilege,
            E::InvalidAuthorization,
            E::UndefinedObject,
            E::UndefinedTable,
            E::UndefinedColumn,
            E::DuplicateObject,
            E::DependentObjects,
            E::WrongState,
            E::LimitReached,
            E::InsufficientResources,
            E::LockNotAvailable,
            E::Conflict,
            E::Canceled,
            E::InvalidValue,
            E::DataException,
            E::NotSupported,
            E::ProgramLimit,
            E::Io,
            E::Internal,
            E::ConnectionLost,
            E::Unavailable,
            E::OutOfMemory,
            E::DiskFull,
            E::OutcomeUnknown,
            E::Timeout,
        ];
        let mut table: Vec<(u16, String)> = Vec::new();
        for kind in kinds {
            let (status, state) = (status_of(kind).as_u16(), format!("`{}`", kind.sqlstate()));
            match table.iter_mut().find(|(known, _)| *known == status) {
                Some((_, states)) => states.extend([", ", &state]),
                None => table.push((status, state)),
            }
        }
        table.sort();
        let rows: Vec<String> = table.iter().map(|(status, states)| format!("| {status} | {states} |")).collect();
        let page = include_str!("../../../../docs/rest.md");
        assert!(page.contains(&rows.join("\n")), "docs/rest.md must have these rows:\n{}", rows.join("\n"));
    }

    #[test]
    fn what_may_be_repeated_later_names_the_time() {
        for (kind, seconds) in
            [(ErrorKind::ProgramLimit, Some("1")), (ErrorKind::Unavailable, Some("5")), (ErrorKind::Timeout, None)]
        {
            let response = ApiError::from(UserError::new(kind, "x")).into_response();
            let header = response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, seconds, "{kind:?}");
        }
    }
}
