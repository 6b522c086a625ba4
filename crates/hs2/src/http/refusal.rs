//! Rejections of HTTP requests: a line of text for drivers and their users, a problem of RFC 9457 below `/api/`.

use http::header::{ALLOW, CONNECTION, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use model::error::{ErrorKind, UserError};

use std::time::Duration;

use super::reply::{ReplyBody, text};
use super::resource::Resource;
use crate::error::no_request_memory;
use crate::http_api::problem;
use crate::limit_hits::Limit;
use crate::tls::tls_required;

/// The seconds after which a client may retry what the server is too busy for.
const RETRY_AFTER_SECONDS: &str = "5";

#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: UserError,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, error: UserError) -> Self {
        Self { status, error }
    }

    pub(super) fn bad_request(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, UserError::new(ErrorKind::InvalidValue, text))
    }

    pub(super) fn unauthorized(error: UserError) -> Self {
        if matches!(error.kind, ErrorKind::ProgramLimit | ErrorKind::Unavailable) {
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, error);
        }
        Self::new(StatusCode::UNAUTHORIZED, error)
    }

    /// A login that could not be checked in time. The connection ends.
    pub(super) fn late_login() -> Self {
        let error = UserError::new(ErrorKind::Unavailable, "the login did not end in time").hint("Retry the login.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }

    pub(super) fn lacks_tls() -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, tls_required())
    }

    pub(super) fn method_not_allowed(text: &str) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, UserError::new(ErrorKind::NotSupported, text))
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, UserError::new(ErrorKind::UndefinedObject, "nothing is served at this path"))
    }

    pub(super) fn too_long(limit: usize) -> Self {
        let error = UserError::new(ErrorKind::ProgramLimit, "request too long")
            .detail(format!("The limit is {limit} bytes."))
            .hint("Send less at a time.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    }

    /// A body for which there is no memory.
    pub(super) fn no_request_memory(bytes: usize, limit: Limit, waited: Duration) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, no_request_memory(bytes, limit, waited))
    }

    /// A body that did not arrive in time.
    pub(super) fn too_slow(limit: &str) -> Self {
        let error = UserError::new(ErrorKind::Timeout, "the request did not arrive in time")
            .detail(format!("It exceeded {limit}."));
        Self::new(StatusCode::REQUEST_TIMEOUT, error)
    }

    /// The response to a request for `resource`; `last` announces the end of the connection.
    pub(super) fn response(self, resource: Resource, last: bool) -> Response<ReplyBody> {
        let header = match self.status {
            StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, resource.methods())),
            StatusCode::UPGRADE_REQUIRED => Some((UPGRADE, "TLS/1.2")),
            StatusCode::SERVICE_UNAVAILABLE => Some((RETRY_AFTER, RETRY_AFTER_SECONDS)),
            _ => None,
        };
        let mut response = if resource.has_problems() {
            problem(self.status, &self.error).map(ReplyBody::Whole)
        } else {
            text(self.status, self.error.text())
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        if last {
            close_after(&mut response);
        }
        response
    }
}

/// Announces that the connection ends after this response.
pub(super) fn close_after(response: &mut Response<ReplyBody>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}
