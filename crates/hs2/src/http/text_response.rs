//! Responses in plain text instead of Thrift: rejections, and the results of probes.

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, RETRY_AFTER, UPGRADE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use model::error::{ErrorKind, UserError};

use super::reply::ReplyBody;
use crate::tls::tls_required;

/// The seconds after which a client may retry what the server is too busy for.
const RETRY_AFTER_SECONDS: &str = "5";

#[derive(Debug)]
pub(super) struct TextResponse {
    status: StatusCode,
    header: Option<(HeaderName, &'static str)>,
    text: String,
}

impl TextResponse {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, header: None, text: text.into() }
    }

    fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    pub(super) fn bad_request(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    pub(super) fn unauthorized(error: &UserError) -> Self {
        if matches!(error.kind, ErrorKind::ProgramLimit | ErrorKind::Unavailable) {
            return Self::new(StatusCode::SERVICE_UNAVAILABLE, error.text()).with(RETRY_AFTER, RETRY_AFTER_SECONDS);
        }
        Self::new(StatusCode::UNAUTHORIZED, error.text()).with(WWW_AUTHENTICATE, "Basic realm=\"enginehouse\"")
    }

    pub(super) fn lacks_tls() -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, tls_required().text()).with(UPGRADE, "TLS/1.2")
    }

    pub(super) fn method_not_allowed() -> Self {
        let text = "this is a HiveServer2 listener: connect with a HiveServer2 client in HTTP mode";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text).with(ALLOW, "POST")
    }

    pub(super) fn too_long(limit: usize) -> Self {
        let error = UserError::new(ErrorKind::ProgramLimit, "request too long")
            .detail(format!("The limit is {limit} bytes."))
            .hint("Send less at a time.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.text())
    }

    /// The response; `last` announces the end of the connection.
    pub(super) fn response(self, last: bool) -> Response<ReplyBody> {
        let mut response = Response::new(ReplyBody::Whole(Bytes::from(self.text + "\n")));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        if let Some((name, value)) = self.header {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
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
